#include "host/host_plan.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "host/copies.h"

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

class Lowering {
 public:
  Lowering(const Plan& plan, const KernelTable<float>& kernels) : plan_(plan), kernels_(kernels) {}

  HostPlan run() {
    for (const TypePlan& type : plan_.types) lower(type, made_.types.emplace_back());
    for (const TensorStep& step : plan_.before) made_.before.push_back({lowered(step.step), step.vertex_type});
    for (const TensorStep& step : plan_.after) {
      made_.after.push_back({lowered(step.step), step.vertex_type, last_phase(plan_, step)});
    }
    find_copies(plan_, made_, kernels_);
    for (HostPlan::Type& type : made_.types) count(type);
    return std::move(made_);
  }

 private:
  HostStep lowered(const Step& step) const {
    HostStep made{step};
    if (step.op != nullptr) made.kernel = kernels_.find(*step.op);
    return made;
  }

  void lower(const TypePlan& type, HostPlan::Type& made) const {
    made.local_offsets.resize(type.locals.size());
    for (std::size_t p = 0; p < phase_count; ++p) {
      for (const Segment& segment : type.phases[p]) {
        HostSegment& to = made.phases[p].emplace_back(HostSegment{segment.fused, segment.rate});
        for (const Step& step : segment.steps) to.steps.push_back(lowered(step));
        to.tile_rows = tile_rows(segment);
        arrange_tiles(type, segment, to.tile_rows, made);
      }
    }
  }

  /// Tiles of one segment lie one after the other; other segments reuse the same scratch memory.
  static void arrange_tiles(const TypePlan& type, const Segment& segment, Index rows, HostPlan::Type& made) {
    std::set<std::size_t> locals;
    for (const Step& step : segment.steps) {
      if (step.out.in == Place::In::local && step.does != Step::Does::scatter) locals.insert(step.out.number);
    }
    Index offset = 0;
    for (std::size_t local : locals) {
      made.local_offsets[local] = offset;
      offset += aligned(type.locals[local] * rows);
    }
    made.scratch = std::max(made.scratch, offset);
  }

  static void count(HostPlan::Type& type) {
    for (std::size_t phase = 0; phase < phase_count; ++phase) {
      std::vector<std::size_t>& tensors = type.tensors[phase];
      for (const HostSegment& segment : type.phases[phase]) {
        HostPlan::Cost& cost = type.costs[phase][static_cast<std::size_t>(segment.rate)];
        ++cost.segments;
        for (const HostStep& step : segment.steps) {
          ++cost.steps;
          cost.multiply_flops += step.flops_a_row;
          cost.work += work_of(step);
          type.costs[phase][static_cast<std::size_t>(Rate::edges)].work += work_of_edge(step);
          for (const Place& place : step.in) {
            if (place.in == Place::In::tensor) tensors.push_back(place.number);
          }
          if (step.direct.op != nullptr) tensors.push_back(step.direct.factor.number);
        }
      }
      std::sort(tensors.begin(), tensors.end());
      tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
    }
  }

  const Plan& plan_;
  const KernelTable<float>& kernels_;
  HostPlan made_;
};

}  // namespace

HostPlan lower(const Plan& plan, const KernelTable<float>& kernels) { return Lowering(plan, kernels).run(); }

}  // namespace windrow
