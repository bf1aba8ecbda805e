#include "windrow/ops/tape.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace windrow {
namespace {

Type taped_type(const auto& tensor) { return {Rows::count(tensor.rows()), tensor.width()}; }

}  // namespace

class Tape::Impl {
 public:
  Impl(const Device& device, Apply apply) : device_(device), apply_(std::move(apply)) {}

  void watch(const Tensor& tensor) {
    require_recording("watch()");
    if (!tensor.whole()) throw MisuseError("Tape: watch() of a part of a tensor; expected a whole one");
    if (find(tensor) == nullptr) {
      if (used_.contains(tensor.buffer())) {
        throw MisuseError("Tape: watch() of a tensor that was used before; expected watch() before its first use");
      }
      add(tensor);
    }
    find(tensor)->watched = true;
  }

  Tensor apply(const Operator& op, const Operands& operands, std::source_location pushed_at) {
    require_recording("apply()");
    if (operands.write != Write::overwrite) {
      throw MisuseError("Tape: " + std::string(op.name.text()) + " with Write::add; expected Write::overwrite");
    }
    bool depends = false;
    for (const Tensor& tensor : operands.in) {
      const Value* const value = find(tensor);
      if (value == nullptr) continue;
      depends = true;
      if (value->tensor.same_view(tensor)) continue;
      throw MisuseError(
          "Tape: " + std::string(op.name.text()) +
          " of a view of a tensor that has a gradient; expected the tensor, or an operator such as slice");
    }
    const Tensor result = apply_new(op, operands, pushed_at);
    for (const Tensor& tensor : operands.in) {
      if (find(tensor) == nullptr) used_.insert(tensor.buffer());
    }
    if (!depends) return result;
    steps_.push_back({&op, operands, result});
    add(result);
    return result;
  }

  void backward(const Tensor& loss, std::source_location pushed_at) {
    require_recording("backward()");
    Value* const last = find(loss);
    if (last == nullptr || !last->tensor.same_view(loss)) {
      throw MisuseError("Tape: backward() from a tensor that depends on no watched one; expected a result of apply()");
    }
    find_terms(loss);
    over_ = true;
    const Tensor ones(device_, loss.rows(), loss.width(), "ones");
    ones.set(std::vector<float>(static_cast<std::size_t>(loss.rows() * loss.width()), 1), pushed_at);
    last->gradient = ones;
    for (; !steps_.empty(); steps_.pop_back()) {
      const Step& step = steps_.back();
      Value& result = *find(step.result);
      if (result.gradient) differentiate(step, *result.gradient, pushed_at);
      if (!result.watched) values_.erase(result.tensor.buffer().get());
    }
  }

  std::optional<Tensor> gradient(const Tensor& tensor) const {
    const auto found = values_.find(tensor.buffer().get());
    if (!over_ || found == values_.end() || !found->second.watched) {
      throw MisuseError(std::string("Tape: gradient() ") +
                        (over_ ? "of a tensor that is not watched" : "before backward()"));
    }
    if (!found->second.tensor.same_view(tensor)) {
      throw MisuseError("Tape: gradient() of a view of a watched tensor; expected the tensor");
    }
    return found->second.gradient;
  }

 private:
  /// A tensor that is watched, or depends on one that is.
  struct Value {
    Tensor tensor;
    bool watched = false;
    std::optional<Tensor> gradient = {};
    bool shared = true;  ///< whether the gradient may be another value's too, so that nothing may be added to it
  };
  struct Step {
    const Operator* op;
    Operands operands;
    Tensor result;
    GradientTerms terms = {};  ///< found by backward() for steps on a path to the loss
  };

  void require_recording(const char* what) const {
    if (over_) throw MisuseError(std::string("Tape: ") + what + " after backward(); expected a new tape");
  }
  Tensor apply_new(const Operator& op, const Operands& operands, std::source_location pushed_at) const {
    return apply_ ? apply_(op, operands, nullptr, pushed_at) : windrow::apply(device_, op, operands, pushed_at);
  }
  void apply_into(const Operator& op, const Operands& operands, const Tensor& out,
                  std::source_location pushed_at) const {
    apply_ ? static_cast<void>(apply_(op, operands, &out, pushed_at))
           : windrow::apply(device_, op, operands, out, pushed_at);
  }
  Value* find(const Tensor& tensor) {
    const auto found = values_.find(tensor.buffer().get());
    return found == values_.end() ? nullptr : &found->second;
  }
  void add(const Tensor& tensor) { values_.emplace(tensor.buffer().get(), Value{tensor}); }

  /// Before anything is pushed, since a step on a path may have no gradient.
  void find_terms(const Tensor& loss) {
    std::unordered_set<const Buffer*> on_path = {loss.buffer().get()};
    for (std::size_t i = steps_.size(); i-- > 0;) {
      Step& step = steps_[i];
      if (!on_path.contains(step.result.buffer().get())) continue;
      step.terms = terms_of(step);
      for (std::size_t k = 0; k < step.terms.size(); ++k) {
        const Tensor& operand = step.operands.in[k];
        if (step.terms[k] && find(operand) != nullptr) on_path.insert(operand.buffer().get());
      }
    }
  }
  static GradientTerms terms_of(const Step& step) {
    if (step.op->gradients == nullptr) {
      throw MisuseError("Tape: operator " + std::string(step.op->name.text()) + " has no gradient");
    }
    Signature signature{.attributes = step.operands.attributes};
    for (const Tensor& tensor : step.operands.in) signature.in.push_back(taped_type(tensor));
    for (const IntTensor& tensor : step.operands.indices) signature.indices.push_back(taped_type(tensor));
    return step.op->gradients(signature);
  }

  void differentiate(const Step& step, const Tensor& gradient, std::source_location pushed_at) {
    for (std::size_t k = 0; k < step.terms.size(); ++k) {
      Value* const operand = find(step.operands.in[k]);
      if (operand != nullptr && step.terms[k]) add_term(*operand, *step.terms[k], step, gradient, pushed_at);
    }
  }

  void add_term(Value& to, const GradientTerm& term, const Step& step, const Tensor& gradient,
                std::source_location pushed_at) const {
    const auto named = [&](const Ref& ref) {
      if (ref.of == Ref::Of::operand) return step.operands.in[ref.number];
      return ref.of == Ref::Of::result ? step.result : gradient;
    };
    if (term.op == nullptr) {  // the gradient is a tensor that there is
      const Tensor same = named(term.in.front());
      to.shared = !to.gradient;
      to.gradient = to.gradient ? apply_new(op::add, {.in = {*to.gradient, same}}, pushed_at) : same;
      return;
    }
    Operands operands{.attributes = term.attributes};
    for (const Ref& ref : term.in) operands.in.push_back(named(ref));
    for (const std::size_t index : term.indices) operands.indices.push_back(step.operands.indices[index]);
    if (to.gradient && !to.shared) {
      operands.write = Write::add;
      return apply_into(*term.op, operands, *to.gradient, pushed_at);
    }
    const Tensor made = apply_new(*term.op, operands, pushed_at);
    to.gradient = to.gradient ? apply_new(op::add, {.in = {*to.gradient, made}}, pushed_at) : made;
    to.shared = false;
  }

  const Device device_;
  const Apply apply_;
  std::unordered_map<const Buffer*, Value> values_;  // by the buffer, which the value holds
  /// Buffers of operands that depend on nothing that was watched by then. They may end.
  std::set<std::weak_ptr<Buffer>, std::owner_less<>> used_;
  std::vector<Step> steps_;
  bool over_ = false;
};

Tape::Tape(const Device& device, Apply apply) : impl_(std::make_unique<Impl>(device, std::move(apply))) {}
Tape::~Tape() = default;

void Tape::watch(const Tensor& tensor) { impl_->watch(tensor); }
Tensor Tape::apply(const Operator& op, const Operands& operands, std::source_location pushed_at) {
  return impl_->apply(op, operands, pushed_at);
}
void Tape::backward(const Tensor& loss, std::source_location pushed_at) { impl_->backward(loss, pushed_at); }
std::optional<Tensor> Tape::gradient(const Tensor& tensor) const { return impl_->gradient(tensor); }

}  // namespace windrow
