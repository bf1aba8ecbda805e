#include "windrow/training/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <string>
#include <utility>

#include "checked.h"
#include "windrow/engine/error.h"
#include "windrow/ops/internal/number.h"

namespace windrow {
namespace {

void require_rate(double rate) { require_not_negative("learning rate", rate); }

}  // namespace

LearningRate::LearningRate(double rate) : function_([rate](std::uint64_t) { return rate; }) { require_rate(rate); }

LearningRate LearningRate::steps(double rate, std::uint64_t every, double factor) {
  require_rate(rate);
  require_not_negative("learning rate multiplied by", factor);
  if (every == 0 || factor == 0) {
    throw MisuseError("learning rate multiplied by " + shortest_text(factor) + " every " + std::to_string(every) +
                      " steps; expected both above 0");
  }
  return LearningRate([=](std::uint64_t step) {
    const double now = rate * std::pow(factor, static_cast<double>(step / every));
    require_not_negative("learning rate of step " + std::to_string(step) + ":", now);
    return now;
  });
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
  require_coefficient("Plateau: factor", factor);
  require_coefficient("Plateau: threshold", threshold);
  require(least >= 0 && least <= 1, "Plateau: least", least, "0 to 1");
  const bool first = reports++ == 0 || !std::isfinite(best);
  if (std::isfinite(measure) && (first || measure < best - threshold * std::abs(best))) {
    best = measure;
    without_improvement = 0;
  } else if (++without_improvement > patience) {
    lowered = std::max(lowered * factor, least);
    without_improvement = 0;
  }
  return lowered;
}

}  // namespace windrow
