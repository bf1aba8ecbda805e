#include "windrow/ops/tape.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "record/recorder.h"

namespace windrow {

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
    const bool depends = depends_on(operands.in, op.name.text());
    const Tensor result = apply_new(op, operands, pushed_at);
    note_uses(operands.in);
    if (!depends) return result;
    steps_.push_back(
        {.op = &op, .operands = operands, .results = {result}, .versions = versions_of(operands, {result})});
    add(result);
    return result;
  }

  void note(const std::vector<Tensor>& operands, const std::vector<Tensor>& results, Backward backward) {
    require_recording("note()");
    if (!backward) throw MisuseError("Tape: note() without a function; expected one that computes gradients");
    const bool depends = depends_on(operands, "note()");
    for (std::size_t k = 0; k < results.size(); ++k) {
      const bool twice = std::any_of(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(k),
                                     [&](const Tensor& other) { return other.buffer() == results[k].buffer(); });
      const bool is_operand =
          std::ranges::any_of(operands, [&](const Tensor& operand) { return operand.buffer() == results[k].buffer(); });
      if (twice || is_operand || !results[k].whole() || find(results[k]) != nullptr ||
          used_.contains(results[k].buffer())) {
        throw MisuseError("Tape: note() of result " + std::to_string(k) +
                          ", which the tape knows, or which is a part of a tensor or an operand; expected new tensors");
      }
    }
    note_uses(operands);
    if (!depends) return;
    steps_.push_back({.operands = {.in = operands},
                      .results = results,
                      .backward = std::move(backward),
                      .versions = versions_of({.in = operands}, results)});
    for (const Tensor& result : results) add(result);
  }

  void backward(const Tensor& loss, std::source_location pushed_at) {
    require_recording("backward()");
    if (find_result(loss, "backward()") == nullptr) {
      throw MisuseError(
          "Tape: backward() from a tensor that depends on no watched one; expected a result that operators computed "
          "from tensors given to watch()");
    }
    find_terms({loss});
    over_ = true;
    const Tensor ones(device_, loss.rows(), loss.width(), "ones");
    ones.set(std::vector<float>(static_cast<std::size_t>(loss.rows() * loss.width()), 1), pushed_at);
    find(loss)->gradient = ones;
    go_back(pushed_at);
  }

  void backward_from(const std::vector<Tensor>& results, const Gradients& of_results, std::source_location pushed_at) {
    require_recording("backward_from()");
    if (results.size() != of_results.size()) {
      throw MisuseError("Tape: backward_from() of " + std::to_string(results.size()) + " results with " +
                        std::to_string(of_results.size()) + " gradients; expected one for each result");
    }
    std::vector<Tensor> given;
    for (std::size_t k = 0; k < results.size(); ++k) {
      if (!of_results[k]) continue;
      require_shape(*of_results[k], results[k], "backward_from(): the gradient of a result");
      if (find_result(results[k], "backward_from()") != nullptr) given.push_back(results[k]);
    }
    find_terms(given);
    over_ = true;
    for (std::size_t k = 0; k < results.size(); ++k) {
      Value* const result = of_results[k] ? find(results[k]) : nullptr;
      if (result != nullptr) add_given(*result, *of_results[k], pushed_at);
    }
    go_back(pushed_at);
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
  /// The versions of the tensors of a step when it was noted.
  struct Versions {
    const Recorder* recorder;               ///< whose numbers they are, or null: the engine's
    std::vector<std::uint64_t> of_tensors;  ///< operands, index operands, results
  };
  /// An operator and its result, or what was noted.
  struct TapeEntry {
    const Operator* op = nullptr;
    Operands operands;
    std::vector<Tensor> results;
    Backward backward = {};
    Versions versions = {};
    GradientTerms terms = {};  ///< found by backward() for operators on a path to the loss
  };

  std::uint64_t version_of(const Recorder* recorder, const auto& tensor) const {
    return recorder != nullptr ? recorder->version(tensor.var()) : device_.engine->pushed_version(tensor.var());
  }
  Versions versions_of(const Operands& operands, const std::vector<Tensor>& results) const {
    Versions made{Recorder::here(), {}};
    made.of_tensors.reserve(operands.in.size() + operands.indices.size() + results.size());
    const auto take = [&](const auto& tensors) {
      for (const auto& tensor : tensors) made.of_tensors.push_back(version_of(made.recorder, tensor));
    };
    take(operands.in);
    take(operands.indices);
    take(results);
    return made;
  }
  /// Throws if a tensor from which the gradients of the step are computed was written since. Also throws if results
  /// were written again, because later steps then used other values than this step computed.
  void require_unchanged(const TapeEntry& step) const {
    const auto& [recorder, versions] = step.versions;
    if (recorder != Recorder::here()) return;
    const std::size_t in = step.operands.in.size(), indices = step.operands.indices.size();
    std::vector<bool> operand(in, step.op == nullptr), index(indices, false);
    for (std::size_t k = 0; k < step.terms.size(); ++k) {
      if (!step.terms[k] || find(step.operands.in[k]) == nullptr) continue;
      for (const Ref& ref : step.terms[k]->in) {
        if (ref.of == Ref::Of::operand) operand[ref.number] = true;
      }
      for (const std::size_t number : step.terms[k]->indices) index[number] = true;
    }
    const auto require = [&](bool same, const std::string& what) {
      if (same) return;
      const std::string of = step.op != nullptr ? std::string(step.op->name.text()) : "what was noted";
      throw MisuseError("Tape: backward(): " + what + " of " + of +
                        " was modified in place after it was noted; expected the same value until backward()");
    };
    const auto same = [&](const auto& tensor, std::size_t at) { return version_of(recorder, tensor) == versions[at]; };
    for (std::size_t k = 0; k < in; ++k) {
      require(!operand[k] || same(step.operands.in[k], k), "operand " + std::to_string(k));
    }
    for (std::size_t k = 0; k < indices; ++k) {
      require(!index[k] || same(step.operands.indices[k], in + k), "index operand " + std::to_string(k));
    }
    for (std::size_t k = 0; k < step.results.size(); ++k) {
      require(same(step.results[k], in + indices + k),
              step.results.size() == 1 ? "the result" : "result " + std::to_string(k));
    }
  }

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
  static void require_shape(const Tensor& gradient, const Tensor& like, const char* what) {
    if (gradient.rows() == like.rows() && gradient.width() == like.width()) return;
    const auto shape = [](const Tensor& of) { return std::to_string(of.rows()) + " x " + std::to_string(of.width()); };
    throw MisuseError(std::string("Tape: ") + what + " is " + shape(gradient) + "; expected " + shape(like));
  }
  /// Whether a gradient must pass to an operand.
  bool depends_on(const std::vector<Tensor>& operands, std::string_view what) {
    bool depends = false;
    for (const Tensor& tensor : operands) {
      const Value* const value = find(tensor);
      if (value == nullptr) continue;
      depends = true;
      require_no_view(*value, tensor, what);
    }
    return depends;
  }
  static void require_no_view(const Value& value, const Tensor& tensor, std::string_view what) {
    if (value.tensor.same_view(tensor)) return;
    throw MisuseError("Tape: " + std::string(what) +
                      " of a view of a tensor that has a gradient; expected the tensor, or an operator such as slice");
  }
  void note_uses(const std::vector<Tensor>& operands) {
    for (const Tensor& tensor : operands) {
      if (find(tensor) == nullptr) used_.insert(tensor.buffer());
    }
  }
  /// The value behind a result from which gradients go back; null if it depends on no watched tensor.
  Value* find_result(const Tensor& result, std::string_view what) {
    Value* const value = find(result);
    if (value != nullptr) require_no_view(*value, result, what);
    return value;
  }
  Value* find(const Tensor& tensor) {
    const auto found = values_.find(tensor.buffer().get());
    return found == values_.end() ? nullptr : &found->second;
  }
  const Value* find(const Tensor& tensor) const { return const_cast<Impl*>(this)->find(tensor); }
  void add(const Tensor& tensor) { values_.emplace(tensor.buffer().get(), Value{tensor}); }

  /// Called before any push, because a step on a path may have no gradient.
  void find_terms(const std::vector<Tensor>& from) {
    std::unordered_map<const Buffer*, bool> on_path;  // false: noted functions may give it a gradient, or none
    for (const Tensor& result : from) on_path[result.buffer().get()] = true;
    for (std::size_t i = steps_.size(); i-- > 0;) {
      TapeEntry& step = steps_[i];
      const auto is_on_path = [&](const Tensor& tensor) { return on_path.contains(tensor.buffer().get()); };
      if (std::ranges::none_of(step.results, is_on_path)) continue;
      const bool certain = step.op != nullptr && on_path[step.results.front().buffer().get()];
      if (step.op != nullptr) {
        if (!certain && step.op->gradients == nullptr) continue;
        step.terms = terms_of(step);
      }
      require_unchanged(step);
      for (std::size_t k = 0; k < step.operands.in.size(); ++k) {
        const Tensor& operand = step.operands.in[k];
        const bool passes = step.op == nullptr || (k < step.terms.size() && step.terms[k]);
        if (passes && find(operand) != nullptr) on_path[operand.buffer().get()] |= certain;
      }
    }
  }
  static void require_gradient(const Operator& op) {
    if (op.gradients == nullptr)
      throw MisuseError("Tape: operator " + std::string(op.name.text()) + " has no gradient");
  }
  static GradientTerms terms_of(const TapeEntry& step) {
    require_gradient(*step.op);
    return step.op->gradients(signature_of(step.operands));
  }

  /// If a noted function throws, all gradients are dropped, because some would be incomplete.
  void go_back(std::source_location pushed_at) {
    try {
      go_through_steps(pushed_at);
    } catch (...) {
      steps_.clear();
      for (auto& [buffer, value] : values_) value.gradient.reset();
      throw;
    }
  }

  void go_through_steps(std::source_location pushed_at) {
    for (; !steps_.empty(); steps_.pop_back()) {
      const TapeEntry& step = steps_.back();
      Gradients of_results;
      for (const Tensor& result : step.results) of_results.push_back(find(result)->gradient);
      if (std::ranges::any_of(of_results, [](const auto& gradient) { return gradient.has_value(); })) {
        step.op != nullptr ? differentiate(step, *of_results.front(), pushed_at)
                           : differentiate_noted(step, of_results, pushed_at);
      }
      for (const Tensor& result : step.results) {
        if (!find(result)->watched) values_.erase(result.buffer().get());
      }
    }
  }

  void differentiate_noted(const TapeEntry& step, const Gradients& of_results, std::source_location pushed_at) {
    const std::vector<Tensor>& operands = step.operands.in;
    std::vector<bool> wanted;
    for (const Tensor& operand : operands) wanted.push_back(find(operand) != nullptr);
    const Gradients gradients = step.backward(of_results, wanted, pushed_at);
    if (gradients.size() != operands.size()) {
      throw MisuseError("Tape: a noted function returned " + std::to_string(gradients.size()) + " gradients for " +
                        std::to_string(operands.size()) + " operands; expected one for each");
    }
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (!wanted[k] || !gradients[k]) continue;
      require_shape(*gradients[k], operands[k], "the gradient that a noted function returned");
      add(*find(operands[k]), op::concat, {.in = {*gradients[k]}}, pushed_at);  // a copy, since it may be written again
    }
  }
  /// Adds a gradient that the operator computes.
  void add(Value& to, const Operator& op, Operands operands, std::source_location pushed_at) const {
    if (to.gradient && !to.shared) {
      operands.write = Write::add;
      return apply_into(op, operands, *to.gradient, pushed_at);
    }
    const Tensor made = apply_new(op, operands, pushed_at);
    to.gradient = to.gradient ? apply_new(op::add, {.in = {*to.gradient, made}}, pushed_at) : made;
    to.shared = false;
  }
  /// Adds a gradient that is there.
  void add_given(Value& to, const Tensor& gradient, std::source_location pushed_at) const {
    to.shared = !to.gradient;
    to.gradient = to.gradient ? apply_new(op::add, {.in = {*to.gradient, gradient}}, pushed_at) : gradient;
  }

  void differentiate(const TapeEntry& step, const Tensor& gradient, std::source_location pushed_at) {
    require_gradient(*step.op);
    for (std::size_t k = 0; k < step.terms.size(); ++k) {
      Value* const operand = find(step.operands.in[k]);
      if (operand != nullptr && step.terms[k]) add_term(*operand, *step.terms[k], step, gradient, pushed_at);
    }
  }

  void add_term(Value& to, const GradientTerm& term, const TapeEntry& step, const Tensor& gradient,
                std::source_location pushed_at) const {
    const auto named = [&](const Ref& ref) {
      if (ref.of == Ref::Of::operand) return step.operands.in[ref.number];
      return ref.of == Ref::Of::result ? step.results.front() : gradient;
    };
    if (term.op == nullptr) return add_given(to, named(term.in.front()), pushed_at);
    Operands operands{.attributes = term.attributes};
    for (const Ref& ref : term.in) operands.in.push_back(named(ref));
    for (const std::size_t index : term.indices) operands.indices.push_back(step.operands.indices[index]);
    add(to, *term.op, std::move(operands), pushed_at);
  }

  const Device device_;
  const Apply apply_;
  std::unordered_map<const Buffer*, Value> values_;  // by the buffer, which the value holds
  /// Buffers of operands that depend on nothing that was watched by then. They may end.
  std::set<std::weak_ptr<Buffer>, std::owner_less<>> used_;
  std::vector<TapeEntry> steps_;
  bool over_ = false;
};

Tape::Tape(const Device& device, Apply apply) : impl_(std::make_unique<Impl>(device, std::move(apply))) {}
Tape::~Tape() = default;

void Tape::watch(const Tensor& tensor) { impl_->watch(tensor); }
Tensor Tape::apply(const Operator& op, const Operands& operands, std::source_location pushed_at) {
  return impl_->apply(op, operands, pushed_at);
}
void Tape::note(const std::vector<Tensor>& operands, const std::vector<Tensor>& results, Backward backward) {
  impl_->note(operands, results, std::move(backward));
}
void Tape::backward(const Tensor& loss, std::source_location pushed_at) { impl_->backward(loss, pushed_at); }
void Tape::backward_from(const std::vector<Tensor>& results, const Gradients& of_results,
                         std::source_location pushed_at) {
  impl_->backward_from(results, of_results, pushed_at);
}
std::optional<Tensor> Tape::gradient(const Tensor& tensor) const { return impl_->gradient(tensor); }

}  // namespace windrow
