#include "execute/step_clock.h"

#include <array>
#include <string>

namespace windrow {
namespace {

void add(OperatorTime& sum, const OperatorTime& more, std::int64_t sign) {
  sum.steps += sign * more.steps;
  sum.ns += sign * more.ns;
  sum.flops += sign * more.flops;
  sum.bytes += sign * more.bytes;
}

void add(StepTimes& sum, const StepTimes& more, std::int64_t sign) {
  sum.product_ns += sign * more.product_ns;
  sum.arithmetic_ns += sign * more.arithmetic_ns;
  sum.move_ns += sign * more.move_ns;
  sum.arithmetic_bytes += sign * more.arithmetic_bytes;
  sum.move_bytes += sign * more.move_bytes;
  for (const auto kind : {&StepTimes::products, &StepTimes::arithmetic, &StepTimes::moves}) {
    for (const auto& [name, time] : more.*kind) add((sum.*kind)[name], time, sign);
  }
}

}  // namespace

std::string_view name_of(const Step& step) {
  constexpr std::array moves = {"copy", "fill", "scatter", "gather", "sum of gradients"};
  return step.op != nullptr ? step.op->name.text() : moves[static_cast<std::size_t>(step.does)];
}

StepTimes& StepTimes::operator+=(const StepTimes& other) {
  add(*this, other, 1);
  return *this;
}

StepTimes& StepTimes::operator-=(const StepTimes& earlier) {
  add(*this, earlier, -1);
  return *this;
}

StepLap::~StepLap() {
  const std::lock_guard lock(clock_.mutex_);
  clock_.times_ += times_;
}

void StepLap::end_of(const Step& step, std::int64_t rows, std::int64_t bytes) {
  const auto now = std::chrono::steady_clock::now();
  const std::int64_t ns = std::chrono::nanoseconds(now - last_).count();
  const OperatorTime time{.steps = 1, .ns = ns, .flops = rows * step.flops_a_row, .bytes = bytes};
  const std::string name(name_of(step));
  switch (step.counts) {
    case Step::Counts::product:
      times_.product_ns += ns;
      add(times_.products[name], time, 1);
      break;
    case Step::Counts::arithmetic:
      times_.arithmetic_ns += ns;
      times_.arithmetic_bytes += bytes;
      add(times_.arithmetic[name], time, 1);
      break;
    case Step::Counts::move:
      times_.move_ns += ns;
      times_.move_bytes += bytes;
      add(times_.moves[name], time, 1);
      break;
  }
  last_ = std::chrono::steady_clock::now();  // excludes the time of counting
}

}  // namespace windrow
