#include "plan/passes.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "windrow/memory/allocator.h"

namespace windrow {

using ir::at, ir::Code, ir::Node, ir::Value;

// --- Phases

/// Delays the copy of a vertex's row to its edges until the phase of its uses, if all are in one phase. Then the copy
/// can lie in a tile, even if the row itself is computed earlier.
static void copy_late(const ir::Program& program, std::vector<Phase>& phases) {
  constexpr int none = -1, several = -2;
  std::vector<int> used(phases.size(), none);
  for (std::size_t i = phases.size(); i-- > 0;) {
    const Node& node = program.nodes[i];
    const bool handed_on = node.is(op::gather_rows) && node.of_edges() &&
                           program.function->index_pulls[node.indices[0]].holds == ir::IndexField::Holds::consumer;
    if (handed_on && used[i] >= 0) phases[i] = static_cast<Phase>(used[i]);
    for (const Value in : node.in) {
      int& phase = used[at(in)];
      const int here = static_cast<int>(phases[i]);
      phase = phase == none || phase == here ? here : several;
    }
  }
}

std::vector<Phase> phases_of(const ir::Program& program, const PlanOptions& options) {
  const std::size_t n = program.nodes.size();
  std::vector<char> gathered(n, 0), incoming(n, 0), given(n, 0), scattered(n, 0), sent(n, 0);
  for (std::size_t i = 0; i < n; ++i) {
    const Node& node = program.nodes[i];
    gathered[i] = node.code == Code::gather || node.reads_in_place();
    incoming[i] = node.code == Code::incoming || node.code == Code::incoming_products;
    given[i] = node.is_output_gradient(*program.function);
    for (Value in : node.in) {
      gathered[i] |= gathered[at(in)];
      incoming[i] |= incoming[at(in)];
      given[i] |= given[at(in)];
    }
  }
  for (std::size_t i = n; i-- > 0;) {
    const Node& node = program.nodes[i];
    scattered[i] |= node.code == Code::scatter;
    sent[i] |= node.code == Code::send || node.code == Code::send_product;
    for (Value in : node.in) {
      scattered[at(in)] |= scattered[i];
      sent[at(in)] |= sent[i];
    }
  }
  std::vector<Phase> phases(n, options.eager ? Phase::eager : Phase::level);
  for (std::size_t i = 0; i < n; ++i) {
    if (given[i] && !incoming[i] && options.eager && options.lazy) {
      phases[i] = Phase::back_eager;
    } else if (incoming[i] || given[i]) {
      phases[i] = sent[i] || !options.lazy ? Phase::back_level : Phase::back_lazy;
    } else if (gathered[i]) {
      phases[i] = scattered[i] || !options.lazy ? Phase::level : Phase::lazy;
    }
  }
  copy_late(program, phases);
  return phases;
}

static bool overlap(const Place& x, const Place& y) {
  return x.in == y.in && x.number == y.number && x.column < y.column + y.width && y.column < x.column + x.width;
}

/// The last phase in which steps of the type write the place. If none does, children wrote it; then it is the first
/// phase that reads the place, since that phase has waited for the children.
static Phase last_phase(const TypePlan& type, const Place& place) {
  std::optional<Phase> written, read;
  for (std::size_t p = 0; p < phase_count; ++p) {
    const auto phase = static_cast<Phase>(p);
    for (const Segment& segment : type.phases[p]) {
      for (const Step& step : segment.steps) {
        if (step.does != Step::Does::scatter && overlap(step.out, place)) written = phase;
        const auto reads = [&](const Place& in) { return overlap(in, place); };
        if (!read && std::ranges::any_of(step.in, reads)) read = phase;
      }
    }
  }
  return written ? *written : read.value_or(Phase::back_lazy);
}

Phase last_phase(const Plan& plan, const TensorStep& step) {
  auto last = Phase::eager;
  if (step.vertex_type < 0) return last;
  for (const Place& place : step.step.in) {
    if (place.in == Place::In::tensor || place.in == Place::In::pull || place.in == Place::In::nowhere) continue;
    last = std::max(last, last_phase(plan.types[static_cast<std::size_t>(step.vertex_type)], place));
  }
  return last;
}

// --- Tiles and costs

namespace {

/// The most memory of the rows of a tile. A tile that fits into the first-level cache has so few rows that starting its
/// steps costs more than accesses to the second-level cache: half of this value is slower in `windrow-perf train
/// --model tree-lstm --hidden 128`.
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
