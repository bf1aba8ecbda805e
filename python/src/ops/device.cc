// Devices, and the engines behind tensors.
#include <algorithm>

#include "ops/arrays.h"

namespace windrow::python {
namespace {

using State = EngineObject::State;

/// The state of an engine that is not closed. First tries the engine found last, since most programs use only one.
State& find(const Engine* engine) {
  static auto* const last = new std::shared_ptr<State>();  // guarded by the GIL
  if (engine != nullptr && *last != nullptr && (*last)->engine.get() == engine) return **last;
  for (const std::shared_ptr<State>& state : all_engines()) {
    if (engine != nullptr && state->engine.get() == engine) return *(*last = state);
  }
  throw MisuseError("a tensor or device of an engine that is closed; expected its use before close()");
}

const Device& host_of(const State& state) {
  if (state.devices->empty()) state.devices->push_back(std::make_unique<const Device>(host_device(*state.engine)));
  return *state.devices->front();
}

bool same(const Device& a, const Device& b) { return a.engine == b.engine && a.lane == b.lane && a.memory == b.memory; }

}  // namespace

const Device& host_of(const EngineObject& engine) {
  engine.share();  // throws if it is closed
  return host_of(engine.state());
}

InUse::InUse(const Engine& engine, LaneId lane) {
  const State& state = find(&engine);
  engine_ = state.engine;
  const auto of_lane = [&](const auto& device) { return device->memory_lane() == lane; };
  const auto found = std::ranges::find_if(*state.devices, of_lane);
  device_ = found == state.devices->end() ? &host_of(state) : found->get();
}

InUse::InUse(const Device* device) {
  if (device == nullptr) {
    const EngineObject& engine = default_engine();
    engine_ = engine.share();
    device_ = &host_of(engine.state());
    return;
  }
  engine_ = find(device->engine.get()).engine;
  given_ = std::make_shared<const Device>(*device);
  device_ = given_.get();
}

void bind_devices(nb::module_& m) {
  nb::class_<Device>(m, "Device", "A place where tensors are stored and their ops run. Made by windrow.host().")
      .def_prop_ro("name", [](const Device& device) { return device.name; })
      .def(
          "__eq__", [](const Device& a, const Device& b) { return same(a, b); }, nb::is_operator(),
          nb::sig("def __eq__(self, arg: object, /) -> bool"))
      .def("__hash__", [](const Device& device) { return std::hash<const void*>()(device.memory.get()); })
      .def("__repr__", [](const Device& device) { return "<windrow.Device " + device.name + ">"; });
  m.def(
      "host", [](const EngineObject* engine) { return host_of(engine == nullptr ? default_engine() : *engine); },
      nb::arg("engine") = nb::none(),
      "The host as the device of an engine; of the default engine if none is given. Calls for one engine return "
      "equal devices, which share one pool of memory.");
}

}  // namespace windrow::python
