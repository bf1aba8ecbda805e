#include "execute/losses.h"

#include <algorithm>
#include <cmath>
#include <future>

#include "execute/post_mortem.h"
#include "run/origins.h"
#include "windrow/batching/runner.h"
#include "windrow/ops/internal/number.h"

namespace windrow {

std::optional<Losses::Bad> Losses::add_up(const ValuesOf& values_of) {
  double sum = 0;
  std::optional<Bad> bad;
  for (std::size_t t = 0; t < of_.plan_->types.size(); ++t) {
    if (of_.layout_.types[t].rows == 0) continue;
    for (const Place& place : of_.plan_->types[t].losses) {
      const Matrix<const float> values = values_of(t, place);
      for (Index r = 0; r < values.rows; ++r) {
        const float value = *values.row(r);
        sum += value;
        if (std::isfinite(value) || bad) continue;
        bad = {{t, r},
               of_.name() + ": the loss of " + of_.name_of(VertexRow{t, r}) + " is " + shortest_text(value) +
                   ", expected a finite number; "};
      }
    }
  }
  of_.end_->loss = sum;
  return bad;
}

/// The first of these losses that is not finite.
std::optional<Losses::Bad> Losses::find_bad(const LossCheck& check, Matrix<const float> values) const {
  for (const LossCheck::Loss& loss : check.losses) {
    const float value = *values.row(loss.row);
    if (std::isfinite(value)) continue;
    const std::string what =
        "the loss recorded at " + line_of(loss.from) + " is " + shortest_text(value) + ", expected a finite number; ";
    for (std::size_t t = 0; t < of_.layout_.types.size(); ++t) {
      const auto& vertices = of_.layout_.types[t].vertex;
      const auto found = std::find(vertices.begin(), vertices.end(), loss.vertex);
      if (found != vertices.end()) return Bad{{t, found - vertices.begin()}, what, check.output};
    }
    throw NotFiniteError(what + "its vertex is not known");
  }
  return std::nullopt;
}

void Losses::refuse(const std::string& text, bool note) const {
  if (!note) throw NotFiniteError(text);
  of_.end_->not_finite = text;
}

void Losses::finish() {
  const auto bad = add_up([&](std::size_t type, const Place& place) {
    return of_.operand(place, of_.all_rows(type, Rate::vertices, nullptr));
  });
  if (bad) refuse(bad->what + culprit(*bad), of_.options_.keeps_not_finite);
}

std::string Losses::culprit(const Bad& bad) const {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < of_.tensors_.size(); ++i) {
    // Given gradients may be set meanwhile by the thread that pushes the backward pass.
    const TensorSpec& spec = of_.plan_->tensors[i];
    const bool set_later =
        spec.is == TensorSpec::Is::given && spec.number >= of_.plan_->program.function->tensors.size();
    tensors.push_back(set_later ? Tensor(of_.device_, 0, spec.width) : of_.tensors_[i]);
  }
  return culprit(bad, of_.device_, of_.plan_, std::move(tensors));
}

/// Steps may have overwritten each other's results, and the backward pass may be running. So the forward pass is
/// computed again on the host, in separate memory.
std::string Losses::culprit(const Bad& bad, const Device& host, std::shared_ptr<const Plan> plan,
                            std::vector<Tensor> tensors) const {
  Execution::Options options = of_.options_;
  options.layouts = nullptr;
  options.clock = nullptr;
  Layout layout = of_.layout_;
  layout.memory = nullptr;
  const auto again = std::make_shared<Execution>(host, std::move(plan), std::move(layout), std::move(tensors),
                                                 std::move(options), Execution::Ops::side_by_side, of_.needed_);
  again->take_memory(nullptr);
  return PostMortem(*again).culprit(bad.vertex, bad.output);
}

// --- In order

/// State that the ops of a check share. Launches of a captured check use it one after the other.
struct Losses::Check {
  Check(const Device& device, Index count)
      : values(device.engine, device.memory->staging(), static_cast<std::size_t>(count) * sizeof(float), "losses") {}

  /// The losses, in memory that the device copies to without making the host wait.
  Buffer values;
  std::function<void(Lane*, float* to)> download;  ///< issues the copies
  std::function<std::optional<Bad>(const float* values)> find;
  Var found;                    ///< stands for `bad`
  bool note = false;            ///< note a bad loss in the end of the minibatch instead of failing
  std::optional<Bad> bad = {};  ///< the result of `find`
  /// The tensors that the forward pass reads, and their values on the host if there is a bad loss.
  struct Input {
    std::size_t number;
    Tensor tensor;
    std::vector<float> values = {};
  };
  std::vector<Input> inputs = {};
};

/// Blocks until the lane has finished all issued work. Used only after a minibatch has failed.
static void wait_for(Lane& lane) {
  const auto done = std::make_shared<std::promise<void>>();  // the callback may return after the wait
  lane.when_reached(lane.record(), [done](const std::exception_ptr& failure) {
    failure == nullptr ? done->set_value() : done->set_exception(failure);
  });
  done->get_future().get();
}

void Losses::push_download(const std::shared_ptr<Check>& check, std::vector<Access> reads, std::source_location from) {
  const Var copied = check->values.var();
  check->found = of_.add_op_var();
  reads.push_back(overwrite(copied));
  const Bytes values = check->values.bytes();
  of_.device_.engine->push(
      [self = of_.self(), check, values](OpContext& op) {
        check->download(op.lane(), reinterpret_cast<float*>(values.write_unwatched(op.lane())));
      },
      reads, {.name = "losses", .lane = of_.device_.lane, .pushed_at = from});
  of_.device_.engine->push(
      [self = of_.self(), check, values] { check->bad = check->find(reinterpret_cast<const float*>(values.read())); },
      {read(copied), overwrite(check->found)}, {.name = "losses", .pushed_at = from});
}

void Losses::push_verdict(const std::shared_ptr<Check>& check, std::vector<Access> refuses, LaneId lane,
                          std::source_location from) {
  refuses.push_back(read(check->found));
  for (const std::size_t number : of_.numbers_of_inputs()) {
    check->inputs.push_back({number, of_.tensors_[number]});
    refuses.push_back(read(of_.tensors_[number].var()));
  }
  of_.device_.engine->push(
      [self = of_.self(), check](OpContext& op) {
        if (!check->bad) return;
        for (Check::Input& input : check->inputs) {
          input.values.resize(static_cast<std::size_t>(input.tensor.rows() * input.tensor.width()));
          input.tensor.view().download(op.lane(), input.values.data());
        }
        if (op.lane() != nullptr) wait_for(*op.lane());
        const Losses losses(*self);
        losses.refuse(check->bad->what + losses.culprit(*check), check->note);
      },
      refuses, {.name = "loss", .lane = lane, .pushed_at = from});
}

std::shared_ptr<Losses::Check> Losses::push(std::source_location from) {
  const Plan& plan = *of_.plan_;
  const auto has_losses = [](const TypePlan& type) { return !type.losses.empty(); };
  if (std::ranges::none_of(plan.types, has_losses)) return nullptr;
  // First the losses in arenas, then those that are inputs.
  struct Column {
    std::size_t type;
    const Place* place;
    Index begin;
  };
  std::vector<Column> inputs;
  Index count = of_.placed_.losses;
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    for (const Place& place : plan.types[t].losses) {
      if (of_.layout_.types[t].rows == 0 || place.in == Place::In::arena) continue;
      inputs.push_back({t, &place, count});
      count += of_.layout_.types[t].rows;
    }
  }
  const auto check = std::make_shared<Check>(of_.device_, count);
  check->note = of_.options_.keeps_not_finite;
  // A pointer suffices: each op that uses the check also holds the minibatch.
  check->download = [of = &of_, inputs](Lane* lane, float* to) {
    const auto copy = [&](float* first, const float* from_device, const CopyShape& shape) {
      of->device_.memory->download(lane, reinterpret_cast<std::byte*>(first),
                                   reinterpret_cast<const std::byte*>(from_device), shape);
    };
    if (of->placed_.losses > 0) {
      copy(to, of->data_, CopyShape::contiguous(static_cast<std::size_t>(of->placed_.losses) * sizeof(float)));
    }
    for (const auto& [type, place, begin] : inputs) {
      const Matrix<const float> losses = of->operand(*place, of->all_rows(type, Rate::vertices, lane));
      copy(to + begin, losses.data,
           {static_cast<std::size_t>(losses.rows), sizeof(float), sizeof(float),
            static_cast<std::size_t>(losses.stride) * sizeof(float)});
    }
  };
  check->find = [of = &of_, inputs](const float* values) {
    return Losses(*of).add_up([&](std::size_t type, const Place& loss) {
      const Index rows = of->layout_.types[type].rows;
      for (const auto& [of_type, place, begin] : inputs) {
        if (place == &loss) return Matrix<const float>{values + begin, rows, 1, 1};
      }
      const TypePlan& lies = of->plan_->types[type];
      const Index begin = of->placed_.offsets[lies.first_region + loss.number] + loss.column;
      return Matrix<const float>{values + begin, rows, 1, lies.regions[loss.number].stride};
    });
  };
  push_download(check, {read(of_.memory())}, from);
  return check;
}

/// Computes with the same parameters and inputs.
std::string Losses::culprit(const Check& check) const {
  try {
    const Device host = host_device(*of_.device_.engine);
    std::vector<Tensor> tensors;
    for (const TensorSpec& spec : of_.plan_->tensors) tensors.push_back(Tensor(host, 0, spec.width));
    for (const Check::Input& input : check.inputs) {
      tensors[input.number] = Tensor(host, input.tensor.rows(), input.tensor.width());
      tensors[input.number].view().upload(nullptr, input.values.data());
    }
    auto plan = std::make_shared<const Plan>(with_kernels(*of_.plan_, host.kernels));
    return culprit(*check.bad, host, std::move(plan), std::move(tensors));
  } catch (const std::exception& error) {
    return std::string("the search for its cause failed: ") + error.what();
  }
}

// --- Losses among outputs

void Losses::push(LossCheck losses, std::source_location from) {
  const auto about = std::make_shared<const LossCheck>(std::move(losses));
  std::vector<Access> refuses = {mutate(of_.memory())};
  for (Var var : about->poisoned) refuses.push_back(mutate(var));
  if (about->skips) refuses.push_back(mutate(of_.end_->over.var()));
  if (!of_.in_order()) {
    refuses.push_back(read(about->values.var()));
    for (Var var : of_.inputs()) refuses.push_back(read(var));
    of_.device_.engine->push(
        [self = of_.self(), about, values = about->values.view()] {
          const Losses losses_of(*self);
          const auto bad = losses_of.find_bad(*about, values.read());
          if (bad) losses_of.refuse(bad->what + losses_of.culprit(*bad), about->skips);
        },
        refuses, {.name = "losses", .lane = of_.device_.lane, .pushed_at = from});
    return;
  }
  const auto check = std::make_shared<Check>(of_.device_, about->values.rows() * about->values.width());
  check->note = about->skips;
  check->download = [about](Lane* lane, float* to) { about->values.view().download(lane, to); };
  check->find = [of = &of_, about](const float* values) {
    return Losses(*of).find_bad(*about, {values, about->values.rows(), about->values.width(), about->values.width()});
  };
  push_download(check, {read(about->values.var())}, from);
  push_verdict(check, std::move(refuses), of_.device_.lane, from);
}

}  // namespace windrow
