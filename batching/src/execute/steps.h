// The order in which the steps of a minibatch run.
#pragma once

#include <algorithm>

#include "windrow/batching/backend/execution.h"

namespace windrow {

/// Calls visit(segment, where it runs) for the segments of a phase, batch by batch of at most Options::batch_rows.
template <class Visit>
void Execution::each_segment(const PhaseRows& rows, At at, Visit visit) const {
  const auto& segments = plan_->types[rows.type].phases[static_cast<std::size_t>(rows.phase)];
  if (segments.empty()) return;
  at.type = rows.type;
  for (Range batch{rows.begin, 0}; batch.begin < rows.end; batch.begin = batch.end) {
    batch.end = std::min(rows.end - batch.begin, options_.batch_rows) + batch.begin;
    for (const Segment& segment : segments) {
      at.rate = segment.rate;
      at.rows = range(rows.type, segment.rate, batch);
      visit(segment, at);
    }
  }
}

/// Calls visit(step, where it runs) for the steps of a segment, tile by tile.
template <class Visit>
void Execution::each_step(const Segment& segment, const At& at, Visit visit) const {
  const Index at_once = segment.fused ? segment.tile_rows : at.rows.end - at.rows.begin;
  At tile = at;
  for (; tile.rows.begin < at.rows.end; tile.rows.begin = tile.rows.end) {
    tile.rows.end = std::min(tile.rows.begin + at_once, at.rows.end);
    tile.first_in_tile = tile.rows.begin;
    for (const Step& step : segment.steps) visit(step, tile);
  }
}

}  // namespace windrow
