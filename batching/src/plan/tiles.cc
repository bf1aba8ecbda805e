#include "plan/tiles.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "plan/phases.h"
#include "windrow/memory/allocator.h"

namespace windrow {
namespace {

/// The most memory of the rows of a tile. A tile that fits the first-level cache has so few rows that starting its
/// steps costs more than accessing the second-level cache: half of this value is slower in `windrow-perf train --model
/// tree-lstm --hidden 128`.
constexpr Index tile_bytes = 96 * 1024;

Index tile_rows(const Segment& segment) {
  std::set<std::tuple<Place::In, std::size_t, Index, Index>> places;
  for (const Step& step : segment.steps) {
    for (const Place& p : step.in) {
      if (p.in != Place::In::tensor && p.rate == step.rate) places.insert({p.in, p.number, p.column, p.width});
    }
    places.insert({step.out.in, step.out.number, step.out.column, step.out.width});
  }
  Index width = 1;
  for (const auto& place : places) width += std::get<3>(place);
  return std::max<Index>(1, tile_bytes / (width * static_cast<Index>(sizeof(float))));
}

/// Tiles of one segment lie one after the other; other segments reuse the same memory.
void arrange_tiles(TypePlan& type, const Segment& segment) {
  std::set<std::size_t> locals;
  for (const Step& step : segment.steps) {
    if (step.out.in == Place::In::local && step.does != Step::Does::scatter) locals.insert(step.out.number);
  }
  Index offset = 0;
  for (std::size_t local : locals) {
    type.local_offsets[local] = offset;
    const auto bytes = static_cast<std::size_t>(type.locals[local] * segment.tile_rows) * sizeof(float);
    offset += static_cast<Index>(aligned_size(bytes) / sizeof(float));
  }
  type.tile_elements = std::max(type.tile_elements, offset);
}

void add_costs(TypePlan& type, std::size_t phase, const Segment& segment) {
  std::vector<std::size_t>& tensors = type.tensors[phase];
  TypePlan::Cost& cost = type.costs[phase][static_cast<std::size_t>(segment.rate)];
  TypePlan::Cost& of_edges = type.costs[phase][static_cast<std::size_t>(Rate::edges)];
  ++cost.segments;
  for (const Step& step : segment.steps) {
    ++cost.steps;
    cost.multiply_flops += step.flops_a_row;
    cost.work += work_of(step);
    of_edges.work += work_of_edge(step);
    type.cost += work_of(step) + work_of_edge(step);
    for (const Place& place : step.in) {
      if (place.in == Place::In::tensor) tensors.push_back(place.number);
    }
  }
  std::ranges::sort(tensors);
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
}

}  // namespace

void finish(Plan& plan) {
  for (TypePlan& type : plan.types) {
    type.local_offsets.resize(type.locals.size());
    for (std::size_t phase = 0; phase < phase_count; ++phase) {
      for (Segment& segment : type.phases[phase]) {
        segment.tile_rows = tile_rows(segment);
        arrange_tiles(type, segment);
        add_costs(type, phase, segment);
      }
    }
  }
  for (TensorStep& step : plan.after) step.after = last_phase(plan, step);
}

}  // namespace windrow
