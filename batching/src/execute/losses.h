// Adds up and checks the losses of a minibatch. A loss that is not finite fails the minibatch, with an error that names
// its cause (execute/post_mortem.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "windrow/batching/internal/execution.h"

namespace windrow {

/// Used while a minibatch is pushed, and by its ops.
class Losses {
 public:
  explicit Losses(Execution& of) : of_(of) {}

  /// A loss that is not finite.
  struct Bad {
    VertexRow vertex;
    std::string what;
    std::optional<std::size_t> output = {};  ///< none for a loss of the function
  };
  /// Side by side, in an op after the forward pass: adds up the losses of the function. If one is not finite, throws
  /// NotFiniteError, or stores that text in MinibatchEnd::not_finite.
  void finish();

  // In order, the losses are copied to the host, where an op checks them while the device continues. Then an op on a
  // lane of the device fails if one is bad.
  struct Check;
  /// Pushes the copy and the check of the losses. Null if there are no losses.
  std::shared_ptr<Check> push(std::source_location from);
  /// `refuses` are the accesses of the op that fails. Their users wait for the host's check of the losses, but not for
  /// what the device computes meanwhile.
  void push_verdict(const std::shared_ptr<Check>& check, std::vector<Access> refuses, LaneId lane,
                    std::source_location from);
  /// A lane on which verdicts do not queue behind work of later minibatches.
  LaneId verdict_lane() const { return of_.device_.copy_out.value_or(of_.device_.lane); }

  /// See Execution::check_losses.
  void push(LossCheck losses, std::source_location from);

 private:
  using ValuesOf = std::function<Matrix<const float>(std::size_t type, const Place& place)>;
  std::optional<Bad> add_up(const ValuesOf& values_of);
  std::optional<Bad> find_bad(const LossCheck& check, Matrix<const float> values) const;
  /// Throws an error with that text; if `note`, stores it in the end of the minibatch instead.
  void refuse(const std::string& text, bool note) const;
  void push_download(const std::shared_ptr<Check>& check, std::vector<Access> reads, std::source_location from);
  std::string culprit(const Bad& bad) const;
  std::string culprit(const Check& check) const;
  std::string culprit(const Bad& bad, const Device& host, std::shared_ptr<const Plan> plan,
                      std::vector<Tensor> tensors) const;

  Execution& of_;
};

}  // namespace windrow
