// Losses of an interpreted minibatch: they are copied to the host and checked there. The search for the cause of one
// that is not finite computes the forward pass again, on the host.
#include <algorithm>

#include "host/host_execution.h"
#include "interpret/interpretation.h"

namespace windrow {

/// A check while it runs: each of its ops fills one member, and the next op reads it.
struct Interpretation::Check {
  std::function<void(Lane*)> download;
  std::function<std::optional<BadLoss>()> find;
  bool note = false;  ///< in the end of the minibatch, instead of a failure
  std::optional<BadLoss> bad = {};
  std::vector<std::vector<float>> tensors = {};  ///< if there is a bad loss
};

/// Pushes four ops: two copies on the lane, and a host op behind each. `refuses` are the accesses of the last one,
/// which fails if there is a bad loss.
void Interpretation::push_check(const std::shared_ptr<Check>& check, std::vector<Access> reads,
                                std::vector<Access> refuses, std::source_location from) {
  const Var copied = add_tag(), checked = add_tag(), staged = add_tag();
  Engine& engine = *device_.engine;
  const PushOptions on_lane{.name = "losses", .lane = device_.lane, .pushed_at = from};
  const PushOptions on_host{.name = "loss", .pushed_at = from};
  std::vector<Access> accesses = reads;
  accesses.push_back(overwrite(copied));
  engine.push([self = self(), check](OpContext& op) { check->download(op.lane()); }, accesses, on_lane);
  engine.push([self = self(), check] { check->bad = check->find(); }, {read(copied), overwrite(checked)}, on_host);
  accesses = std::move(reads);
  accesses.push_back(read(checked));
  accesses.push_back(overwrite(staged));
  const std::vector<Var> inputs_of_pass = inputs();
  for (Var var : inputs_of_pass) accesses.push_back(read(var));
  engine.push(
      [self = self(), check, inputs_of_pass](OpContext& op) {
        if (!check->bad) return;
        for (const Tensor& tensor : self->tensors_) {
          const bool read = std::ranges::find(inputs_of_pass, tensor.var()) != inputs_of_pass.end();
          std::vector<float>& values = check->tensors.emplace_back();
          if (!read) continue;
          values.resize(static_cast<std::size_t>(tensor.rows() * tensor.width()));
          tensor.view().download(op.lane(), values.data());
        }
      },
      accesses, on_lane);
  refuses.push_back(read(staged));
  engine.push(
      [self = self(), check] {
        if (check->bad) self->refuse(check->bad->what + self->culprit(*check), check->note);
      },
      refuses, on_host);
}

void Interpretation::push_losses(const Pushing& pushing) {
  // By type, and by loss of the type.
  const auto values = std::make_shared<std::vector<std::vector<std::vector<float>>>>(plan_->types.size());
  const auto check = std::make_shared<Check>();
  check->note = options_.keeps_not_finite;
  // The ops hold the minibatch; the check must not, since it is shared by them and would outlive it in a cycle.
  check->download = [this, values](Lane* lane) {
    for (std::size_t t = 0; t < plan_->types.size(); ++t) {
      const Index rows = layout_.types[t].rows;
      for (std::size_t i = 0; rows > 0 && i < plan_->types[t].losses.size(); ++i) {
        std::vector<float>& to = (*values)[t].emplace_back(static_cast<std::size_t>(rows));
        const Matrix<const float> from = operand(plan_->types[t].losses[i], {t, Rate::vertices, {0, rows}, lane});
        device_.memory->download(lane, reinterpret_cast<std::byte*>(to.data()),
                                 reinterpret_cast<const std::byte*>(from.data),
                                 {static_cast<std::size_t>(rows), sizeof(float), sizeof(float),
                                  static_cast<std::size_t>(from.stride) * sizeof(float)});
      }
    }
  };
  check->find = [this, values] {
    return add_up_losses([&](std::size_t type, const Place& place) {
      const auto number = static_cast<std::size_t>(&place - plan_->types[type].losses.data());
      return Matrix<const float>{(*values)[type][number].data(), layout_.types[type].rows, 1, 1};
    });
  };
  push_check(check, {read(memory())}, {mutate(memory()), mutate(end_->over.var())}, pushing.from);
  pushing.stats.ops += 4;
}

void Interpretation::check_losses(LossCheck losses, std::source_location from) {
  const auto values = std::make_shared<std::vector<float>>();
  const auto about = std::make_shared<const LossCheck>(std::move(losses));
  const auto check = std::make_shared<Check>();
  check->note = about->skips;
  check->download = [about, values](Lane* lane) {
    values->resize(static_cast<std::size_t>(about->values.rows() * about->values.width()));
    about->values.view().download(lane, values->data());
  };
  check->find = [this, about, values] {
    return find_bad(*about, {values->data(), about->values.rows(), about->values.width(), about->values.width()});
  };
  std::vector<Access> refuses = {mutate(memory())};
  for (Var var : about->poisoned) refuses.push_back(mutate(var));
  if (about->skips) refuses.push_back(mutate(end_->over.var()));
  push_check(check, {read(about->values.var())}, std::move(refuses), from);
}

/// Computes the forward pass on the host, from the same parameters and inputs, and looks at its values.
std::string Interpretation::culprit(const Check& check) const {
  const Device host = host_device(*device_.engine);
  std::shared_ptr<const HostPlan> lowered;
  try {
    lowered = std::make_shared<HostPlan>(lower(*plan_, host.kernels));
  } catch (const MisuseError&) {
    return "an operator without a kernel on the host hides the cause";
  }
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::vector<float>& values = check.tensors[i];
    const Tensor& made =
        tensors.emplace_back(Tensor(host, values.empty() ? 0 : tensors_[i].rows(), tensors_[i].width()));
    if (!values.empty()) made.view().upload(nullptr, values.data());
  }
  Options options = options_;
  options.layouts = nullptr;
  options.clock = nullptr;
  const auto again = std::make_shared<HostExecution>(host, plan_, std::move(lowered), layout_, std::move(tensors),
                                                     std::vector<char>(tensors_.size(), 1), std::move(options));
  again->take_memory();
  return again->culprit(*check.bad);
}

}  // namespace windrow
