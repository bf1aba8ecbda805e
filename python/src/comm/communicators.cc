// Groups of devices and of processes, and their collectives.
#include "comm/communicators.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "ops/arrays.h"
#include "windrow/comm/internal/member.h"
#include "windrow/comm/local.h"
#include "windrow/comm/mpi.h"

namespace windrow::python {

MemberTurn::MemberTurn(Member& member) : mutex_(member.mutex) {
  if (mutex_.try_lock()) return;
  if (inside_op()) throw MisuseError("an op uses a communicator while another thread does; expected one at a time");
  waiting(no_limit, [&](auto patience) { return mutex_.try_lock_for(patience); });
}

namespace {

/// MPI in this process, and the members of its groups that Python holds.
struct World {
  explicit World(std::unique_ptr<MpiWorld> of) : world(std::move(of)), rank(world->rank()), size(world->size()) {}

  std::unique_ptr<MpiWorld> world;  // null once it is closed
  const int rank, size;
  std::vector<std::weak_ptr<Member>> members;
};
using SharedWorld = std::shared_ptr<World>;
struct WorldObject {
  SharedWorld world;
};

struct LocalGroupObject {
  std::vector<CommunicatorObject> members;
};

/// The worlds that are not closed. end_mpi() closes them at the end of the program, when all ops have ended.
std::vector<SharedWorld>& worlds() {
  static auto* const all = new std::vector<SharedWorld>();  // guarded by the GIL
  return *all;
}

void close(const SharedWorld& of) {
  std::erase(worlds(), of);
  for (const std::weak_ptr<Member>& each : of->members) {
    // Tells the other members that no call will follow, although Python may still hold the communicator.
    if (const SharedMember member = each.lock()) member->communicator.member()->leave();
  }
  std::unique_ptr<MpiWorld> ending = std::move(of->world);
  const WithoutGil without_gil;
  ending.reset();  // waits for other processes
}

/// Called at the end of the program. `why` is the exception that ended it; the other processes are told of it.
void end_mpi(const std::optional<std::string>& why) {
  for (const SharedWorld& one : std::vector(worlds())) {
    for (const std::weak_ptr<Member>& each : one->members) {
      if (const SharedMember member = each.lock(); member != nullptr && why) {
        member->communicator.abort("rank " + std::to_string(member->communicator.rank()) + ": " + *why);
      }
    }
    close(one);
  }
}

MpiWorld& open(const World& of) {
  if (of.world == nullptr) throw MisuseError("an MpiWorld that is closed; expected its use before close()");
  return *of.world;
}

CommunicatorObject group(World& of, const Device* device, std::optional<double> patience) {
  MpiWorld& world = open(of);
  const InUse use(device);
  std::optional<Communicator> made;
  {
    const WithoutGil without_gil;
    made = patience ? world.group(use.device(), nanoseconds_of(*patience, "patience")) : world.group(use.device());
  }
  CommunicatorObject object{std::make_shared<Member>(*std::move(made))};
  of.members.push_back(object.member);
  return object;
}

std::vector<Device> host_devices_of(int count, const EngineObject* engine) {
  const EngineObject& of = engine == nullptr ? default_engine() : *engine;
  host_of(of);  // makes the host first, since it must be the first device
  std::vector<Device> devices = host_devices(*of.share(), count);
  for (const Device& device : devices) of.state().devices->push_back(std::make_unique<const Device>(device));
  return devices;
}

Combine combine_of(const std::string& name) {
  if (name == "sum") return Combine::sum;
  if (name == "mean") return Combine::mean;
  if (name == "max") return Combine::max;
  throw MisuseError("combine = '" + name + "'; expected 'sum', 'mean' or 'max'");
}

/// Calls `call` with the communicator, in this thread's turn and with the engine in use.
template <class Call>
auto in_turn(const CommunicatorObject& of, const Call& call) {
  const InUse use(&of.member->communicator.device());
  const MemberTurn turn(*of.member);
  return call(of.member->communicator);
}
/// The same without the GIL, for calls that wait.
template <class Call>
auto waiting_in_turn(const CommunicatorObject& of, const Call& call) {
  return in_turn(of, [&](const Communicator& communicator) {
    const WithoutGil without_gil;
    return call(communicator);
  });
}

/// A tensor, or a list of them.
std::vector<Tensor> tensors_of(nb::handle from) {
  if (nb::isinstance<Tensor>(from)) return {nb::cast<Tensor>(from)};
  return nb::cast<std::vector<Tensor>>(from);
}

void bind_communicator(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<CommunicatorObject>(
      m, "Communicator",
      "A member of a group, made by LocalGroup or MpiWorld.group(). A collective is called once by each member, in the "
      "same order with the same shapes; it pushes an op and returns. If it fails at one member, it fails at all: waits "
      "for its tensors raise OpError, with a CommError as cause. If a member does not call within the group's "
      "patience, the group is broken.")
      .def_prop_ro("rank", [](const CommunicatorObject& of) { return of.member->communicator.rank(); })
      .def_prop_ro(
          "size", [](const CommunicatorObject& of) { return of.member->communicator.size(); }, "The number of members.")
      .def_prop_ro("device", [](const CommunicatorObject& of) { return Device(of.member->communicator.device()); })
      .def(
          "all_reduce",
          [](const CommunicatorObject& of, nb::handle tensors, const std::string& combine) {
            const std::vector<Tensor> all = tensors_of(tensors);
            const CollectiveOptions options{.pushed_at = calling_line()};
            in_turn(of, [&](const Communicator& to) { to.all_reduce(all, combine_of(combine), options); });
          },
          "tensors"_a, "combine"_a = "sum",
          nb::sig("def all_reduce(self, tensors: Tensor | collections.abc.Sequence[Tensor], combine: "
                  "Literal['sum', 'mean', 'max'] = 'sum') -> None"),
          "Replaces the tensors of all members by their sum, mean or maximum.")
      .def(
          "broadcast",
          [](const CommunicatorObject& of, nb::handle tensors, int root) {
            const std::vector<Tensor> all = tensors_of(tensors);
            const CollectiveOptions options{.pushed_at = calling_line()};
            in_turn(of, [&](const Communicator& to) { to.broadcast(all, root, options); });
          },
          "tensors"_a, "root"_a = 0,
          nb::sig("def broadcast(self, tensors: Tensor | collections.abc.Sequence[Tensor], root: int = 0) -> None"),
          "Copies the tensors of member `root` to those of all others.")
      .def(
          "all_gather",
          [](const CommunicatorObject& of, const Tensor& tensor) {
            const CollectiveOptions options{.pushed_at = calling_line()};
            return in_turn(of, [&](const Communicator& by) {
              Tensor all(by.device(), tensor.rows() * by.size(), tensor.width());
              by.all_gather(tensor, all, options);
              return all;
            });
          },
          "tensor"_a, "A new tensor: the rows of member 0, then those of member 1, and so on.")
      .def(
          "exchange",
          [](const CommunicatorObject& of, const std::vector<std::int64_t>& numbers) {
            return waiting_in_turn(of, [&](const Communicator& by) { return by.exchange(numbers); });
          },
          "numbers"_a,
          "Exchanges integers between the programs, independently of ops: returns those of all members, by rank. All "
          "members pass the same number of integers. Waits for the others; raises CommError.")
      .def(
          "barrier",
          [](const CommunicatorObject& of) { waiting_in_turn(of, [](const Communicator& by) { by.barrier(); }); },
          "Waits until all members have called it and their ops have finished. Raises CommError and OpError.")
      .def(
          "abort", [](const CommunicatorObject& of, const std::string& why) { of.member->communicator.abort(why); },
          "why"_a, "Breaks the group: all calls of all members fail with an AbortError of this text.")
      .def("__repr__", [](const CommunicatorObject& of) {
        const Communicator& member = of.member->communicator;
        return "<windrow.Communicator, rank " + std::to_string(member.rank()) + " of " + std::to_string(member.size()) +
               ", on " + member.device().name + ">";
      });
}

}  // namespace

void bind_communicators(nb::module_& m) {
  using nb::literals::operator""_a;
  bind_communicator(m);
  m.def("host_devices", &host_devices_of, "count"_a, "engine"_a = nb::none(),
        "New devices that share the host, each with worker threads of its own, for members of a group.");
  nb::class_<LocalGroupObject>(
      m, "LocalGroup",
      "A group within this process: a sequence of communicators, one for each device. Members that wait for each "
      "other, such as in DataParallel.combine(), need a thread each. `patience`: seconds after which the group breaks "
      "if a member is missing.")
      .def(
          "__init__",
          [](LocalGroupObject* self, const std::vector<Device>& devices, double patience) {
            const LocalGroup group(devices, {.patience = nanoseconds_of(patience, "patience")});
            new (self) LocalGroupObject();
            for (int rank = 0; rank < group.size(); ++rank) {
              self->members.push_back({std::make_shared<Member>(group[rank])});
            }
          },
          "devices"_a, nb::kw_only(), "patience"_a = 600.0)
      .def("__len__", [](const LocalGroupObject& of) { return of.members.size(); })
      .def("__repr__",
           [](const LocalGroupObject& of) {
             return "<windrow.LocalGroup of " + counted(of.members.size(), "member", "members") + ">";
           })
      .def(
          "__getitem__",
          [](const LocalGroupObject& of, std::size_t rank) {
            if (rank >= of.members.size()) throw nb::index_error("a group has no such rank");
            return of.members[rank];
          },
          "rank"_a);
  nb::class_<WorldObject>(m, "MpiWorld")
      .def(
          "__init__",
          [](WorldObject* self, std::optional<std::uintptr_t> address, double patience) {
            const MpiOptions options{.patience = nanoseconds_of(patience, "patience"),
                                     .communicator = reinterpret_cast<const void*>(address.value_or(0))};
            std::unique_ptr<MpiWorld> made;
            {
              const WithoutGil without_gil;
              made = std::make_unique<MpiWorld>(options);
            }
            new (self) WorldObject{std::make_shared<World>(std::move(made))};
            worlds().push_back(self->world);
          },
          "address"_a = nb::none(), "patience"_a = 600.0)
      .def_prop_ro(
          "rank", [](const WorldObject& of) { return of.world->rank; }, "The number of this process, from 0.")
      .def_prop_ro(
          "size", [](const WorldObject& of) { return of.world->size; }, "The number of processes.")
      .def(
          "group",
          [](const WorldObject& of, const Device* device, std::optional<double> patience) {
            return group(*of.world, device, patience);
          },
          "device"_a = nb::none(), nb::kw_only(), "patience"_a = nb::none(),
          "Makes a new group of all processes. This process's member uses `device`, or the host if None. All processes "
          "make these calls in the same order. Waits for them; raises CommError.")
      .def("close", [](const WorldObject& of) { close(of.world); });
  m.def("_end_mpi", &end_mpi, "why"_a = nb::none());
}

}  // namespace windrow::python
