#include "windrow/batching/runner.h"

#include <algorithm>
#include <atomic>

#include "execute/step_clock.h"
#include "ir/passes.h"
#include "ir/tracing.h"
#include "layout/layout_memory.h"
#include "parameters/parameter_stores.h"
#include "run/runner_notes.h"
#include "windrow/batching/backend.h"
#include "windrow/ops/operators.h"

namespace windrow {
namespace {

void require_option(bool holds, const std::string& what) {
  if (!holds) throw MisuseError("RunnerOptions: " + what);
}

std::uint64_t next_runner_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

ir::Specialise specialise(const Optimisations& on) {
  return on.specialisation ? ir::Specialise::yes : ir::Specialise::no;
}

/// A user-defined device may lack these kernels; then states are copied.
bool reads_in_place(const KernelTable<float>& kernels) {
  const Operator* const needed[] = {&op::gather_dot, &op::gather_weighted_sum};
  return std::ranges::all_of(needed, [&](const Operator* op) { return kernels.named(op->name.text()) == op; });
}

}  // namespace

Runner::Runner(const Device& device, const VertexFunction& function, const ParameterSets& parameters,
               RunnerOptions options)
    : Runner(device, function, std::make_shared<ParameterStores>(parameters.sets_), options) {}

Runner::Runner(const Device& device, const VertexFunction& function, std::shared_ptr<ParameterStores> parameters,
               RunnerOptions options)
    : device_(device),
      backend_(backend_of(device)),
      function_(function),
      parameters_(std::move(parameters)),
      options_(options),
      id_(next_runner_id()),
      layouts_(std::make_shared<LayoutMemory>()) {
  const auto given = [](const char* name, std::int64_t value) {
    return std::string(name) + " is " + std::to_string(value) + "; expected 1 or more";
  };
  require_option(options.ahead >= 1, given("ahead", options.ahead));
  require_option(options.groups >= 1, given("groups", options.groups));
  require_option(options.group_flops >= 1, given("group_flops", options.group_flops));
  require_option(options.op_flops >= 1, given("op_flops", options.op_flops));
  require_option(options.split_rows >= 1, given("split_rows", options.split_rows));
  require_option(options.batch_rows >= 1, given("batch_rows", options.batch_rows));
  require_option(options.own_types >= 0, "own_types is " + std::to_string(options.own_types) + "; expected 0 or more");
  if (options_.schedule == SchedulePolicy::serial) options_.batch_rows = 1;
  types_ = std::make_unique<ir::ProgramTypes>();
  if (options_.time_steps) clock_ = std::make_shared<StepClock>();
  for (const auto& set : parameters_->sets()) require_near(*set);
  ir::check_complete(*function.function_);
  try {
    for (const ir::ParameterName& used : function.function_->parameters) {
      numbers_.push_back(static_cast<std::size_t>(parameters_->number_of(used)));
    }
  } catch (const MisuseError& error) {
    throw MisuseError(function.name() + ": " + error.what());
  }
}

void Runner::require_near(const ParameterStore& parameters) const {
  if (device_.engine != parameters.device().engine) {
    throw MisuseError(function_.name() + ": its parameters are on another engine than its runner; expected the same");
  }
  if (device_.memory_lane() != parameters.device().memory_lane()) {
    throw MisuseError(function_.name() + ": its parameters are not in the memory of device '" + device_.name +
                      "'; expected them there");
  }
}

Runner::~Runner() = default;

/// Plans depend on the types seen so far, so they are dropped before a new type is added.
void Runner::see_type(std::uint64_t type) {
  const ir::Function& function = *function_.function_;
  const bool specialised = options_.optimisations.specialisation;
  const ir::VertexType own = specialised ? type : ir::with_all_children(function, type);
  const auto is_new = [&](const std::vector<ir::VertexType>& types, ir::VertexType one) {
    return !std::ranges::binary_search(types, one);
  };
  if (!is_new(types_->own, own)) return;
  const auto of_kind =
      std::ranges::count_if(types_->own, [&](ir::VertexType other) { return ir::kind_of(other) == ir::kind_of(own); });
  const bool has_room = of_kind < options_.own_types;
  const ir::VertexType computed_as = has_room ? own : ir::general(function, own);
  std::vector<ir::VertexType>& types = has_room ? types_->own : types_->general;
  if (!is_new(types, computed_as)) return;
  plans_.clear();
  types.insert(std::ranges::lower_bound(types, computed_as), computed_as);
}

void Runner::see_types(InputGraphs::Pointers graphs) {
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    InputGraph::prefetch_after(graphs, g);
    for (std::int32_t t = 0; t < graphs[g]->types_; ++t) see_type(graphs[g]->type(t));
  }
}

const Runner::Planned& Runner::plan_for(InputGraphs::Pointers graphs, Purpose purpose) {
  if (!is_prepared(graphs)) see_types(graphs);
  for (std::size_t n = 0; purpose.training && n < numbers_.size(); ++n) {
    if (parameters_->entry(numbers_[n]).frozen) purpose.frozen.push_back(n);
  }
  auto known = plans_.find(purpose);
  if (known == plans_.end()) {
    std::shared_ptr<const LoweredPlan> lowered = backend_->lower(device_, new_plan(purpose));
    ++stats_.plans;
    stats_.planned_types += static_cast<std::int64_t>(lowered->plan()->types.size());
    forget_a_plan();
    known = plans_.emplace(std::move(purpose), Planned{lowered->plan(), std::move(lowered), 0}).first;
  }
  known->second.used = stats_.minibatches;
  return known->second;
}

/// Drops the least recently used plan if there are many: a lazy program may name different outputs each time.
void Runner::forget_a_plan() {
  constexpr std::size_t most_plans = 32;
  if (plans_.size() < most_plans) return;
  plans_.erase(std::min_element(plans_.begin(), plans_.end(), [](const auto& one, const auto& other) {
    return one.second.used < other.second.used;
  }));
}

std::shared_ptr<const Plan> Runner::new_plan(const Purpose& purpose) const {
  const Optimisations& on = options_.optimisations;
  const ir::Use use = purpose.training ? ir::Use::training : ir::Use::inference;
  ir::Program program = ir::specialise(function_.function_, *types_, specialise(on), use);
  const PlanOptions options = backend_->options_for({.training = purpose.training,
                                                     .eager = on.eager,
                                                     .lazy = on.lazy,
                                                     .slots = on.slots,
                                                     .sharing = on.sharing,
                                                     .fusion = on.fusion,
                                                     .in_place = on.in_place,
                                                     .row_stride = device_.row_stride});
  if (options.in_place && reads_in_place(device_.kernels)) program = ir::read_in_place(program, use);
  if (purpose.training) program = ir::differentiate(program, {purpose.outputs, purpose.frozen});
  auto made = std::make_shared<Plan>(make_plan(std::move(program), options));
  for (TensorSpec& spec : made->tensors) {
    if (spec.is == TensorSpec::Is::parameter) spec.name = parameters_->name(numbers_[spec.number]);
  }
  made->outputs = purpose.outputs;
  return made;
}

void Runner::forget() {
  *types_ = {};
  prepared_.clear();
  plans_.clear();
}

void Runner::hold_back(std::source_location from) {
  while (static_cast<int>(unfinished_.size()) >= options_.ahead) {
    const std::shared_ptr<MinibatchEnd> oldest = unfinished_.front();
    try {
      device_.engine->wait({read(oldest->over.var())}, from);
    } catch (const OpError&) {
      unfinished_.pop_front();
      if (!oldest->failure_told.exchange(true)) throw;
      continue;
    }
    unfinished_.pop_front();
  }
}

namespace {

/// Checks the given tensors, and returns the one for each tensor that the function pulls.
std::vector<const Given*> check_given(const Device& device, const ir::Function& function, const GivenTensors& given,
                                      Index vertices) {
  std::vector<const Given*> result;
  for (const ir::Field& field : function.tensors) {
    const auto found = given.find(field.name);
    const std::string tensor = function.name + ": tensor '" + field.name + "'";
    if (found == given.end()) throw MisuseError(tensor + " is pulled, but was not given");
    const auto& [rows, row_of] = found->second;
    if (rows.width() != field.width) {
      throw MisuseError(tensor + " is " + std::to_string(rows.width()) + " wide; expected " +
                        std::to_string(field.width));
    }
    if (!device.holds(rows)) {
      throw MisuseError(tensor + " is not in the memory of device '" + device.name + "'; expected it there");
    }
    const Index told = row_of.empty() ? rows.rows() : static_cast<Index>(row_of.size());
    const bool any_rows = vertices == 0 && row_of.empty();
    if (told != vertices && !any_rows) {
      throw MisuseError(tensor + " has " + (row_of.empty() ? "" : "a row_of for ") + std::to_string(told) +
                        (row_of.empty() ? " rows" : " vertices") + "; expected " + std::to_string(vertices) +
                        ", the vertices of the minibatch");
    }
    result.push_back(&found->second);
  }
  return result;
}

}  // namespace

std::vector<Tensor> Runner::tensors_of(const Plan& plan, const std::vector<const Given*>& given,
                                       const std::vector<char>& needed) {
  std::vector<Tensor> tensors;
  for (const TensorSpec& spec : plan.tensors) {
    if (spec.is == TensorSpec::Is::derived) {
      const Index rows = needed[tensors.size()] != 0 ? spec.rows : 0;
      tensors.push_back(Tensor(device_, rows, spec.width, OpName("derived")));
      continue;
    }
    if (spec.is == TensorSpec::Is::given) {  // gradients of outputs come later
      tensors.push_back(spec.number < given.size() ? given[spec.number]->rows : Tensor(device_, 0, spec.width));
      continue;
    }
    ParameterStore::Entry& entry = parameters_->entry(numbers_[spec.number]);
    if (spec.is == TensorSpec::Is::gradient && !entry.dense) {
      entry.dense = Tensor(device_, spec.rows, spec.width, OpName("gradient"));
    }
    tensors.push_back(spec.is == TensorSpec::Is::parameter ? entry.value : *entry.dense);
  }
  return tensors;
}

void Runner::require_own(InputGraphs::Pointers graphs) const {
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    if (graphs[g] != nullptr && graphs[g]->function_ == function_.function_) continue;
    throw MisuseError(function_.name() + ": sample " + std::to_string(g) +
                      (graphs[g] == nullptr ? ": no graph" : ": a graph of another vertex function") +
                      "; expected graphs made for this one");
  }
}

LayoutOptions Runner::layout_options() const {
  return {.groups = backend_->takes_groups() ? options_.groups : 1,
          .group_flops = options_.group_flops,
          .schedule = waits_for_more_ && options_.schedule == SchedulePolicy::agenda ? SchedulePolicy::complete
                                                                                     : options_.schedule};
}

std::shared_ptr<Execution> Runner::start(InputGraphs::Pointers graphs, const GivenTensors& given_tensors,
                                         const Purpose& purpose, RowsOf rows, std::source_location from) {
  require_own(graphs);
  Index vertices = 0;
  for (const InputGraph* graph : graphs) vertices += graph->vertices();
  const std::vector<const Given*> given = check_given(device_, *function_.function_, given_tensors, vertices);
  hold_back(from);
  const Planned planned = plan_for(graphs, purpose);
  const auto& [plan, lowered, used] = planned;
  LayoutOptions options = layout_options();
  for (const Given* one : given) options.given.push_back({one->rows.rows(), &one->row_of});
  std::vector<char> announced_rows;
  for (const auto& row_of : rows) announced_rows.push_back(!row_of.empty());
  options.gradient_row_of = std::move(rows);
  if (purpose.training && counts_minibatches_) {
    options.dropout = parameters_->next_dropout(graphs.size());
  }
  Layout layout = layout_of(graphs, planned, options, purpose);

  Execution::Options how{.runner = id_,
                         .number = stats_.minibatches,
                         .batch_rows = options_.batch_rows,
                         .clock = clock_,
                         .origins = std::move(origins_),
                         .keeps_not_finite = purpose.training && parameters_->skips_non_finite(),
                         .combines_gradients = parameters_->of_a_group(),
                         .layouts = layouts_,
                         .kept_gradients = purpose.training ? parameters_->kept_gradients() : std::vector<Access>()};
  std::vector<char> needed = lowered->needed(layout);
  std::vector<Tensor> tensors = tensors_of(*plan, given, needed);
  const std::shared_ptr<Execution> execution =
      lowered->start(std::move(layout), std::move(tensors), std::move(needed), std::move(how));
  for (const Given* one : given) execution->notes().given.push_back({one->rows.rows()});
  execution->notes().announced_rows = std::move(announced_rows);
  ++stats_.minibatches;
  stats_.vertices += execution->layout().vertices;
  stats_.peak_bytes = std::max(stats_.peak_bytes, execution->bytes());
  return execution;
}

Minibatch Runner::run(const Graphs& graphs, const GivenTensors& given, std::source_location from) {
  return Minibatch(forward(graphs.pointers(), given, {}, {}, from));
}

Minibatch Runner::differentiate(const Graphs& graphs, const GivenTensors& given, std::source_location from) {
  const auto execution = start(graphs.pointers(), given, {.training = true}, {}, from);
  parameters_->begin_gradients();
  add_to_gradients(*execution);
  execution->differentiate({options_, stats_, from});
  add_gradients(*execution, from);
  unfinished_.push_back(execution->end());
  return Minibatch(execution);
}

Minibatch Runner::record(const Graphs& graphs, const GivenTensors& given, const std::vector<std::string>& outputs,
                         std::source_location from) {
  std::vector<Announced> announced;
  for (const std::string& output : outputs) announced.push_back({output});
  return record_rows(graphs, given, std::move(announced), from);
}

Minibatch Runner::record_rows(const Graphs& graphs, const GivenTensors& given, std::vector<Announced> outputs,
                              std::source_location from) {
  const auto& all = function_.function_->outputs;
  Purpose purpose{.training = true};
  RowsOf rows(all.size());
  Index vertices = 0;
  for (const InputGraph* graph : graphs.pointers()) vertices += graph == nullptr ? 0 : graph->vertices();
  for (auto& [name, row_of] : outputs) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const ir::Field& field) { return field.name == name; });
    if (found == all.end()) {
      throw MisuseError(function_.name() + ": there is no output '" + name +
                        "'; expected one that the function pushes" + ir::listed(all));
    }
    if (!row_of.empty() && static_cast<Index>(row_of.size()) != vertices) {
      throw MisuseError(function_.name() + ": output '" + name + "' has a row_of for " + std::to_string(row_of.size()) +
                        " vertices; expected " + std::to_string(vertices));
    }
    purpose.outputs.push_back(static_cast<std::size_t>(found - all.begin()));
    rows[purpose.outputs.back()] = std::move(row_of);
  }
  std::sort(purpose.outputs.begin(), purpose.outputs.end());
  purpose.outputs.erase(std::unique(purpose.outputs.begin(), purpose.outputs.end()), purpose.outputs.end());
  return Minibatch(forward(graphs.pointers(), given, purpose, std::move(rows), from));
}

std::shared_ptr<Execution> Runner::forward(InputGraphs::Pointers graphs, const GivenTensors& given,
                                           const Purpose& purpose, RowsOf rows, std::source_location from) {
  const auto execution = start(graphs, given, purpose, std::move(rows), from);
  execution->forward({options_, stats_, from});
  unfinished_.push_back(execution->end());
  return execution;
}

RunnerStats Runner::stats() const {
  RunnerStats stats = stats_;
  if (clock_) stats.times = clock_->times();
  return stats;
}

std::string Runner::describe() const {
  std::string text;
  for (const auto& [purpose, planned] : plans_) text += to_string(*planned.plan);
  return text;
}

}  // namespace windrow
