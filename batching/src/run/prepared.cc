// Minibatches that are laid out ahead, beside the one before.
#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "layout/layout_memory.h"
#include "parameters/parameter_stores.h"
#include "run/owned_var.h"
#include "windrow/batching/backend.h"
#include "windrow/batching/runner.h"

namespace windrow {

/// Shared by the runner and the op that lays the minibatch out.
struct Runner::Prepared {
  std::vector<InputGraph> graphs;  // copies, which share the contents
  bool training;
  std::shared_ptr<const LoweredPlan> lowered;
  LayoutOptions options;
  Buffer done;  // without bytes: the op writes its variable
  // Written by the op:
  std::optional<Layout> layout = {};
  std::int64_t ns = 0;

  bool is_of(InputGraphs::Pointers others) const {
    return std::ranges::equal(graphs, others, [](const InputGraph& one, const InputGraph* other) {
      return one.block_ == other->block_ && one.name_ == other->name_;
    });
  }
};

namespace {

std::int64_t nanoseconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
}

bool draws_dropout(const Plan& plan) {
  return std::ranges::any_of(plan.program.function->index_pulls, &ir::IndexField::holds_dropout);
}

}  // namespace

void Runner::prepare(const Graphs& all, Call later) {
  const InputGraphs::Pointers graphs = all.pointers();
  require_own(graphs);
  if (!function_.function_->tensors.empty()) return;  // the rows that vertices pull are not known
  const bool training = later == Call::differentiate;
  const Planned& planned = plan_for(graphs, {.training = training});
  LayoutOptions options = layout_options();
  if (training && counts_minibatches_) options.dropout = parameters_->later_dropout(prepared_.size());
  const auto made = std::make_shared<Prepared>(Prepared{.graphs = {},
                                                        .training = training,
                                                        .lowered = planned.lowered,
                                                        .options = std::move(options),
                                                        .done = owned_var(device_.engine, "prepared minibatch")});
  made->graphs.reserve(graphs.size());
  for (const InputGraph* graph : graphs) made->graphs.push_back(*graph);
  // If it fails, the call that needs the layout makes it again, and throws.
  device_.engine->push(
      [made, memory = layouts_, batch_rows = options_.batch_rows] {
        const auto began = std::chrono::steady_clock::now();
        try {
          Layout layout =
              Layout::make(InputGraphs(made->graphs).pointers(), *made->lowered->plan(), made->options, *memory);
          made->lowered->place(layout, batch_rows);
          made->layout = std::move(layout);
        } catch (...) {
        }
        made->ns = nanoseconds_since(began);
      },
      {overwrite(made->done.var())}, {.name = "prepare", .priority = 1});
  prepared_.push_back(made);
  constexpr std::size_t most = 8;  // of those that nobody computes
  if (prepared_.size() > most) prepared_.pop_front();
}

/// Whether prepare() got these graphs, so that their types were seen.
bool Runner::is_prepared(InputGraphs::Pointers graphs) const {
  return std::ranges::any_of(prepared_, [&](const auto& one) { return one->is_of(graphs); });
}

/// The prepared layout, if there is one. Those of earlier minibatches are dropped, since they were not computed.
Layout Runner::layout_of(InputGraphs::Pointers graphs, const Planned& planned, const LayoutOptions& options,
                         const Purpose& purpose) {
  const auto is_for_it = [&](const std::shared_ptr<Prepared>& one) {
    return one->training == purpose.training && one->lowered == planned.lowered && one->is_of(graphs) &&
           (one->options.dropout == options.dropout || !draws_dropout(*planned.plan));
  };
  const bool any = options.given.empty() && purpose.outputs.empty();
  const auto found = any ? std::ranges::find_if(prepared_, is_for_it) : prepared_.end();
  const auto began = std::chrono::steady_clock::now();
  if (found != prepared_.end()) {
    const std::shared_ptr<Prepared> prepared = *found;
    prepared_.erase(prepared_.begin(), found + 1);
    try {
      device_.engine->wait(prepared->done.var());
    } catch (const OpError&) {  // it was cancelled
    }
    if (prepared->layout) {
      stats_.schedule_ns += prepared->ns;
      ++stats_.prepared;
      return std::move(*prepared->layout);
    }
  }
  Layout layout = Layout::make(graphs, *planned.plan, options, *layouts_);
  stats_.schedule_ns += nanoseconds_since(began);
  return layout;
}

}  // namespace windrow
