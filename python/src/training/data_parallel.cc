// Data-parallel training, by processes and by devices.
#include "windrow/training/data_parallel.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "batching/graphs.h"
#include "batching/minibatch.h"
#include "comm/communicators.h"
#include "ops/arrays.h"
#include "training/optimisers.h"
#include "windrow/training/replicas.h"

namespace windrow::python {
namespace {

/// A DataParallel, with the objects that it refers to, which must end after it.
struct DataParallelObject {
  SharedParameters set;
  std::shared_ptr<Optimiser> sharded;
  SharedMember member;
  std::unique_ptr<DataParallel> parallel;
};

DataParallelOptions options_of(std::size_t bucket_bytes, std::size_t part_bytes, bool bfloat16) {
  DataParallelOptions options{.bucket_bytes = bucket_bytes, .part_bytes = part_bytes};
  if (bfloat16) options.compression.form = Compression::Form::bfloat16;
  return options;
}

/// Calls `call` without the GIL, in this thread's turn with the parameters and the communicator.
template <class Call>
auto in_turn_of_both(const SharedParameters& set, const SharedMember& member, const Call& call) {
  const InUse use(&set->parameters.device());
  const Turn turn(*set);
  const MemberTurn of_member(*member);
  const WithoutGil without_gil;
  return call();
}

DataParallelObject data_parallel_of(const CommunicatorObject& communicator, const ParametersHandle& parameters,
                                    const OptimiserObject* sharded, DataParallelOptions options) {
  const SharedParameters& set = parameters.shared;
  if (sharded != nullptr && sharded->set != set) {
    throw MisuseError("DataParallel: an optimiser of other parameters; expected that of the set");
  }
  if (sharded != nullptr) options.sharded = sharded->optimiser.get();
  auto made = in_turn_of_both(set, communicator.member, [&] {
    return std::make_unique<DataParallel>(communicator.member->communicator, set->parameters, options);
  });
  return {set, sharded == nullptr ? nullptr : sharded->optimiser, communicator.member, std::move(made)};
}

void bind_of_members(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<DataParallelObject>(m, "DataParallel")
      .def(
          "__init__",
          [](DataParallelObject* self, const CommunicatorObject& communicator, const ParametersHandle& parameters,
             const OptimiserObject* sharded, std::size_t bucket_bytes, std::size_t part_bytes, bool bfloat16) {
            new (self) DataParallelObject(
                data_parallel_of(communicator, parameters, sharded, options_of(bucket_bytes, part_bytes, bfloat16)));
          },
          "communicator"_a, "parameters"_a, nb::kw_only(), "sharded"_a = nb::none(), "bucket_bytes"_a = 4 << 20,
          "part_bytes"_a = 1 << 20, "bfloat16"_a = false)
      .def(
          "combine",
          [](const DataParallelObject& of, std::size_t samples) {
            const std::source_location from = calling_line();
            return in_turn_of_both(of.set, of.member, [&] { return of.parallel->combine(samples, from); });
          },
          "samples"_a,
          "Replaces the gradients of the last minibatch, whose loss is a sum over `samples` samples, by their sums "
          "over all members. Returns the number of samples of all members, for Optimiser.step(). Waits until the other "
          "members have called it, but not for ops. A member without samples differentiates an empty minibatch first. "
          "With `accumulate`, call it only before calls of step() that take a step: see Optimiser.takes_step. Raises "
          "CommError.")
      .def(
          "average",
          [](const DataParallelObject& of) {
            const std::source_location from = calling_line();
            in_turn_of_both(of.set, of.member, [&] { of.parallel->average(from); });
          },
          "Replaces the parameters of all members by their means: for members that take steps along their own "
          "gradients, and call this every few steps instead of combine().");
}

/// Replicas, with the objects that they refer to, which must end after them.
struct ReplicasObject {
  std::vector<SharedParameters> sets;
  std::vector<std::shared_ptr<Optimiser>> optimisers;
  FunctionNames names;
  std::unique_ptr<Replicas> replicas;
};

ReplicasObject replicas_of(const VertexFunction& function, const std::vector<const ParametersHandle*>& parameters,
                           const std::vector<const OptimiserObject*>& optimisers, ReplicasOptions options) {
  ReplicasObject made;
  made.names = names_of(function);
  std::vector<Replica> all;
  if (parameters.empty() || parameters.size() != optimisers.size()) {
    throw MisuseError("Replicas: " + std::to_string(parameters.size()) + " sets of parameters and " +
                      std::to_string(optimisers.size()) + " optimisers; expected equally many");
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i] == nullptr || optimisers[i] == nullptr) throw nb::type_error("Replicas: None in a list");
    if (optimisers[i]->set != parameters[i]->shared) {
      throw MisuseError("Replicas: an optimiser of other parameters; expected one that optimiser(parameters) makes");
    }
    made.sets.push_back(parameters[i]->shared);
    made.optimisers.push_back(optimisers[i]->optimiser);
    all.push_back({made.sets.back()->parameters, *made.optimisers.back()});
  }
  made.replicas =
      in_turn_of_all(made.sets, [&] { return std::make_unique<Replicas>(function, all, std::move(options)); });
  return made;
}

nb::list step(const ReplicasObject& of, nb::handle graphs) {
  const GraphsObject all = graphs_from(graphs);
  const std::vector<const InputGraph*> pointers = all.pointers();
  const std::source_location from = calling_line();
  std::vector<Minibatch> made = in_turn_of_all(of.sets, [&] { return of.replicas->step(InputGraphs(pointers), from); });
  nb::list minibatches;
  for (std::size_t i = 0; i < made.size(); ++i) {
    minibatches.append(MinibatchObject{{of.sets[i]}, of.sets[i]->parameters.device(), std::move(made[i]), of.names});
  }
  return minibatches;
}

}  // namespace

void bind_data_parallel(nb::module_& m) {
  using nb::literals::operator""_a;
  bind_of_members(m);
  nb::class_<ReplicasObject>(m, "Replicas")
      .def(
          "__init__",
          [](ReplicasObject* self, const VertexFunction& function,
             const std::vector<const ParametersHandle*>& parameters,
             const std::vector<const OptimiserObject*>& optimisers, bool sharded, std::size_t bucket_bytes) {
            new (self)
                ReplicasObject(replicas_of(function, parameters, optimisers,
                                           {.data_parallel = {.bucket_bytes = bucket_bytes}, .sharded = sharded}));
          },
          "function"_a, "parameters"_a, "optimisers"_a, nb::kw_only(), "sharded"_a, "bucket_bytes"_a)
      .def("step", &step, "graphs"_a,
           nb::sig("def step(self, graphs: Graphs | collections.abc.Sequence[InputGraph]) -> list[Minibatch]"));
}

}  // namespace windrow::python
