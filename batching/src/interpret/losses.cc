// Losses of an interpreted minibatch: they are copied to the host and checked there. The search for the cause of one
// that is not finite computes the forward pass again, on the host.
#include <algorithm>
#include <future>

#include "host/host_execution.h"
#include "windrow/batching/backend/interpretation.h"

namespace windrow {

/// What the ops of a check share. Launches of a captured check use it one after the other.
struct Interpretation::Check {
  Check(const Device& device, Index count)
      : values(device.engine, device.memory->staging(), static_cast<std::size_t>(count) * sizeof(float), "losses") {}

  /// The losses, in memory that the device copies to without making the host wait.
  Buffer values;
  std::function<void(Lane*, float* to)> download;  ///< issues the copies
  std::function<std::optional<BadLoss>(const float* values)> find;
  Var found;                        ///< stands for `bad`
  bool note = false;                ///< in the end of the minibatch, instead of a failure
  std::optional<BadLoss> bad = {};  ///< what `find` has found
  /// The tensors that the forward pass reads, and their values on the host if there is a bad loss.
  struct Input {
    std::size_t number;
    Tensor tensor;
    std::vector<float> values = {};
  };
  std::vector<Input> inputs = {};
};

/// Blocks until the lane has done what was issued on it: only where a minibatch has failed.
static void wait_for(Lane& lane) {
  const auto done = std::make_shared<std::promise<void>>();  // the callback may return after the wait
  lane.when_reached(lane.record(), [done](const std::exception_ptr& failure) {
    failure == nullptr ? done->set_value() : done->set_exception(failure);
  });
  done->get_future().get();
}

/// Copies the losses to the host, where an op looks at them. Nothing else waits for that until push_verdict().
void Interpretation::push_download(const std::shared_ptr<Check>& check, std::vector<Access> reads,
                                   std::source_location from) {
  const Var copied = check->values.var();
  check->found = add_tag();
  reads.push_back(overwrite(copied));
  const Bytes values = check->values.bytes();
  device_.engine->push(
      [self = self(), check, values](OpContext& op) {
        check->download(op.lane(), reinterpret_cast<float*>(values.write_unwatched(op.lane())));
      },
      reads, {.name = "losses", .lane = device_.lane, .pushed_at = from});
  device_.engine->push(
      [self = self(), check, values] { check->bad = check->find(reinterpret_cast<const float*>(values.read())); },
      {read(copied), overwrite(check->found)}, {.name = "losses", .pushed_at = from});
}

/// `refuses` are the accesses of an op that fails if there is a bad loss. It is an op of a lane of the device: so it
/// waits for the host's look at the losses, but not for what the device computes meanwhile.
void Interpretation::push_verdict(const std::shared_ptr<Check>& check, std::vector<Access> refuses, LaneId lane,
                                  std::source_location from) {
  refuses.push_back(read(check->found));
  for (const std::size_t number : numbers_of_inputs()) {
    check->inputs.push_back({number, tensors_[number]});
    refuses.push_back(read(tensors_[number].var()));
  }
  device_.engine->push(
      [self = self(), check](OpContext& op) {
        if (!check->bad) return;
        for (Check::Input& input : check->inputs) {
          input.values.resize(static_cast<std::size_t>(input.tensor.rows() * input.tensor.width()));
          input.tensor.view().download(op.lane(), input.values.data());
        }
        if (op.lane() != nullptr) wait_for(*op.lane());
        self->refuse(check->bad->what + self->culprit(*check), check->note);
      },
      refuses, {.name = "loss", .lane = lane, .pushed_at = from});
}

/// Returns null if there are no losses.
std::shared_ptr<Interpretation::Check> Interpretation::push_losses(const Pushing& pushing) {
  const auto has_losses = [](const TypePlan& type) { return !type.losses.empty(); };
  if (std::ranges::none_of(plan_->types, has_losses)) return nullptr;
  // First what holds the losses in arenas, and then those that are inputs.
  struct Column {
    std::size_t type;
    const Place* place;
    Index begin;
  };
  std::vector<Column> inputs;
  Index count = losses_;
  for (std::size_t t = 0; t < plan_->types.size(); ++t) {
    for (const Place& place : plan_->types[t].losses) {
      if (layout_.types[t].rows == 0 || place.in == Place::In::arena) continue;
      inputs.push_back({t, &place, count});
      count += layout_.types[t].rows;
    }
  }
  const auto check = std::make_shared<Check>(device_, count);
  check->note = options_.keeps_not_finite;
  // `this` suffices: each op that uses the check also holds the minibatch.
  check->download = [this, inputs](Lane* lane, float* to) {
    const auto copy = [&](float* first, const float* from, const CopyShape& shape) {
      device_.memory->download(lane, reinterpret_cast<std::byte*>(first), reinterpret_cast<const std::byte*>(from),
                               shape);
    };
    if (losses_ > 0) copy(to, data_, CopyShape::contiguous(static_cast<std::size_t>(losses_) * sizeof(float)));
    for (const auto& [type, place, begin] : inputs) {
      const Index rows = layout_.types[type].rows;
      const Matrix<const float> from = operand(*place, {type, Rate::vertices, {0, rows}, lane});
      copy(to + begin, from.data,
           {static_cast<std::size_t>(rows), sizeof(float), sizeof(float),
            static_cast<std::size_t>(from.stride) * sizeof(float)});
    }
  };
  check->find = [this, inputs](const float* values) {
    return add_up_losses([&](std::size_t type, const Place& loss) {
      const Index rows = layout_.types[type].rows;
      for (const auto& [of, place, begin] : inputs) {
        if (place == &loss) return Matrix<const float>{values + begin, rows, 1, 1};
      }
      const TypePlan& plan = plan_->types[type];
      const Index begin = offsets_[plan.first_region + loss.number] + loss.column;
      return Matrix<const float>{values + begin, rows, 1, plan.regions[loss.number].stride};
    });
  };
  push_download(check, {read(memory())}, pushing.from);
  pushing.stats.ops += 2;
  return check;
}

void Interpretation::push_end(const Pushing& pushing, const std::shared_ptr<Check>& check) {
  // `mutate`, so a failure of the minibatch reaches its end.
  const std::vector<Access> ends = {mutate(memory()), mutate(end_->over.var())};
  if (check == nullptr) return push(pushing, "loss", ends, [self = self()](Lane*) {});
  push_verdict(check, ends, device_.lane, pushing.from);
  ++pushing.stats.ops;
}

/// Without a backward pass behind it. Whoever waits for the loss or an output does not wait for work of later
/// minibatches, which the device's own lane may have when the host has looked at the losses: see collect().
void Interpretation::push_end_of_forward(const Pushing& pushing, const std::shared_ptr<Check>& check) {
  if (check == nullptr) return push_end(pushing, check);
  verdict_ = add_tag();
  push_verdict(check, {read(memory()), overwrite(verdict_), mutate(end_->over.var())}, verdict_lane(), pushing.from);
  ++pushing.stats.ops;
}

void Interpretation::check_losses(LossCheck losses, std::source_location from) {
  const auto about = std::make_shared<const LossCheck>(std::move(losses));
  const auto check = std::make_shared<Check>(device_, about->values.rows() * about->values.width());
  check->note = about->skips;
  check->download = [about](Lane* lane, float* to) { about->values.view().download(lane, to); };
  check->find = [this, about](const float* values) {
    return find_bad(*about, {values, about->values.rows(), about->values.width(), about->values.width()});
  };
  std::vector<Access> refuses = {mutate(memory())};
  for (Var var : about->poisoned) refuses.push_back(mutate(var));
  if (about->skips) refuses.push_back(mutate(end_->over.var()));
  push_download(check, {read(about->values.var())}, from);
  push_verdict(check, std::move(refuses), device_.lane, from);
}

/// Computes the forward pass on the host, from the same parameters and inputs, and looks at its values.
std::string Interpretation::culprit(const Check& check) const {
  try {
    const Device host = host_device(*device_.engine);
    auto lowered = std::make_shared<const HostPlan>(lower(*plan_, host.kernels));
    std::vector<Tensor> tensors;
    for (const TensorSpec& spec : plan_->tensors) tensors.push_back(Tensor(host, 0, spec.width));
    for (const Check::Input& input : check.inputs) {
      tensors[input.number] = Tensor(host, input.tensor.rows(), input.tensor.width());
      tensors[input.number].view().upload(nullptr, input.values.data());
    }
    Options options = options_;
    options.layouts = nullptr;
    options.clock = nullptr;
    const auto again = std::make_shared<HostExecution>(host, plan_, std::move(lowered), layout_, std::move(tensors),
                                                       std::vector<char>(plan_->tensors.size(), 1), std::move(options));
    again->take_memory();
    return again->culprit(*check.bad);
  } catch (const std::exception& error) {
    return std::string("the search for its cause failed: ") + error.what();
  }
}

}  // namespace windrow
