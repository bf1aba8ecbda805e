// Minibatches as schedules see them, and schedules.
#include "windrow/batching/schedule.h"

#include <nanobind/stl/vector.h>

#include <algorithm>

#include "batching/graphs.h"
#include "windrow/batching/runner.h"

namespace windrow::python {
namespace {

nb::list batches_of(const Schedule& schedule) {
  nb::list all;
  for (const Schedule::Batch& batch : schedule.batches) {
    all.append(nb::make_tuple(batch.type, batch.begin, batch.end));
  }
  return all;
}

}  // namespace

void bind_schedule(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<TypedGraph>(m, "TypedGraph", "Vertices with their types and children, as schedules see them.")
      .def(
          "__init__",
          [](TypedGraph* self, nb::handle type, nb::handle child_offsets, nb::handle children) {
            const std::vector<std::int32_t> types = Column(type, "type", 1).all();
            std::int32_t count = 0;
            for (const std::int32_t t : types) count = std::max(count, t + 1);
            new (self) TypedGraph{.types = count,
                                  .type = types,
                                  .child_begin = Column(child_offsets, "child_offsets", 1).all(),
                                  .children = Column(children, "children", 1).all()};
          },
          "type"_a, "child_offsets"_a, "children"_a,
          nb::sig("def __init__(self, type: ArrayLike, child_offsets: ArrayLike, children: ArrayLike) -> None"))
      .def_prop_ro("vertices", &TypedGraph::vertices)
      .def_ro("types", &TypedGraph::types, "The number of types.")
      .def_ro("type", &TypedGraph::type, "The type of each vertex.")
      .def_ro("child_offsets", &TypedGraph::child_begin)
      .def_ro("children", &TypedGraph::children)
      .def("__repr__", [](const TypedGraph& of) {
        return "<windrow.TypedGraph, " + counted(static_cast<std::uint64_t>(of.vertices()), "vertex", "vertices") +
               ", " + counted(static_cast<std::uint64_t>(of.types), "type", "types") + ">";
      });
  nb::class_<Schedule>(m, "Schedule", "The batches in which vertices are computed. Made by make_schedule().")
      .def_ro("order", &Schedule::order, "Each vertex once, after all its children.")
      .def_prop_ro("batches", &batches_of, nb::for_getter(nb::sig("def batches(self) -> list[tuple[int, int, int]]")),
                   "For each batch its type, and its range in `order`: (type, begin, end).")
      .def_prop_ro("mean_width", &Schedule::mean_width, "Vertices per batch.")
      .def("__len__", [](const Schedule& of) { return of.batches.size(); })
      .def("__repr__", [](const Schedule& of) {
        return "<windrow.Schedule, " + counted(of.order.size(), "vertex", "vertices") + " in " +
               counted(of.batches.size(), "batch", "batches") + ">";
      });
  m.def(
      "make_schedule",
      [](const TypedGraph& graph, const std::string& policy) {
        const SchedulePolicy how = parse_schedule_policy(policy);
        const WithoutGil without_gil;
        return make_schedule(graph, how);
      },
      "graph"_a, "policy"_a = "level",
      nb::sig("def make_schedule(graph: TypedGraph, policy: Policy = 'level') -> Schedule"),
      "Divides a graph into batches of vertices of one type that do not depend on each other. `policy` is 'level', "
      "'depth', 'agenda', 'complete' or 'serial'.");
  m.def("fewest_batches", &fewest_batches, "graph"_a, "A lower bound on the number of batches of any schedule.");
  nb::class_<GroupedMinibatch>(m, "GroupedMinibatch", "How a runner divides a minibatch. Made by Runner.batches().")
      .def_ro("types", &GroupedMinibatch::types, "A readable name of each vertex type.")
      .def_ro("groups", &GroupedMinibatch::groups,
              "A TypedGraph for each group of consecutive samples, whose batches are separate.")
      .def("__repr__", [](const GroupedMinibatch& of) {
        return "<windrow.GroupedMinibatch, " + counted(of.groups.size(), "group", "groups") + ", " +
               counted(of.types.size(), "type", "types") + ">";
      });
}

}  // namespace windrow::python
