#include "windrow/training/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <utility>

#include "windrow/engine/error.h"

namespace windrow {
namespace {

void require_rate(double rate) {
  if (rate >= 0 && std::isfinite(rate)) return;
  throw MisuseError("learning rate " + std::to_string(rate) + "; expected a number, 0 or more");
}

}  // namespace

LearningRate::LearningRate(double rate) : function_([rate](std::uint64_t) { return rate; }) { require_rate(rate); }

LearningRate LearningRate::steps(double rate, std::uint64_t every, double factor) {
  require_rate(rate);
  if (every == 0 || !(factor > 0) || !std::isfinite(factor)) {
    throw MisuseError("a learning rate multiplied by " + std::to_string(factor) + " every " + std::to_string(every) +
                      " steps; expected both above 0");
  }
  return LearningRate([=](std::uint64_t step) { return rate * std::pow(factor, static_cast<double>(step / every)); });
}

LearningRate LearningRate::cosine(double rate, std::uint64_t steps, double least) {
  require_rate(rate);
  require_rate(least);
  if (steps == 0) throw MisuseError("a learning rate along a cosine of 0 steps; expected 1 or more");
  return LearningRate([=](std::uint64_t step) {
    const double done = static_cast<double>(std::min(step, steps)) / static_cast<double>(steps);
    return least + (rate - least) * (1 + std::cos(std::numbers::pi * done)) / 2;
  });
}

LearningRate LearningRate::warm_up(std::uint64_t steps, LearningRate then) {
  return LearningRate([steps, after = std::move(then)](std::uint64_t step) {
    if (step >= steps) return after(step - steps);
    return after(0) * static_cast<double>(step + 1) / static_cast<double>(steps);
  });
}

LearningRate LearningRate::from(std::function<double(std::uint64_t)> function) {
  if (!function) throw MisuseError("an empty function as a learning rate; expected one that can be called");
  return LearningRate([function = std::move(function)](std::uint64_t step) {
    const double rate = function(step);
    require_rate(rate);
    return rate;
  });
}

double Plateau::report(double measure) {
  const double margin = threshold * std::abs(best);
  if (reports++ == 0 || measure < best - margin) {
    best = measure;
    without_improvement = 0;
  } else if (++without_improvement > patience) {
    lowered = std::max(lowered * factor, least);
    without_improvement = 0;
  }
  return lowered;
}

}  // namespace windrow
