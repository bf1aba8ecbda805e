#include "execute/step_clock.h"

#include <algorithm>
#include <string>

namespace windrow {
namespace {

void add(OperatorTime& sum, const OperatorTime& more, std::int64_t sign = 1) {
  sum.steps += sign * more.steps;
  sum.ns += sign * more.ns;
  sum.flops += sign * more.flops;
  sum.bytes += sign * more.bytes;
}

void add(OperatorTimes& sums, const OperatorTimes& more, std::int64_t sign) {
  for (const auto& [name, time] : more) add(sums[name], time, sign);
}

OperatorTime& of_kind(std::vector<StepClock::Sum>& sums, const StepClock::Sum& kind) {
  const auto same = [&](const StepClock::Sum& sum) {
    return sum.op == kind.op && sum.does == kind.does && sum.counts == kind.counts;
  };
  const auto found = std::find_if(sums.begin(), sums.end(), same);
  if (found != sums.end()) return found->time;
  return sums.emplace_back(kind.does, kind.counts, kind.op).time;
}

std::string name_of(const StepClock::Sum& sum) {
  if (sum.op != nullptr) return std::string(sum.op->name.text());
  switch (sum.does) {
    case Step::Does::kernel:
      return "copy";
    case Step::Does::fill:
      return "fill";
    case Step::Does::scatter:
      return "scatter";
    case Step::Does::gather:
      return "gather";
    default:
      return "sum of gradients";
  }
}

}  // namespace

StepTimes& StepTimes::operator+=(const StepTimes& other) {
  product_ns += other.product_ns;
  arithmetic_ns += other.arithmetic_ns;
  move_ns += other.move_ns;
  arithmetic_bytes += other.arithmetic_bytes;
  move_bytes += other.move_bytes;
  add(products, other.products, 1);
  add(arithmetic, other.arithmetic, 1);
  add(moves, other.moves, 1);
  return *this;
}

StepTimes& StepTimes::operator-=(const StepTimes& earlier) {
  product_ns -= earlier.product_ns;
  arithmetic_ns -= earlier.arithmetic_ns;
  move_ns -= earlier.move_ns;
  arithmetic_bytes -= earlier.arithmetic_bytes;
  move_bytes -= earlier.move_bytes;
  add(products, earlier.products, -1);
  add(arithmetic, earlier.arithmetic, -1);
  add(moves, earlier.moves, -1);
  return *this;
}

StepLap::~StepLap() {
  const std::lock_guard lock(clock_.mutex_);
  for (const StepClock::Sum& sum : sums_) add(of_kind(clock_.sums_, sum), sum.time);
}

void StepLap::end_of(const Step& step, std::int64_t rows, std::int64_t bytes) {
  const auto now = std::chrono::steady_clock::now();
  const std::int64_t ns = std::chrono::nanoseconds(now - last_).count();
  last_ = now;
  add(of_kind(sums_, {step.does, step.counts, step.op}),
      {.steps = 1, .ns = ns, .flops = rows * step.flops_a_row, .bytes = bytes});
}

StepTimes StepClock::times() const {
  StepTimes times;
  const std::lock_guard lock(mutex_);
  for (const Sum& sum : sums_) {
    switch (sum.counts) {
      case Step::Counts::product:
        times.product_ns += sum.time.ns;
        add(times.products[name_of(sum)], sum.time);
        break;
      case Step::Counts::arithmetic:
        times.arithmetic_ns += sum.time.ns;
        times.arithmetic_bytes += sum.time.bytes;
        add(times.arithmetic[name_of(sum)], sum.time);
        break;
      case Step::Counts::move:
        times.move_ns += sum.time.ns;
        times.move_bytes += sum.time.bytes;
        add(times.moves[name_of(sum)], sum.time);
        break;
    }
  }
  return times;
}

}  // namespace windrow
