// Runners and their minibatches.
#include "windrow/batching/runner.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "batching/graphs.h"
#include "batching/minibatch.h"
#include "batching/parameters.h"
#include "ops/arrays.h"
#include "windrow/batching/internal/ir.h"

namespace windrow::python {

FunctionNames names_of(const VertexFunction& function) {
  const ir::Function& traced = ir::function_of(function);
  NamesOfFunction names{.function = traced.name, .tensors = {}, .outputs = {}};
  for (const ir::Field& field : traced.tensors) names.tensors.push_back(field.name);
  for (const ir::Field& field : traced.outputs) names.outputs.push_back(field.name);
  return std::make_shared<const NamesOfFunction>(std::move(names));
}

namespace {

/// A runner, with the sets whose turns its calls take.
struct RunnerObject {
  std::vector<SharedParameters> sets;
  Device device;
  FunctionNames names;
  std::unique_ptr<Runner> runner;
};

std::vector<SharedParameters> sets_of(nb::handle parameters) {
  if (nb::isinstance<ParametersHandle>(parameters)) return {nb::cast<ParametersHandle>(parameters).shared};
  std::vector<SharedParameters> sets;
  for (const nb::handle one : nb::iter(parameters)) {
    if (!nb::isinstance<ParametersHandle>(one)) {
      throw nb::type_error(("parameters are given as " + std::string(nb::type_name(one.type()).c_str()) +
                            "; expected Parameters, or a list of them")
                               .c_str());
    }
    sets.push_back(nb::cast<ParametersHandle>(one).shared);
  }
  return sets;
}

bool* option_of(Optimisations& all, const std::string& name) {
  const std::pair<const char*, bool*> options[] = {{"specialisation", &all.specialisation},
                                                   {"eager", &all.eager},
                                                   {"lazy", &all.lazy},
                                                   {"slots", &all.slots},
                                                   {"in_place", &all.in_place},
                                                   {"sharing", &all.sharing},
                                                   {"fusion", &all.fusion},
                                                   {"streaming", &all.streaming},
                                                   {"splitting", &all.splitting}};
  std::string names;
  for (const auto& [known, option] : options) {
    if (name == known) return option;
    names += std::string(names.empty() ? "'" : ", '") + known + "'";
  }
  throw MisuseError("without '" + name + "'; expected " + names);
}

/// "'a', 'b'", or "none".
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text.empty() ? "none" : text;
}

Tensor tensor_from(const nb::object& value, const Device& device, const std::string& name) {
  if (nb::isinstance<Tensor>(value)) return nb::cast<Tensor>(value);
  return nb::cast<Tensor>(tensor_of(value, &device, name, "float32"));
}

std::map<std::string, Tensor> tensors_from(const nb::dict& gradients, const Device& device) {
  std::map<std::string, Tensor> all;
  for (const auto& [key, value] : gradients) {
    const auto name = nb::cast<std::string>(key);
    all.emplace(name, tensor_from(nb::borrow(value), device, name));
  }
  return all;
}

std::string text_of_key(nb::handle key, const char* what) {
  if (nb::isinstance<nb::str>(key)) return nb::cast<std::string>(key);
  throw nb::type_error((std::string(what) + " by " + kind_of(key) + "; expected names").c_str());
}

/// Tensors by name: each alone, or with the row that each vertex pulls.
GivenTensors given_from(const std::optional<nb::dict>& given, const RunnerObject& runner) {
  GivenTensors all;
  if (!given) return all;
  const Device& device = runner.device;
  for (const auto& [key, value] : *given) {
    const std::string name = text_of_key(key, "tensors are given");
    if (const auto& pulled = runner.names->tensors; std::ranges::find(pulled, name) == pulled.end()) {
      throw MisuseError(runner.names->function + ": is given '" + name + "', which it does not pull; expected " +
                        listed(pulled) + ", which v.pull_row() names");
    }
    if (!nb::isinstance<nb::tuple>(value)) {
      all.emplace(name, Given{tensor_from(nb::borrow(value), device, name)});
      continue;
    }
    const nb::tuple both = nb::borrow<nb::tuple>(value);
    if (both.size() != 2) {
      throw nb::type_error(("'" + name + "' is a tuple of " + std::to_string(both.size()) +
                            "; expected a tensor, or a tensor and the row that each vertex pulls")
                               .c_str());
    }
    all.emplace(name, Given{tensor_from(both[0], device, name), Column(both[1], "rows of " + name, 1).all()});
  }
  return all;
}

/// The outputs that record() names: a list of names, or a dict from names to the row of each vertex in the gradient.
std::vector<Announced> announced_from(nb::handle outputs) {
  std::vector<Announced> all;
  if (nb::isinstance<nb::str>(outputs)) return {{.output = nb::cast<std::string>(outputs)}};
  if (nb::isinstance<nb::dict>(outputs)) {
    for (const auto& [name, rows] : nb::borrow<nb::dict>(outputs)) {
      Announced& one = all.emplace_back(nb::cast<std::string>(name));
      if (!rows.is_none()) one.row_of = Column(rows, "rows of " + one.output, 1).all();
    }
    return all;
  }
  for (const nb::handle name : nb::iter(outputs)) all.push_back({.output = nb::cast<std::string>(name)});
  return all;
}

/// Calls `call` with the graphs and the line of the call.
template <class Call>
MinibatchObject compute(RunnerObject& of, nb::handle graphs, const Call& call) {
  const GraphsObject all = graphs_from(graphs);
  const std::vector<const InputGraph*> pointers = all.pointers();
  const std::source_location from = calling_line();
  return {of.sets, of.device, in_turn_of_all(of.sets, [&] { return call(*of.runner, InputGraphs(pointers), from); }),
          of.names};
}

MinibatchObject run(RunnerObject& of, nb::handle graphs, const std::optional<nb::dict>& given) {
  const GivenTensors tensors = given_from(given, of);
  return compute(of, graphs,
                 [&](Runner& runner, const InputGraphs& all, auto from) { return runner.run(all, tensors, from); });
}

MinibatchObject differentiate(RunnerObject& of, nb::handle graphs, const std::optional<nb::dict>& given) {
  const GivenTensors tensors = given_from(given, of);
  return compute(of, graphs, [&](Runner& runner, const InputGraphs& all, auto from) {
    return runner.differentiate(all, tensors, from);
  });
}

MinibatchObject record(RunnerObject& of, nb::handle graphs, nb::handle outputs, const std::optional<nb::dict>& given) {
  const GivenTensors tensors = given_from(given, of);
  std::vector<Announced> announced = announced_from(outputs);
  return compute(of, graphs, [&](Runner& runner, const InputGraphs& all, auto from) {
    return runner.record_rows(all, tensors, std::move(announced), from);
  });
}

void backward(RunnerObject& of, const MinibatchObject& minibatch, const nb::dict& gradients, bool add) {
  const std::map<std::string, Tensor> tensors = tensors_from(gradients, of.device);
  const std::source_location from = calling_line();
  in_turn_of_all(of.sets, [&] {
    of.runner->backward(minibatch.minibatch, tensors, add ? Runner::Gradients::add : Runner::Gradients::set, from);
  });
}

GroupedMinibatch grouped(RunnerObject& of, nb::handle graphs) {
  const GraphsObject all = graphs_from(graphs);
  const std::vector<const InputGraph*> pointers = all.pointers();
  return in_turn_of_all(of.sets, [&] { return of.runner->grouped(InputGraphs(pointers)); });
}

RunnerObject runner_of(const VertexFunction& function, nb::handle parameters, const Device* device,
                       RunnerOptions options, const std::vector<std::string>& without) {
  for (const std::string& name : without) *option_of(options.optimisations, name) = false;
  std::vector<SharedParameters> sets = sets_of(parameters);
  if (device == nullptr && !sets.empty()) device = &sets.front()->parameters.device();
  const InUse use(device);
  const Turn turn{std::span<const SharedParameters>(sets)};
  std::vector<std::reference_wrapper<Parameters>> all;
  for (const SharedParameters& set : sets) all.emplace_back(set->parameters);
  const WithoutGil without_gil;
  auto runner = std::make_unique<Runner>(use.device(), function, ParameterSets(all), options);
  return {std::move(sets), use.device(), names_of(function), std::move(runner)};
}

/// Waits with signals handled, so that an interrupt ends it.
double loss(const MinibatchObject& of) {
  const std::source_location from = calling_line();
  const InUse use(&of.device);
  const std::function<double()> pending = of.minibatch.pending_loss(from);
  try {
    wait_for(use.engine(), {{of.minibatch.var(), AccessKind::read}});
  } catch (const OpError&) {  // pending() throws it
  }
  const WithoutGil without_gil;
  return pending();
}

Tensor output(const MinibatchObject& of, const std::string& name, nb::handle rows) {
  const std::source_location from = calling_line();
  std::vector<std::int32_t> row_of;
  if (!rows.is_none()) row_of = Column(rows, "rows of " + name, 1).all();
  if (!rows.is_none() && row_of.empty() && of.minibatch.vertices() > 0) {
    throw MisuseError("output '" + name + "': rows of 0 vertices; expected " + std::to_string(of.minibatch.vertices()));
  }
  return in_turn_of_all(of.sets, [&] { return of.minibatch.output(name, std::move(row_of), from); });
}

nb::dict times_of(const RunnerStats& stats) {
  nb::dict times;
  times["product_ns"] = stats.times.product_ns;
  times["arithmetic_ns"] = stats.times.arithmetic_ns;
  times["move_ns"] = stats.times.move_ns;
  times["arithmetic_bytes"] = stats.times.arithmetic_bytes;
  times["move_bytes"] = stats.times.move_bytes;
  return times;
}

void bind_stats(nb::module_& m) {
  nb::class_<RunnerStats>(m, "RunnerStats",
                          "Counters. Except for times, they count when minibatches are scheduled, not when they run.")
      .def_ro("minibatches", &RunnerStats::minibatches)
      .def_ro("vertices", &RunnerStats::vertices)
      .def_ro("batches", &RunnerStats::batches, "Fused runs of steps over rows of one vertex type.")
      .def_ro("kernels", &RunnerStats::kernels, "Steps of batches.")
      .def_ro("ops", &RunnerStats::ops, "Engine ops.")
      .def_ro("multiply_flops", &RunnerStats::multiply_flops, "Flops of products with rows of vertices.")
      .def_ro("peak_bytes", &RunnerStats::peak_bytes, "The largest memory of a minibatch.")
      .def_ro("schedule_ns", &RunnerStats::schedule_ns, "Host time to make layouts.")
      .def_ro("plans", &RunnerStats::plans)
      .def_ro("planned_types", &RunnerStats::planned_types)
      .def_prop_ro("times", &times_of, nb::for_getter(nb::sig("def times(self) -> dict[str, int]")),
                   "Time and bytes of steps, with the option time_steps.")
      .def("__repr__", [](const RunnerStats& of) {
        const auto many = [](auto number, const char* one, const char* several) {
          return counted(static_cast<std::uint64_t>(number), one, several);
        };
        return "<windrow.RunnerStats: " + many(of.minibatches, "minibatch", "minibatches") + ", " +
               many(of.vertices, "vertex", "vertices") + ", " + many(of.batches, "batch", "batches") + ">";
      });
}

void bind_minibatch(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<MinibatchObject>(m, "Minibatch",
                              "The results of one call of a runner. Made by Runner.run() and others; a handle.")
      .def_prop_ro(
          "vertices", [](const MinibatchObject& of) { return of.minibatch.vertices(); }, "The number of vertices.")
      .def_prop_ro(
          "var", [](const MinibatchObject& of) { return of.minibatch.var(); },
          "A variable for waits: engine.wait(minibatch), or await engine.ready(minibatch).")
      .def("loss", &loss,
           "Waits for the sum of the losses over all vertices, and returns it. Raises OpError if the minibatch failed; "
           "a loss that is infinite or NaN is a failure, whose cause, NotFiniteError, names the vertex.")
      .def("output", &output, "name"_a, "rows"_a = nb::none(),
           nb::sig("def output(self, name: str, rows: ArrayLike | None = None) -> Tensor"),
           "The output of that name: a row for each vertex, in the order of graphs and vertices. `rows` selects "
           "vertices: for each vertex, its row in the result, or -1 for none.")
      .def_prop_ro(
          "names", [](const MinibatchObject& of) { return of.names->outputs; }, "The names of the outputs.")
      .def(
          "__getitem__",
          [](const MinibatchObject& of, const std::string& name) { return output(of, name, nb::none()); }, "name"_a,
          "output(name).")
      .def(
          "__contains__",
          [](const MinibatchObject& of, const std::string& name) {
            return std::ranges::find(of.names->outputs, name) != of.names->outputs.end();
          },
          "name"_a)
      .def(
          "__iter__", [](const MinibatchObject& of) { return nb::iter(nb::cast(of.names->outputs)); },
          nb::sig("def __iter__(self) -> Iterator[str]"))
      .def(
          "at_roots",
          [](const MinibatchObject& of, const std::string& name) {
            const std::source_location from = calling_line();
            return in_turn_of_all(of.sets, [&] { return of.minibatch.at_roots(name, from); });
          },
          "name"_a,
          "The output of the root of each graph, the vertex that is no child of another: a row for each graph. Raises "
          "MisuseError, naming the sample, for a graph with several roots.")
      .def(
          "gradient",
          [](const MinibatchObject& of, const std::string& name) {
            const std::source_location from = calling_line();
            return in_turn_of_all(of.sets, [&] { return of.minibatch.gradient(name, from); });
          },
          "name"_a, "The gradient of a given tensor, in its shape.")
      .def("__repr__", [](const MinibatchObject& of) {
        return "<windrow.Minibatch, " +
               counted(static_cast<std::uint64_t>(of.minibatch.vertices()), "vertex", "vertices") + ", outputs " +
               listed(of.names->outputs) + ">";
      });
}

}  // namespace

void bind_runner(nb::module_& m) {
  using nb::literals::operator""_a;
  bind_stats(m);
  bind_minibatch(m);
  nb::class_<RunnerObject>(m, "Runner")
      .def(
          "__init__",
          [](RunnerObject* self, const VertexFunction& function, nb::handle parameters, const Device* device, int ahead,
             int groups, std::int64_t group_flops, std::int64_t op_flops, std::int64_t split_rows,
             const std::string& schedule, std::int64_t own_types, std::optional<std::int64_t> batch_rows,
             bool time_steps, const std::vector<std::string>& without) {
            const RunnerOptions options{.ahead = ahead,
                                        .groups = groups,
                                        .group_flops = group_flops,
                                        .op_flops = op_flops,
                                        .split_rows = split_rows,
                                        .schedule = parse_schedule_policy(schedule),
                                        .own_types = own_types,
                                        .batch_rows = batch_rows.value_or(INT64_MAX),
                                        .time_steps = time_steps};
            new (self) RunnerObject(runner_of(function, parameters, device, options, without));
          },
          "function"_a, "parameters"_a, "device"_a = nb::none(), nb::kw_only(), "ahead"_a = 2, "groups"_a = 8,
          "group_flops"_a = 80'000'000, "op_flops"_a = 20'000'000, "split_rows"_a = 32, "schedule"_a = "level",
          "own_types"_a = 32, "batch_rows"_a = nb::none(), "time_steps"_a = false,
          "without"_a = std::vector<std::string>(),
          nb::sig("def __init__(self, function: VertexFunction, parameters: Parameters | Iterable[Parameters], "
                  "device: Device | None = None, *, ahead: int = 2, groups: int = 8, group_flops: int = 80000000, "
                  "op_flops: int = 20000000, split_rows: int = 32, schedule: Policy = 'level', own_types: int = 32, "
                  "batch_rows: int | None = None, time_steps: bool = False, without: Sequence[str] = []) -> None"))
      .def("run", &run, "graphs"_a, "given"_a = nb::none(),
           nb::sig("def run(self, graphs: Graphs | InputGraph | Iterable[InputGraph], "
                   "given: dict[str, Given] | None = None) -> Minibatch"))
      .def("differentiate", &differentiate, "graphs"_a, "given"_a = nb::none(),
           nb::sig("def differentiate(self, graphs: Graphs | InputGraph | Iterable[InputGraph], "
                   "given: dict[str, Given] | None = None) -> Minibatch"))
      .def("record", &record, "graphs"_a, "outputs"_a, "given"_a = nb::none(),
           nb::sig("def record(self, graphs: Graphs | InputGraph | Iterable[InputGraph], "
                   "outputs: Sequence[str] | dict[str, ArrayLike | None], given: dict[str, Given] | None = None) "
                   "-> Minibatch"))
      .def("backward", &backward, "minibatch"_a, "gradients"_a, nb::kw_only(), "add"_a = false,
           nb::sig("def backward(self, minibatch: Minibatch, gradients: dict[str, ArrayLike], *, add: bool = False) "
                   "-> None"))
      .def("forget", [](RunnerObject& of) { in_turn_of_all(of.sets, [&] { of.runner->forget(); }); })
      .def("_grouped", &grouped, "graphs"_a,
           nb::sig("def _grouped(self, graphs: Graphs | InputGraph | Iterable[InputGraph]) -> GroupedMinibatch"))
      .def("stats", [](RunnerObject& of) { return in_turn_of_all(of.sets, [&] { return of.runner->stats(); }); })
      .def("describe", [](RunnerObject& of) { return in_turn_of_all(of.sets, [&] { return of.runner->describe(); }); });
}

}  // namespace windrow::python
