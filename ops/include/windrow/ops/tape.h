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

/// Notes the applications that watched tensors go through, and applies the operators' own gradients to them. An owner;
/// it holds the tensors that it has noted until backward(). For one backward pass.
///
/// The gradients of a tensor that was used several times are added in the reverse order of its uses, so the same
/// program gives the same bits. Between its use and backward(), nothing may write the result of a noted operator, nor
/// an operand that its gradients are computed from, nor what note() was given: backward() throws MisuseError then.
/// Gradients are for reading: those of two tensors may be one tensor. Threads: one at a time.
class Tape {
 public:
  /// Applies an operator as windrow::apply does: into `out` or, if that is null, into a tensor that nothing else uses.
  /// Returns the result.
  using Apply = std::function<Tensor(const Operator& op, const Operands& operands, const Tensor* out,
                                     std::source_location pushed_at)>;

  /// `apply` applies the operators of the program and those of its gradients: for programs that choose where results
  /// lie, or that list what a step applies. Empty: windrow::apply, into new tensors.
  explicit Tape(const Device& device, Apply apply = {});
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// Asks for the gradient of a tensor that covers its buffer, such as a parameter. Throws MisuseError for another one,
  /// for one that was an operand of apply() before, and after backward().
  void watch(const Tensor& tensor);

  /// Applies the operator, as windrow::apply does, and notes the application if an operand depends on a watched tensor.
  /// Throws as windrow::apply does; MisuseError for Write::add, after backward(), and for an operand that depends on a
  /// watched tensor and is a view of it: use an operator, such as slice, instead.
  Tensor apply(const Operator& op, const Operands& operands,
               std::source_location pushed_at = std::source_location::current());

  /// One for each of some tensors; none where there is no gradient.
  using Gradients = std::vector<std::optional<Tensor>>;
  /// Pushes ops that compute the gradients of operands. `of_results`: those of the results, none where the loss does
  /// not depend on one. `wanted`, by operand: whether its gradient is used. Returns one for each operand, none where
  /// the results do not depend on it or it is not wanted. The tensors may be written again by ops that are pushed
  /// later.
  using Backward = std::function<Gradients(const Gradients& of_results, const std::vector<bool>& wanted,
                                           std::source_location pushed_at)>;

  /// Notes that something else than apply(), such as a StaticBlock, computed `results` from `operands`, and how to
  /// compute the gradients: backward() calls the function at most once, if the loss depends on a result. Does nothing
  /// if no operand depends on a watched tensor; otherwise all results count as depending on it. Backward() throws after
  /// it has pushed ops, and the tape then has no gradients, if the function throws or returns gradients of another
  /// number or shape, or if its gradients reach an operator without one. Throws MisuseError after backward(), for
  /// results that do not cover their buffers, are operands, or that the tape knows already, and for views as apply()
  /// does.
  void note(const std::vector<Tensor>& operands, const std::vector<Tensor>& results, Backward backward);

  /// Pushes the ops that compute the gradients, of the sum of all elements of `loss`, for the watched tensors. Tensors
  /// that lie on no path from a watched one to the loss get none. Throws MisuseError if the loss depends on no watched
  /// tensor, if an operator on a path has no gradient, if a tensor was modified in place that must not be, and the
  /// second time; then it pushes nothing.
  void backward(const Tensor& loss, std::source_location pushed_at = std::source_location::current());

  /// The same for a part of a larger program: from the gradients that are given for some of its results, of their
  /// shapes. A result that depends on no watched tensor counts for nothing. Throws MisuseError for another number of
  /// gradients, another shape, and a view of a tensor that has a gradient.
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
