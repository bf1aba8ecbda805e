#include "windrow/ops/static_block.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "windrow/ops/apply.h"

namespace windrow {
namespace {

/// Which results have gradients, and which operands need theirs.
struct Wanted {
  std::vector<bool> results, operands;
  friend auto operator<=>(const Wanted&, const Wanted&) = default;
};

std::vector<bool> present(const Tape::Gradients& gradients) {
  std::vector<bool> result;
  for (const auto& gradient : gradients) result.push_back(gradient.has_value());
  return result;
}

/// Stands for a missing gradient of an operand: a tensor of a shape that no gradient of it has.
Tensor no_gradient(const Device& device, const Tensor& operand) {
  return {device, 0, operand.width() + 1, "no gradient"};
}
bool is_gradient(const Tensor& made, const Tensor& operand) { return made.width() == operand.width(); }

}  // namespace

class StaticBlock::Impl {
 public:
  Impl(const Device& device, std::vector<Tensor> weights, Body body, const StaticOptions& options)
      : device_(device), weights_(std::move(weights)), body_(std::move(body)) {
    if (!body_) throw MisuseError("StaticBlock: no body; expected a function");
    for (std::size_t k = 0; k < weights_.size(); ++k) {
      const auto is_same = [&](const Tensor& other) { return other.same_view(weights_[k]); };
      if (std::count_if(weights_.begin(), weights_.end(), is_same) == 1) continue;
      throw MisuseError("StaticBlock: a tensor is listed twice among the weights; expected each of them once");
    }
    StaticOptions closed = options;
    closed.reads = weights_;
    const auto compute = [this](const StaticInputs& inputs) {
      Tape unused(device_);
      const std::vector<Tensor> results = body_(unused, inputs);
      for (const Tensor& result : results) {
        if (result.whole()) continue;
        throw MisuseError(
            "StaticBlock: the body returns a part of a tensor; expected the tensor, or an operator such as slice");
      }
      return results;
    };
    forward_ = std::make_unique<Static>(device_, compute, closed);
    closed.most_recordings *= backward_recordings;
    most_numbers_ = 8 * closed.most_recordings;
    const auto differentiate = [this](const StaticInputs& given) { return gradients(given); };
    backward_ = std::make_unique<Static>(device_, differentiate, closed);
  }

  /// The next call overwrites the recording's results, so they are copied.
  std::vector<Tensor> call(const StaticInputs& inputs, std::source_location from) {
    backward_->heal(from);
    std::vector<Tensor> results;
    for (const Tensor& result : (*forward_)(inputs, from)) {
      results.push_back(apply(device_, op::concat, {.in = {result}}, from));
    }
    return results;
  }

  std::vector<Tensor> operands(const StaticInputs& inputs) const {
    std::vector<Tensor> all = inputs.in;
    all.insert(all.end(), weights_.begin(), weights_.end());
    return all;
  }

  Tape::Gradients differentiate(const StaticInputs& inputs, const Tape::Gradients& of_results,
                                const std::vector<bool>& wanted, std::source_location from) {
    wanted_ = {present(of_results), wanted};
    key_ = inputs.key;
    from_ = from;
    StaticInputs given = inputs;
    given.key = number();
    for (const auto& gradient : of_results) {
      if (gradient) given.in.push_back(*gradient);
    }
    const std::vector<Tensor>& made = (*backward_)(given, from);
    const std::vector<Tensor> all = operands(inputs);
    Tape::Gradients result(all.size());
    for (std::size_t k = 0, next = 0; k < all.size(); ++k) {
      if (!wanted[k]) continue;
      if (is_gradient(made[next], all[k])) result[k] = made[next];
      ++next;
    }
    return result;
  }

  StaticStats forward() const { return forward_->stats(); }
  StaticStats backward() const { return backward_->stats(); }

 private:
  static constexpr std::size_t backward_recordings = 4;  // for each forward one

  /// A key for the caller's key and the wanted gradients. Numbers are not used again, so recordings of forgotten keys
  /// are dropped in time.
  std::uint64_t number() {
    if (numbers_.size() > most_numbers_) numbers_.clear();
    const auto [found, is_new] = numbers_.emplace(std::pair(key_, wanted_), next_number_);
    if (is_new) ++next_number_;
    return found->second;
  }

  /// The body of the backward pass: `given` has the inputs of the call, and then the gradients of results. Returns the
  /// wanted gradients in the order of the operands.
  std::vector<Tensor> gradients(const StaticInputs& given) {
    const Wanted wanted = wanted_;
    const std::size_t inputs = wanted.operands.size() - weights_.size();
    StaticInputs of = given;
    of.key = key_;
    of.in.erase(of.in.begin() + static_cast<std::ptrdiff_t>(inputs), of.in.end());
    for (std::size_t k = 0; k < inputs; ++k) {  // in another body, an input may be a part of a tensor
      if (!of.in[k].whole()) of.in[k] = apply(device_, op::concat, {.in = {of.in[k]}}, from_);
    }
    const std::vector<Tensor> all = operands(of);
    Tape tape(device_);
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (wanted.operands[k]) tape.watch(all[k]);
    }
    const std::vector<Tensor> results = body_(tape, of);
    if (results.size() != wanted.results.size()) {
      throw MisuseError("StaticBlock: the body returned " + std::to_string(results.size()) +
                        " tensors for the backward pass, and " + std::to_string(wanted.results.size()) +
                        " before; expected the same program each time");
    }
    Tape::Gradients of_results(results.size());
    for (std::size_t k = 0, next = inputs; k < results.size(); ++k) {
      if (wanted.results[k]) of_results[k] = given.in[next++];
    }
    tape.backward_from(results, of_results, from_);
    std::vector<Tensor> made;
    std::unordered_set<const Buffer*> seen;  // in another body, operands may be one tensor, which has one gradient
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (!wanted.operands[k]) continue;
      const bool first = seen.insert(all[k].buffer().get()).second;
      const std::optional<Tensor> gradient = first ? tape.gradient(all[k]) : std::nullopt;
      made.push_back(gradient ? *gradient : no_gradient(device_, all[k]));
    }
    return made;
  }

  const Device device_;
  const std::vector<Tensor> weights_;
  const Body body_;
  std::unique_ptr<Static> forward_, backward_;
  std::map<std::pair<std::uint64_t, Wanted>, std::uint64_t> numbers_;
  std::size_t most_numbers_ = 0;
  std::uint64_t next_number_ = 0;
  // Of the call of backward_ that is being made:
  Wanted wanted_;
  std::uint64_t key_ = 0;
  std::source_location from_;
};

StaticBlock::StaticBlock(const Device& device, std::vector<Tensor> weights, Body body, const StaticOptions& options)
    : impl_(std::make_shared<Impl>(device, std::move(weights), std::move(body), options)) {}

std::vector<Tensor> StaticBlock::operator()(Tape& tape, const StaticInputs& inputs, std::source_location from) {
  std::vector<Tensor> results = impl_->call(inputs, from);
  tape.note(impl_->operands(inputs), results,
            [impl = impl_, inputs](const Tape::Gradients& of_results, const std::vector<bool>& wanted,
                                   std::source_location pushed_at) {
              return impl->differentiate(inputs, of_results, wanted, pushed_at);
            });
  return results;
}

StaticStats StaticBlock::forward() const { return impl_->forward(); }
StaticStats StaticBlock::backward() const { return impl_->backward(); }

}  // namespace windrow
