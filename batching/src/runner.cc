#include "windrow/batching/runner.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "batch.h"
#include "ir.h"
#include "plan.h"

namespace windrow {
namespace {

/// Work below which stages of a group share an engine op, in floating point operations: some hundred microseconds.
constexpr Index flops_of_an_op = 20'000'000;
/// What a step does to an element counts as, beside its products.
constexpr Index flops_of_an_element = 20;

/// Pushes a batch's ops, and counts them.
class Push {
 public:
  Push(std::shared_ptr<Batch> batch, RunnerStats& stats, std::source_location from)
      : batch_(std::move(batch)), engine_(*batch_->device().engine), stats_(stats), from_(from) {}

  void memory() {
    push("batch memory", {overwrite(batch_->memory())}, [batch = batch_] { batch->take_memory(); });
  }

  /// What is made of parameters alone. It is rarely needed at once, so whatever else is ready goes first.
  void tensors(const std::vector<TensorStep>& steps, int priority) {
    for (const TensorStep& step : steps) {
      std::vector<Access> accesses;
      if (step.vertex_type >= 0) accesses.push_back(read(batch_->memory()));
      for (const Place& place : step.step.in) {
        if (place.in == Place::In::tensor) accesses.push_back(read(batch_->tensor(place.number).var()));
      }
      const Var out = batch_->tensor(step.out).var();
      accesses.push_back(step.step.write == Write::add ? mutate(out) : overwrite(out));
      push(
          batch_->name_of(step.step), accesses, [batch = batch_, &step] { batch->run(step); }, priority);
      if (step.vertex_type < 0) continue;
      const Index rows = batch_->layout().types[static_cast<std::size_t>(step.vertex_type)].rows;
      stats_.multiply_flops += rows * step.step.flops_a_row;
      ++stats_.kernels;
      ++stats_.batches;
    }
  }

  void group(Index group) {
    const Index levels = batch_->layout().levels;
    std::vector<Stage> stages = {{Phase::eager}};
    for (Index level = 0; level < levels; ++level) stages.push_back({Phase::level, level});
    stages.push_back({Phase::lazy});
    share(group, "forward", stages);
    if (!batch_->plan().training) return;
    stages.clear();
    for (Index level = levels; level-- > 0;) stages.push_back({Phase::back_level, level});
    stages.push_back({Phase::back_lazy});
    share(group, "backward", stages);
  }

  void finish() {
    std::vector<Access> accesses = {mutate(batch_->memory())};
    for (Index g = 0; g < batch_->layout().groups; ++g) accesses.push_back(read(batch_->group(g)));
    for (std::size_t i = 0; i < batch_->plan().tensors.size(); ++i) {
      if (batch_->plan().tensors[i].is == TensorSpec::Is::parameter) accesses.push_back(read(batch_->tensor(i).var()));
    }
    push("loss", accesses, [batch = batch_] { batch->finish(); });
  }

 private:
  /// Cuts the stages into ops that are worth one.
  void share(Index group, OpName name, const std::vector<Stage>& stages) {
    std::vector<Stage> some;
    std::set<std::size_t> tensors;
    Index work = 0;
    const auto push_some = [&] {
      if (some.empty()) return;
      std::vector<Access> accesses = {read(batch_->memory()), mutate(batch_->group(group))};
      for (std::size_t tensor : tensors) accesses.push_back(read(batch_->tensor(tensor).var()));
      push(name, accesses, [batch = batch_, group, stages = std::move(some)] {
        for (const Stage& stage : stages) batch->run(group, stage);
      });
      some.clear();
      tensors.clear();
      work = 0;
    };
    for (const Stage& stage : stages) {
      const Index more = count(group, stage, tensors);
      if (more == 0) continue;
      some.push_back(stage);
      work += more;
      if (work >= flops_of_an_op) push_some();
    }
    push_some();
  }

  /// The work of a stage; the tensors it reads are added to those given.
  Index count(Index group, const Stage& stage, std::set<std::size_t>& tensors) {
    Index work = 0;
    for (std::size_t t = 0; t < batch_->plan().types.size(); ++t) {
      const auto& segments = batch_->plan().types[t].phases[static_cast<std::size_t>(stage.phase)];
      const Batch::Range range = batch_->range(t, group, stage);
      const Index rows = range.end - range.begin;
      if (rows == 0) continue;
      for (const Segment& segment : segments) {
        ++stats_.batches;
        for (const Step& step : segment.steps) {
          work += rows * (step.flops_a_row + flops_of_an_element * std::max<Index>(step.out.width, 1));
          stats_.multiply_flops += rows * step.flops_a_row;
          ++stats_.kernels;
          for (const Place& place : step.in) {
            if (place.in == Place::In::tensor) tensors.insert(place.number);
          }
        }
      }
    }
    return work;
  }

  template <class F>
  void push(OpName name, const std::vector<Access>& accesses, F function, int priority = 0) {
    engine_.push(std::move(function), accesses, {.name = name, .priority = priority, .lane = batch_->device().lane});
    ++stats_.ops;
  }

  std::shared_ptr<Batch> batch_;
  Engine& engine_;
  RunnerStats& stats_;
  const std::source_location from_;
};

void require_option(bool holds, const std::string& what) {
  if (!holds) throw MisuseError("RunnerOptions: " + what);
}

}  // namespace

std::int64_t Minibatch::vertices() const { return batch_->layout().vertices; }

double Minibatch::loss(std::source_location from) const {
  batch_->device().engine->wait({read(batch_->memory())}, from);
  return batch_->loss();
}

Tensor Minibatch::output(const std::string& name, std::source_location from) const {
  const ir::Function& function = *batch_->plan().program.function;
  for (std::size_t p = 0; p < function.pushes.size(); ++p) {
    if (function.pushes[p].name != name) continue;
    const Index width = function.nodes[static_cast<std::size_t>(function.pushes[p].value)].type.width;
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
  const std::uint64_t used = function.function_->parameters;
  if (used != 0 && used != parameters.id_) {
    throw MisuseError(function.name() + " uses other parameters than its runner; expected the same");
  }
}

Runner::~Runner() = default;

const std::shared_ptr<const Plan>& Runner::plan_for(std::span<const Graph* const> graphs, Purpose purpose) {
  std::vector<std::uint32_t> all = types_;
  for (const Graph* graph : graphs) {
    for (std::uint32_t type : graph->types_) {
      const auto place = std::lower_bound(all.begin(), all.end(), type);
      if (place == all.end() || *place != type) all.insert(place, type);
    }
  }
  if (all != types_) {
    types_ = std::move(all);
    for (auto& plan : plans_) plan = nullptr;
  }
  auto& plan = plans_[static_cast<std::size_t>(purpose)];
  if (!plan) {
    const bool training = purpose == Purpose::training;
    ir::Program program = ir::specialise(function_.function_, types_);
    if (training) program = ir::differentiate(program);
    plan = std::make_shared<const Plan>(make_plan(std::move(program), training, device_.kernels));
  }
  return plan;
}

void Runner::hold_back(std::source_location from) {
  while (static_cast<int>(unfinished_.size()) >= options_.ahead) {
    const std::shared_ptr<Batch> oldest = std::move(unfinished_.front());
    unfinished_.pop_front();
    device_.engine->wait({read(oldest->memory())}, from);
  }
}

Minibatch Runner::start(std::span<const Graph* const> graphs, Purpose purpose, std::source_location from) {
  for (const Graph* graph : graphs) {
    if (graph == nullptr || graph->function_ != function_.function_) {
      throw MisuseError(function_.name() + ": a graph of another vertex function; expected graphs made for this one");
    }
  }
  hold_back(from);
  const auto began = std::chrono::steady_clock::now();
  const std::shared_ptr<const Plan> plan = plan_for(graphs, purpose);
  Layout layout = Layout::make(graphs, *plan, options_.groups, options_.group_vertices);
  stats_.schedule_ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();

  std::vector<Tensor> tensors;
  for (const TensorSpec& spec : plan->tensors) {
    if (spec.is == TensorSpec::Is::derived) {
      tensors.push_back(Tensor(device_, spec.rows, spec.width, "derived"));
      continue;
    }
    Parameters::Entry& entry = parameters_.entries_[spec.number];
    if (spec.is == TensorSpec::Is::parameter) {
      tensors.push_back(entry.value);
      continue;
    }
    if (!entry.dense) entry.dense = Tensor(device_, spec.rows, spec.width, "gradient");
    tensors.push_back(*entry.dense);
  }
  const auto batch = std::make_shared<Batch>(device_, plan, std::move(layout), std::move(tensors),
                                             Batch::Options{stats_.minibatches, options_.batch_rows});
  Push push(batch, stats_, from);
  push.memory();
  push.tensors(plan->before, -1);
  for (Index g = 0; g < batch->layout().groups; ++g) push.group(g);
  push.finish();
  if (purpose == Purpose::training) {
    push.tensors(plan->after, 0);
    set_gradients(*batch);
  }
  ++stats_.minibatches;
  stats_.vertices += batch->layout().vertices;
  unfinished_.push_back(batch);
  return Minibatch(batch);
}

void Runner::set_gradients(const Batch& batch) {
  for (Parameters::Entry& entry : parameters_.entries_) entry.gradient = {};
  for (const TensorSpec& spec : batch.plan().tensors) {
    if (spec.is != TensorSpec::Is::gradient) continue;
    Parameters::Entry& entry = parameters_.entries_[spec.number];
    entry.gradient.all = *entry.dense;
  }
  for (const Plan::Rows& rows : batch.plan().rows) {
    const TypeRows& type = batch.layout().types[static_cast<std::size_t>(rows.vertex_type)];
    if (type.rows == 0) continue;
    const IntTensor of(device_, type.rows, 1, "rows");
    of.set(type.indices[rows.index_pull].elements);
    parameters_.entries_[rows.parameter].gradient.rows.push_back({of, batch.rows_of(rows)});
  }
}

Minibatch Runner::run(std::span<const Graph* const> graphs, std::source_location from) {
  return start(graphs, Purpose::inference, from);
}
Minibatch Runner::differentiate(std::span<const Graph* const> graphs, std::source_location from) {
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
