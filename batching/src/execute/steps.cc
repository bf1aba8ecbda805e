// What the ops of a minibatch run: phases, segments, and steps.
#include "execute/steps.h"

#include <optional>

#include "execute/post_mortem.h"
#include "execute/scratch.h"
#include "execute/step_clock.h"
#include "execute/step_kernels.h"

namespace windrow {

PlanOptions Execution::options_for(PlanOptions options) {
  options.slots = options.sharing = options.fusion = false;
  return options;
}

void Execution::run_op(const std::vector<PhaseRows>& stage, Lane* lane) {
  if (in_order()) return run_stage(stage, {.lane = lane});
  std::optional<StepLap> lap;
  if (options_.clock != nullptr) lap.emplace(*options_.clock);
  run_stage(stage, {.tile = tiles_->of_this_thread(), .lap = lap ? &*lap : nullptr});
}

void Execution::run_stage(const std::vector<PhaseRows>& stage, const At& at) {
  for (const PhaseRows& rows : stage) run(rows, at);
}

void Execution::run(const PhaseRows& rows, const At& at) {
  each_segment(rows, at, [&](const Segment& segment, const At& here) { run(segment, here); });
}

void Execution::run(const Segment& segment, const At& at) {
  each_step(segment, at, [&](const Step& step, const At& here) {
    try {
      run(step, here);
    } catch (const std::exception& error) {
      PostMortem post_mortem(*this);
      if (in_order() || !post_mortem.explains(error)) throw;
      post_mortem.explain(step, here, error.what());
    }
    if (here.lap == nullptr) return;
    here.lap->end_of(step, here.rows.end - here.rows.begin, StepKernels(*this).bytes_of(step, here));
  });
}

void Execution::run(const Step& step, const At& at) { StepKernels(*this).run(step, at); }

}  // namespace windrow
