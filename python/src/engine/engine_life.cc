// The life of engines: from their Python objects to the end of the program, and through forks.
#include <atomic>
#include <list>
#include <mutex>
#include <thread>

#include "python.h"
#include "windrow/ops/device.h"

namespace windrow::python {
namespace {

using Clock = std::chrono::steady_clock;

/// How long ops that have been called off at the end of the program may take to return.
constexpr std::chrono::milliseconds patience_after_call_off{100};
/// How long the engine itself makes a thread that forks wait for pending ops. These cannot get the GIL then; see
/// before_fork().
constexpr std::chrono::seconds patience_in_fork{1};

/// Whether the end of the program has begun.
std::atomic<bool> ending{false};
/// The number of threads that are about to fork. Written with the GIL.
std::atomic<int> forking{0};
thread_local bool forks_here = false;

thread_local int single_pushes = 0;

/// Releases the GIL while a push is held back, since the ops that it waits for may need it. In a call that pushes
/// several ops, also turns off looks for signals, so that no interrupt splits the call. If no op finishes, such a push
/// is held back for EngineOptions::push_patience at most.
std::shared_ptr<void> release_gil_while_held() {
  struct Whole {
    explicit Whole(bool releases) {
      if (releases) without_gil.emplace();
      no_look.emplace();
    }
    std::optional<WithoutGil> without_gil;
    std::optional<LookWhileWaiting> no_look;
  };
  if (has_gil() && single_pushes > 0) return std::make_shared<WithoutGil>();
  return std::make_shared<Whole>(has_gil());
}

/// All engines that are not closed. Guarded by the mutex.
struct Engines {
  std::mutex mutex;
  std::list<std::shared_ptr<EngineObject::State>> all;
};
Engines& engines() {
  static auto* const engines = new Engines();
  return *engines;
}

/// Whether this is the copy in a forked child of an engine with pending ops, which never run in the child.
bool is_unusable(Engine& engine) try {
  EngineUse::wait_until_idle(engine, std::chrono::nanoseconds(0));
  return false;
} catch (const MisuseError&) {
  return true;
}
/// Waits up to `patience` for pending ops, and returns whether none is left that may still run.
bool is_idle(Engine& engine, std::chrono::nanoseconds patience) {
  return is_unusable(engine) || EngineUse::wait_until_idle(engine, patience);
}

void refuse_at_the_end() {
  if (ending && !inside_op()) throw MisuseError("a call of an engine at the end of the program; expected it earlier");
}

/// Waits while another thread is about to fork, which waits for all pending ops: no more may be pushed.
void pass_forks() {
  if (forking == 0 || forks_here || inside_op()) return;
  const WithoutGil without_gil;
  while (forking != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

struct EngineAndDevices {
  explicit EngineAndDevices(EngineOptions&& options) : engine(std::move(options)) {}
  Engine engine;
  std::vector<std::unique_ptr<const Device>> devices;
};

}  // namespace

SinglePush::SinglePush() { ++single_pushes; }
SinglePush::~SinglePush() { --single_pushes; }
bool SinglePush::is_under_way() { return single_pushes > 0; }

std::vector<std::shared_ptr<EngineObject::State>> all_engines() {
  Engines& known = engines();
  const std::lock_guard lock(known.mutex);
  return {known.all.begin(), known.all.end()};
}

std::chrono::nanoseconds nanoseconds_of(double seconds, const char* name) {
  if (!(seconds >= 0 && seconds <= 1e9)) {
    throw MisuseError(std::string(name) + " = " + std::to_string(seconds) + "; expected seconds from 0 to 1e9");
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}

EngineObject::EngineObject(EngineOptions options) : state_(std::make_shared<State>()) {
  refuse_at_the_end();
  options.on_held = release_gil_while_held;
  options.fork_patience = patience_in_fork;
  const auto made = std::make_shared<EngineAndDevices>(std::move(options));
  state_->engine = std::shared_ptr<Engine>(made, &made->engine);
  state_->devices = &made->devices;
  Engines& known = engines();
  const std::lock_guard lock(known.mutex);
  known.all.push_back(state_);
}

EngineObject::~EngineObject() = default;

bool EngineObject::closed() const { return state_->engine == nullptr; }

std::shared_ptr<Engine> EngineObject::share() const {
  pass_forks();
  if (closed()) throw MisuseError("this engine is closed; expected calls before close() and the end of its with block");
  refuse_at_the_end();
  return state_->engine;
}

void EngineObject::close() {
  if (closed()) return;
  const std::shared_ptr<Engine> engine = share();
  if (EngineUse::runs_op(*engine)) throw MisuseError("close() inside an op of this engine; expected it outside");
  if (!inside_op()) {  // otherwise shutdown() waits, which lets other ops run meanwhile
    waiting(no_limit, [&](std::chrono::nanoseconds patience) { return is_idle(*engine, patience); });
  }
  state_->engine = nullptr;
  {
    Engines& known = engines();
    const std::lock_guard lock(known.mutex);
    known.all.remove(state_);
  }
  const WithoutGil without_gil;
  engine->shutdown();
}

EngineObject& default_engine() {
  static EngineObject* engine = nullptr;  // guarded by the GIL; an attribute of the module owns it
  if (engine == nullptr) {
    const nb::module_ module = nb::module_::import_("windrow._engine");
    const nb::object made = module.attr("Engine")();
    if (engine == nullptr) {
      module.attr("_default") = made;
      engine = nb::cast<EngineObject*>(made);
    } else {  // another thread has made one meanwhile
      made.attr("close")();
    }
  }
  return *engine;
}

namespace {

/// Call it at the end of the program, while Python still works, since ops may need Python. An interrupt by the user
/// ends the wait. Returns whether all engines have ended within these seconds.
bool close_all(double seconds) {
  ending = true;
  bool all_ended = true;
  auto until = Clock::now() + nanoseconds_of(seconds, "seconds");
  for (const auto& state : all_engines()) {
    const std::shared_ptr<Engine> engine = state->engine;
    if (engine == nullptr) continue;
    try {
      waiting(std::max(until - Clock::now(), Clock::duration()),
              [&](std::chrono::nanoseconds patience) { return is_idle(*engine, patience); });
    } catch (const CarriesPython&) {
      until = Clock::now();
    }
    if (is_unusable(*engine)) continue;  // there is nothing to end
    const auto call_off = [](const std::string& pending) {
      log_warning("at the end of the program, ops are pending, and those that have not begun are called off; " +
                  pending);
    };
    bool ended = false;
    {
      const WithoutGil without_gil;
      ended = engine->shutdown_for(patience_after_call_off, call_off);
    }
    all_ended &= ended;
    if (ended) state->engine = nullptr;
  }
  all_engines_ended();
  return all_ended;
}

/// Lets pending ops finish before a fork, since they may need the GIL, which the forking thread keeps afterwards. Other
/// threads push no further ops meanwhile. Waits at most these seconds.
void before_fork(double seconds) {
  if (inside_op()) return;
  forks_here = true;
  ++forking;
  const auto until = Clock::now() + nanoseconds_of(seconds, "seconds");
  std::vector<std::shared_ptr<Engine>> engines;
  for (const auto& state : all_engines()) {
    if (state->engine != nullptr) engines.push_back(state->engine);
  }
  const auto all_idle = [&](bool patient) {
    bool idle = true;
    for (const std::shared_ptr<Engine>& engine : engines) {
      const std::chrono::nanoseconds left = patient ? until - Clock::now() : Clock::duration();
      idle &= is_idle(*engine, std::max(left, left.zero()));
    }
    return idle;
  };
  for (bool idle = false; !idle && Clock::now() < until;) {
    {
      const WithoutGil without_gil;
      all_idle(true);
    }
    idle = all_idle(false);  // threads that were held back may have pushed before this one had the GIL
  }
  release_dropped();
}
void after_fork_in_parent() {
  if (std::exchange(forks_here, false)) --forking;
}
void after_fork_in_child() {
  forks_here = false;
  forking = 0;
}

}  // namespace

void bind_engine_life(nb::module_& m) {
  m.def("_becomes_idle", [](EngineObject& engine, double seconds) {
    const std::shared_ptr<Engine> shared = engine.share();
    return waiting(nanoseconds_of(seconds, "seconds"),
                   [&](std::chrono::nanoseconds patience) { return is_idle(*shared, patience); });
  });
  m.def("default_engine", &default_engine, nb::rv_policy::reference,
        nb::sig("def default_engine() -> windrow._engine.Engine"),
        "The engine of all tensors and devices that are made without one. Made by the first call.");
  m.def("_close_all", &close_all, nb::arg("seconds"));
  m.def("_before_fork", &before_fork, nb::arg("seconds"));
  m.def("_after_fork_in_parent", &after_fork_in_parent);
  m.def("_after_fork_in_child", &after_fork_in_child);
}

}  // namespace windrow::python
