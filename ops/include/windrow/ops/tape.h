// Reverse-mode differentiation of operators that a program applies (define by run).
//
//   windrow::Tape tape(host);
//   tape.watch(w);
//   windrow::Tensor y = tape.apply(windrow::op::matmul, {.in = {x, w}});
//   tape.backward(tape.apply(windrow::op::column_sum, {.in = {y}}));
//   tape.gradient(w);  // the derivative of the sum
//
// For structure that differs from sample to sample, use vertex functions or lazy expressions, which batch
// (windrow/batching/). In the body of a Static, a tape costs nothing per step (static.h).
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <vector>

#include "windrow/ops/apply.h"

namespace windrow {

/// Notes the applications that depend on watched tensors, and computes gradients by the operators' gradient rules. An
/// owner; it holds the tensors that it has noted until backward(). For one backward pass.
///
/// The gradients of a tensor that was used several times are added in the reverse order of its uses, so the same
/// program gives the same bits. Between its use and backward(), no op may write the result of a noted operator, an
/// operand from which its gradients are computed, or a tensor that was passed to note(): otherwise backward() throws
/// MisuseError. Gradients are for reading: those of two tensors may be one tensor. Threads: one at a time.
class Tape {
 public:
  /// Applies an operator as windrow::apply does: into `out` or, if that is null, into a tensor that nothing else uses.
  /// Returns the result.
  using Apply = std::function<Tensor(const Operator& op, const Operands& operands, const Tensor* out,
                                     std::source_location pushed_at)>;

  /// `apply` applies the operators of the program and those of its gradients: for programs that choose where results
  /// lie, or that list the operators of a step. Empty: windrow::apply, into new tensors.
  explicit Tape(const Device& device, Apply apply = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// Asks for the gradient of a tensor that covers its buffer, such as a parameter. Throws MisuseError for a tensor
  /// that does not cover its buffer, for one that was already an operand of apply(), and after backward().
  void watch(const Tensor& tensor);

  /// Applies the operator, as windrow::apply does, and notes the application if an operand depends on a watched tensor.
  /// Throws as windrow::apply does; MisuseError for Write::add, after backward(), and for an operand that depends on a
  /// watched tensor and is a view of it: use an operator, such as slice, instead.
  Tensor apply(const Operator& op, const Operands& operands,
               std::source_location pushed_at = std::source_location::current());

  /// One element for each tensor of a list; empty where there is no gradient.
  using Gradients = std::vector<std::optional<Tensor>>;
  /// Pushes ops that compute the gradients of operands. `of_results`: the gradients of the results, empty where the
  /// loss does not depend on one. `wanted`, by operand: whether its gradient is used. Returns one element for each
  /// operand, empty if it is not wanted or the results do not depend on it. Ops that are pushed later may write the
  /// tensors again.
  using Backward = std::function<Gradients(const Gradients& of_results, const std::vector<bool>& wanted,
                                           std::source_location pushed_at)>;

  /// Notes that code other than apply(), such as a StaticBlock, computed `results` from `operands`, and how to compute
  /// the gradients: backward() calls the function at most once, if the loss depends on a result. Does nothing if no
  /// operand depends on a watched tensor; otherwise all results count as depending on it. backward() throws if the
  /// function throws or returns gradients of another number or shape, or if its gradients reach an operator without a
  /// gradient. It has then pushed ops, and the tape has no gradients. Throws MisuseError after backward(), for results
  /// that do not cover their buffers, are operands, or are known to the tape already, and for views as apply() does.
  void note(const std::vector<Tensor>& operands, const std::vector<Tensor>& results, Backward backward);

  /// Pushes the ops that compute the gradients of the sum of all elements of `loss` with respect to the watched
  /// tensors. A watched tensor on which the loss does not depend gets none. Throws MisuseError if the loss depends on
  /// no watched tensor, if an operator on a path has no gradient, if a tensor was modified in place that must not be,
  /// and in a second call. It pushes nothing then.
  void backward(const Tensor& loss, std::source_location pushed_at = std::source_location::current());

  /// The same for a part of a larger program: starts from given gradients of some of its results, which have the shapes
  /// of these. Ignores results that depend on no watched tensor. Throws MisuseError for another number of gradients,
  /// another shape, and a view of a tensor that has a gradient.
  void backward_from(const std::vector<Tensor>& results, const Gradients& of_results,
                     std::source_location pushed_at = std::source_location::current());

  /// The gradient of a watched tensor, of its shape; empty if the loss does not depend on it. Throws MisuseError before
  /// backward(), for a tensor that is not watched, and for a view of one that is.
  std::optional<Tensor> gradient(const Tensor& tensor) const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace windrow
