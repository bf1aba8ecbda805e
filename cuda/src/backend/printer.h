// Prints the code of a fused kernel.
#pragma once

#include <map>
#include <span>
#include <tuple>

#include "backend/fusion.h"

namespace windrow::cuda {

/// Whether a fused kernel can compute the step: elementwise operators, biases, constants, and moves between vertices.
bool can_print(const Step& step, const Segment& segment);
/// The number of columns that the step computes or moves.
Index width_of(const Step& step);

class Printer {
 public:
  /// `lists` are the lists of the type; print() adds those that the kernel needs.
  Printer(const std::vector<std::optional<Rate>>& locals, std::vector<RowList>& lists, FusedKernel& kernel)
      : locals_(locals), lists_(lists), kernel_(kernel) {}

  /// Fills the kernel's code, places and lists.
  void print(std::span<const Step> steps);

 private:
  /// A block of columns of a matrix.
  using Block = std::tuple<Place::In, std::size_t, Index>;

  void print(const Step& step, Index block);
  std::string value_of(const Step& step, Index block);
  void scatter(const Step& step, Index block);
  std::string incoming(const Step& step, Index block);
  void loop(const RowList& of, const std::string& statement);
  /// A variable, or a constant.
  std::string load(const Place& place, Index column);
  void store(const Place& place, Index column, const std::string& value);
  std::string element(const Place& place, Index column, bool writes);
  std::size_t number_of(const Place& place, Index column, bool writes);
  std::size_t number_of(const RowList& list);
  std::string variable() { return "v" + std::to_string(variables_++); }
  void line(const std::string& text) { code_ += "  " + text + "\n"; }
  bool in_memory(const Place& place) const;

  /// The columns of a matrix that the kernel accesses.
  struct Used {
    Index begin, end;
    bool writes;
  };

  const std::vector<std::optional<Rate>>& locals_;
  std::vector<RowList>& lists_;
  FusedKernel& kernel_;
  std::string code_;
  int variables_ = 0;
  std::map<Block, std::string> known_;  // variables, by what they hold
  std::vector<Used> used_;              // by place of the kernel
};

}  // namespace windrow::cuda
