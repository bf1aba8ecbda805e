#include "windrow/ops/static_block.h"

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

}  // namespace

class StaticBlock::Impl {
 public:
  Impl(const Device& device, std::vector<Tensor> weights, Body body, const StaticOptions& options)
      : device_(device), weights_(std::move(weights)), body_(std::move(body)), options_(options) {
    if (!body_) throw MisuseError("StaticBlock: no body; expected a function");
    std::unordered_set<const Buffer*> seen;
    for (const Tensor& tensor : weights_) {
      if (seen.insert(tensor.buffer().get()).second) continue;
      throw MisuseError("StaticBlock: a tensor is listed twice among the weights; expected each of them once");
    }
    options_.reads = weights_;
    forward_ = std::make_unique<Static>(
        device_,
        [this](const StaticInputs& inputs) {
          Tape unused(device_);
          return body_(unused, inputs);
        },
        options_);
  }

  /// The next call overwrites the recording's results, so they are copied.
  std::vector<Tensor> call(const StaticInputs& inputs, std::source_location from) {
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
                                const std::vector<bool>& operands, std::source_location from) {
    const Wanted wanted{present(of_results), operands};
    auto& pass = backward_[wanted];
    if (pass == nullptr) {
      const auto body = [this, wanted](const StaticInputs& given) { return gradients(given, wanted); };
      pass = std::make_unique<Static>(device_, body, options_);
    }
    last_ = pass.get();
    StaticInputs given = inputs;
    for (const auto& gradient : of_results) {
      if (gradient) given.in.push_back(*gradient);
    }
    Tape::Gradients result(operands.size());
    std::size_t next = 0;
    const std::vector<Tensor>& made = (*pass)(given, from);
    for (std::size_t k = 0; k < operands.size(); ++k) {
      if (operands[k] && made[next++].rows() > 0) result[k] = made[next - 1];
    }
    return result;
  }

  StaticStats forward() const { return forward_->stats(); }
  StaticStats backward() const {
    StaticStats all = last_ != nullptr ? last_->stats() : StaticStats();
    for (const auto& [wanted, pass] : backward_) {
      if (pass.get() == last_) continue;
      const StaticStats one = pass->stats();
      all.recorded += one.recorded;
      all.replayed += one.replayed;
      all.dropped += one.dropped;
      all.kept += one.kept;
    }
    return all;
  }

 private:
  /// The body of a backward pass: `given` has the inputs of the call, and then the gradients of results. Returns the
  /// wanted gradients in the order of the operands; without rows where there is none.
  std::vector<Tensor> gradients(const StaticInputs& given, const Wanted& wanted) {
    const std::size_t inputs = wanted.operands.size() - weights_.size();
    StaticInputs of = given;
    of.in.erase(of.in.begin() + static_cast<std::ptrdiff_t>(inputs), of.in.end());
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
    tape.backward_from(results, of_results);
    std::vector<Tensor> made;
    std::unordered_set<const Buffer*> seen;  // in another body, operands may be one tensor, which has one gradient
    for (std::size_t k = 0; k < all.size(); ++k) {
      if (!wanted.operands[k]) continue;
      const bool first = seen.insert(all[k].buffer().get()).second;
      const std::optional<Tensor> gradient = first ? tape.gradient(all[k]) : std::nullopt;
      made.push_back(gradient ? *gradient : Tensor(device_, 0, all[k].width(), "no gradient"));
    }
    return made;
  }

  const Device device_;
  const std::vector<Tensor> weights_;
  const Body body_;
  StaticOptions options_;
  std::unique_ptr<Static> forward_;
  std::map<Wanted, std::unique_ptr<Static>> backward_;
  const Static* last_ = nullptr;  // of the backward passes
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
