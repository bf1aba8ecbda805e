// Steps of gradient descent.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "parameters/gradient.h"
#include "parameters/parameter_store.h"
#include "parameters/skipped_steps.h"
#include "windrow/batching/internal/execution.h"

namespace windrow {
namespace {

/// Whether all elements are at most `limit`. Without a branch for each element, since nearly all are.
bool within(Matrix<const float> x, float limit) {
  for (Index r = 0; r < x.rows; ++r) {
    const float* const row = x.row(r);
    int beyond = 0;
    for (Index c = 0; c < x.width; ++c) beyond |= static_cast<int>(!(std::abs(row[c]) <= limit));  // also counts NaN
    if (beyond != 0) return false;
  }
  return true;
}

/// A part of the gradient of a parameter that is to be checked.
struct Checked {
  std::string parameter;
  Tensor::View gradient;
  float limit;                        // if all elements are at most this, the sum of all parts is finite
  std::optional<Bytes> largest = {};  // of all elements; copied to the host unless they are there

  bool finite() const {
    return largest ? std::abs(*reinterpret_cast<const float*>(largest->read())) <= limit
                   : within(gradient.read(), limit);
  }
};

/// The largest magnitude of all elements, or NaN, as a 1 x 1 tensor.
Tensor largest(const Device& device, const Tensor& x, std::source_location from) {
  const Tensor of_rows = apply(device, op::row_max, {.in = {apply(device, op::abs, {.in = {x}}, from)}}, from);
  return apply(device, op::row_max, {.in = {apply(device, op::transpose, {.in = {of_rows}}, from)}}, from);
}

}  // namespace

std::vector<Access> NextStep::accesses() const {
  return check_ ? std::vector<Access>{read(check_->decided.var())} : std::vector<Access>();
}
std::vector<Access> NextStep::ends() const {
  std::vector<Access> ends;
  for (const auto& source : sources_) ends.push_back(read(source->over.var()));
  return ends;
}
bool NextStep::skipped() const { return check_ && check_->skip; }

std::uint64_t Parameters::sgd(double rate, double decay, std::source_location from) {
  const Attributes attributes = op::at_rate(rate, decay);
  const NextStep next = next_step(from);
  const ParameterStore::DescentStep step{rate, decay, next, from};
  for (const ParameterStore::Entry& entry : store_->entries_) {
    if (entry.frozen) continue;  // a gradient from before the freeze may be left
    if (entry.gradient.all) {
      store_->update(op::sgd, {.in = {*entry.gradient.all}, .attributes = attributes}, entry.value, step);
    }
    if (entry.depends) store_->update_rows(entry, step);
  }
  return next.number();
}

/// Updates by rows of lookups. Without such rows, there is an update only if all rows decay.
void ParameterStore::update_rows(const Entry& entry, const DescentStep& step) const {
  const double decay = entry.gradient.all ? 0 : step.decay;  // otherwise the dense update has applied the decay
  if (entry.lookups.empty() && decay == 0) return;
  const Type table{Rows::count(entry.value.rows()), entry.value.width()};
  const Operands operands = by_table_row(device_, entry.lookups, table, step.rate, decay, step.from);
  update(op::sgd_rows, operands, entry.value, step);
}

void ParameterStore::update(const Operator& op, Operands operands, const Tensor& value, const DescentStep& step) const {
  operands.write = Write::add;
  Prepared prepared = prepare(device_, op, operands, value);
  for (const std::vector<Access>& more : {step.next.accesses(), step.next.ends()}) {
    prepared.accesses.insert(prepared.accesses.end(), more.begin(), more.end());
  }
  device_.engine->push(
      [next = step.next, compute = std::move(prepared.compute)](OpContext& context) {
        if (!next.skipped()) compute(context.lane());
      },
      prepared.accesses, {.name = op.name, .lane = device_.lane, .pushed_at = step.from});
}

/// Pushes the op that decides for all ops of the step, so the step is skipped as a whole or not at all.
std::shared_ptr<const StepCheck> ParameterStore::push_check(std::uint64_t number, std::source_location from) const {
  const auto check = std::make_shared<StepCheck>(device_);
  std::vector<Access> accesses;
  for (const auto& source : sources_) accesses.push_back(read(source->over.var()));
  std::vector<Checked> gradients;
  std::vector<Buffer> copied;  // freed after the op that decides
  for (const Entry& entry : entries_) {
    Index rows = entry.gradient.all ? 1 : 0;
    for (const LookedUp& lookup : entry.lookups) rows += static_cast<Index>(lookup.row_of.size());
    const auto add = [&](const Tensor& gradient) {
      accesses.push_back(read(gradient.var()));
      Checked& added = gradients.emplace_back(
          Checked{entry.name, gradient.view(), std::numeric_limits<float>::max() / static_cast<float>(rows)});
      if (device_.on_host()) return;
      const Tensor found = largest(device_, gradient, from);
      const Buffer& to =
          copied.emplace_back(Buffer(device_.engine, device_.memory->staging(), sizeof(float), "check step"));
      added.largest = to.bytes();
      device_.engine->push(
          [view = found.view(), bytes = to.bytes()](OpContext& op) {
            view.download(op.lane(), reinterpret_cast<float*>(bytes.write_unwatched(op.lane())));
          },
          {read(found.var()), overwrite(to.var())}, {.name = "check step", .lane = device_.lane, .pushed_at = from});
      accesses.push_back(read(to.var()));
    };
    if (entry.gradient.all) add(*entry.gradient.all);
    for (const LookedUp& lookup : entry.lookups) add(lookup.rows);
  }
  const auto why = [sources = sources_, gradients = std::move(gradients)]() -> std::string {
    for (const auto& source : sources) {
      if (!source->not_finite.empty()) return source->not_finite;
    }
    for (const Checked& gradient : gradients) {
      if (!gradient.finite()) return "the gradient of parameter '" + gradient.parameter + "' is not finite";
    }
    return {};
  };
  if (agree_) {
    push_agreed_check(number, {why, std::move(accesses)}, check, from);
    return check;
  }
  accesses.push_back(overwrite(check->decided.var()));
  device_.engine->push(
      [number, why, check, log = skipped_] {
        std::string reason = why();
        check->skip = !reason.empty();
        if (check->skip) log->add({number, std::move(reason)});
      },
      accesses, {.name = "check step", .lane = device_.on_host() ? device_.lane : host_lane, .pushed_at = from});
  return check;
}

/// Each member writes an element, which is 0 unless it has a reason to skip the step, and larger for lower ranks.
void ParameterStore::push_agreed_check(std::uint64_t number, Reasons reasons, const std::shared_ptr<StepCheck>& check,
                                       std::source_location from) const {
  const OpName of_ops = "check step";
  const IntTensor element(std::make_shared<Buffer>(device_.engine, host_allocator(), sizeof(std::int32_t), of_ops), 1,
                          1);
  const PushOptions options{.name = of_ops, .lane = device_.on_host() ? device_.lane : host_lane, .pushed_at = from};
  const auto own = static_cast<std::int32_t>(members_ - rank_);
  reasons.accesses.push_back(overwrite(element.var()));
  device_.engine->push(
      [why = std::move(reasons.why), check, own, view = element.view()] {
        check->own = why();
        *view.write().row(0) = check->own.empty() ? 0 : own;
      },
      reasons.accesses, options);
  agree_(element, from);
  device_.engine->push(
      [number, check, members = members_, log = skipped_, view = element.view()] {
        const std::int32_t largest = *view.read().row(0);
        check->skip = largest != 0;
        if (!check->skip) return;
        const std::string rank = std::to_string(static_cast<std::int32_t>(members) - largest);
        log->add({number, check->own.empty() ? "a loss or gradient of rank " + rank + " is not finite" : check->own});
      },
      {read(element.var()), overwrite(check->decided.var())}, options);
}

SkippedSteps Parameters::skipped_steps() const { return store_->skipped_->steps(); }

}  // namespace windrow
