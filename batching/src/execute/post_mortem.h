// Why a minibatch failed: the operator and the vertex that caused it.
#pragma once

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "windrow/batching/internal/execution.h"

namespace windrow {

/// Side by side, used by an op of the minibatch that has failed.
class PostMortem {
 public:
  explicit PostMortem(Execution& of) : of_(of) {}

  /// Finds what made a loss not finite: an input, a parameter, or an operator. The loss is one of the function, or a
  /// value of an output. Runs the forward pass, so the minibatch must be computed for this purpose only; see
  /// Losses::culprit().
  std::string culprit(VertexRow loss, std::optional<std::size_t> output);

  using At = Execution::At;
  /// Whether explain() should name the vertex that caused an error of a kernel. Without origins this is so only for
  /// MisuseError; other errors of user-defined kernels reach the caller unchanged.
  bool explains(const std::exception& error) const;
  /// Runs the step row by row to find the vertex: the row number in the kernel's error is relative to the rows of the
  /// step. Throws an error that names it.
  [[noreturn]] void explain(const Step& step, const At& at, const std::string& error);

 private:
  std::string find_constant(const std::vector<char>& leads) const;
  std::string find_input(const std::vector<std::vector<char>>& involved) const;
  std::string find_given(const std::vector<std::vector<char>>& involved) const;
  std::string find_step(const std::vector<std::vector<char>>& involved, const std::vector<char>& leads);
  std::string explanation(const Step& step, const At& at, const std::exception& error);
  std::vector<std::vector<char>> below(VertexRow top) const;
  VertexRow vertex_of(std::size_t type, Rate rate, Index row) const;

  Execution& of_;
};

}  // namespace windrow
