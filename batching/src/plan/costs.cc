#include "plan/costs.h"

#include <algorithm>

namespace windrow {
namespace {

/// The assumed cost of a step per element of its result, in addition to its products.
constexpr Index flops_of_an_element = 20;

void count(const Segment& segment, TypePlan::Cost& cost, std::vector<std::size_t>& tensors) {
  ++cost.segments;
  for (const Step& step : segment.steps) {
    ++cost.steps;
    cost.multiply_flops += step.flops_a_row;
    cost.work += step.flops_a_row + flops_of_an_element * std::max<Index>(step.out.width, 1);
    for (const Place& place : step.in) {
      if (place.in == Place::In::tensor) tensors.push_back(place.number);
    }
    if (step.direct.op != nullptr) tensors.push_back(step.direct.factor.number);
  }
}

}  // namespace

void count_costs(Plan& plan) {
  for (TypePlan& type : plan.types) {
    for (std::size_t phase = 0; phase < phase_count; ++phase) {
      std::vector<std::size_t>& tensors = type.tensors[phase];
      for (const Segment& segment : type.phases[phase]) {
        count(segment, type.costs[phase][static_cast<std::size_t>(segment.rate)], tensors);
      }
      for (const TypePlan::Cost& cost : type.costs[phase]) type.cost += cost.work;
      std::sort(tensors.begin(), tensors.end());
      tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
    }
  }
}

}  // namespace windrow
