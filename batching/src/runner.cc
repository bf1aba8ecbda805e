#include "windrow/batching/runner.h"

#include <algorithm>
#include <chrono>

#include "batch.h"
#include "ir.h"
#include "plan.h"
#include "push.h"

namespace windrow {
namespace {

void require_option(bool holds, const std::string& what) {
  if (!holds) throw MisuseError("RunnerOptions: " + what);
}

}  // namespace

std::int64_t Minibatch::vertices() const { return batch_->layout().vertices; }

double Minibatch::loss(std::source_location from) const {
  try {
    batch_->device().engine->wait({read(batch_->memory())}, from);
  } catch (const OpError&) {
    batch_->failure_told = true;
    throw;
  }
  return batch_->loss();
}

Tensor Minibatch::output(const std::string& name, std::source_location from) const {
  const ir::Function& function = *batch_->plan().program.function;
  for (std::size_t p = 0; p < function.outputs.size(); ++p) {
    if (function.outputs[p].name != name) continue;
    const Index width = function.outputs[p].width;
    const Tensor out(batch_->device(), vertices(), width, "output");
    batch_->device().engine->push([batch = batch_, p, to = out.view()] { batch->collect(p, to.write()); },
                                  {read(batch_->memory()), overwrite(out.var())},
                                  {.name = "push", .lane = batch_->device().lane, .pushed_at = from});
    return out;
  }
  throw MisuseError(function.name + ": there is no output '" + name + "'; expected one that the function pushes");
}

Runner::Runner(const Device& device, const VertexFunction& function, Parameters& parameters, RunnerOptions options)
    : device_(device), function_(function), parameters_(parameters), options_(options) {
  const auto given = [](const char* name, std::int64_t value) {
    return std::string(name) + " is " + std::to_string(value) + "; expected 1 or more";
  };
  require_option(options.ahead >= 1, given("ahead", options.ahead));
  require_option(options.groups >= 1, given("groups", options.groups));
  require_option(options.group_vertices >= 1, given("group_vertices", options.group_vertices));
  require_option(options.batch_rows >= 1, given("batch_rows", options.batch_rows));
  if (options_.schedule == SchedulePolicy::serial) options_.batch_rows = 1;
  if (device.engine != parameters.device_.engine) {
    throw MisuseError(function.name() + ": its parameters are on another engine than its runner; expected the same");
  }
  ir::check_complete(*function.function_);
  const std::uint64_t used = function.function_->parameters;
  if (used != 0 && used != parameters.id_) {
    throw MisuseError(function.name() + ": uses other parameters than its runner; expected the same");
  }
}

Runner::~Runner() = default;

const std::shared_ptr<const Plan>& Runner::plan_for(std::span<const InputGraph* const> graphs, Purpose purpose) {
  std::vector<ir::VertexType> all = types_;
  for (const InputGraph* graph : graphs) {
    for (ir::VertexType type : graph->types_) {
      const auto place = std::lower_bound(all.begin(), all.end(), type);
      if (place == all.end() || *place != type) all.insert(place, type);
    }
  }
  if (all != types_) {
    types_ = std::move(all);
    for (auto& plan : plans_) plan = nullptr;
    table_.reset();
  }
  auto& plan = plans_[static_cast<std::size_t>(purpose)];
  if (!plan) {
    const bool training = purpose == Purpose::training;
    ir::Program program = ir::specialise(function_.function_, types_);
    if (training) program = ir::differentiate(program);
    auto made = std::make_shared<Plan>(make_plan(std::move(program), training, device_.kernels));
    for (TensorSpec& spec : made->tensors) {
      if (spec.is == TensorSpec::Is::parameter) spec.name = parameters_.entries_[spec.number].name;
    }
    plan = std::move(made);
  }
  return plan;
}

void Runner::hold_back(std::source_location from) {
  while (static_cast<int>(unfinished_.size()) >= options_.ahead) {
    const std::shared_ptr<Batch> oldest = std::move(unfinished_.front());
    unfinished_.pop_front();
    try {
      device_.engine->wait({read(oldest->memory())}, from);
    } catch (const OpError&) {
      if (!oldest->failure_told.exchange(true)) throw;
    }
  }
}

std::vector<Tensor> Runner::tensors_of(const Plan& plan) {
  std::vector<Tensor> tensors;
  for (const TensorSpec& spec : plan.tensors) {
    if (spec.is == TensorSpec::Is::derived) {
      tensors.push_back(Tensor(device_, spec.rows, spec.width, "derived"));
      continue;
    }
    Parameters::Entry& entry = parameters_.entries_[spec.number];
    if (spec.is == TensorSpec::Is::gradient && !entry.dense) {
      entry.dense = Tensor(device_, spec.rows, spec.width, "gradient");
    }
    tensors.push_back(spec.is == TensorSpec::Is::parameter ? entry.value : *entry.dense);
  }
  return tensors;
}

Minibatch Runner::start(std::span<const InputGraph* const> graphs, Purpose purpose, std::source_location from) {
  for (const InputGraph* graph : graphs) {
    if (graph == nullptr || graph->function_ != function_.function_) {
      throw MisuseError(function_.name() + ": a graph of another vertex function; expected graphs made for this one");
    }
  }
  hold_back(from);
  const std::shared_ptr<const Plan> plan = plan_for(graphs, purpose);
  if (options_.schedule == SchedulePolicy::learned && !table_) {
    const TypedGraph example = Layout::typed(graphs, *plan);
    table_ = ScheduleTable::learn({&example, 1});
  }
  const auto began = std::chrono::steady_clock::now();
  Layout layout = Layout::make(graphs, *plan,
                               {.groups = options_.groups,
                                .group_vertices = options_.group_vertices,
                                .schedule = options_.schedule,
                                .table = table_ ? &*table_ : nullptr});
  stats_.schedule_ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();

  const auto batch = std::make_shared<Batch>(device_, plan, std::move(layout), tensors_of(*plan),
                                             Batch::Options{stats_.minibatches, options_.batch_rows});
  Push push(batch, stats_, from);
  push.memory();
  push.before();
  for (Index g = 0; g < batch->layout().groups; ++g) push.group(g);
  push.finish();
  if (purpose == Purpose::training) {
    push.after();
    set_gradients(*batch, from);
  }
  ++stats_.minibatches;
  stats_.vertices += batch->layout().vertices;
  unfinished_.push_back(batch);
  return Minibatch(batch);
}

void Runner::set_gradients(const Batch& batch, std::source_location from) {
  for (Parameters::Entry& entry : parameters_.entries_) entry.gradient = {};
  for (const TensorSpec& spec : batch.plan().tensors) {
    if (spec.is != TensorSpec::Is::gradient) continue;
    Parameters::Entry& entry = parameters_.entries_[spec.number];
    entry.gradient.all = *entry.dense;
  }
  for (const Plan::Rows& rows : batch.plan().rows) {
    const auto type = static_cast<std::size_t>(rows.vertex_type);
    const Index count = batch.layout().count(type, rows.rows.rate);
    if (count == 0) continue;
    const IntTensor of(device_, count, 1, "rows");
    of.set(batch.layout().types[type].indices[rows.index_pull].elements, from);
    ++stats_.ops;
    parameters_.entries_[rows.parameter].gradient.rows.push_back({of, batch.rows_of(rows)});
  }
}

Minibatch Runner::run(std::span<const InputGraph* const> graphs, std::source_location from) {
  return start(graphs, Purpose::inference, from);
}
Minibatch Runner::differentiate(std::span<const InputGraph* const> graphs, std::source_location from) {
  return start(graphs, Purpose::training, from);
}

std::string Runner::describe() const {
  std::string text;
  for (const auto& plan : plans_) {
    if (plan) text += to_string(*plan);
  }
  return text;
}

}  // namespace windrow
