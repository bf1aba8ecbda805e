// The core's front except pushes: variables, queries and the end of the engine.
#include "core/core.h"

#include <algorithm>
#include <limits>
#include <thread>

#include "core/entry.h"
#include "diagnosis/engine_log.h"
#include "graph/capture.h"
#include "policy/slots_free.h"
#include "process/environment.h"
#include "process/exit.h"
#include "trace/environment.h"

namespace windrow {
namespace {

EngineOptions checked(EngineOptions options) {
  if (options.check) options.policy = Policy::serial;
  refuse_wrong_environment(options);
  if (options.workers < 1) {
    throw MisuseError("EngineOptions.workers = " + std::to_string(options.workers) + "; expected 1 or more");
  }
  if (options.max_pending_ops < 1) {
    throw MisuseError("EngineOptions.max_pending_ops = 0; expected 1 or more");
  }
  if (!DenormalsScope::can_flush()) options.denormals = Denormals::keep;
  if (options.max_pending_bytes == 0) options.max_pending_bytes = std::numeric_limits<std::uint64_t>::max();
  if (options.max_spare_threads < 0) {
    throw MisuseError("EngineOptions.max_spare_threads = " + std::to_string(options.max_spare_threads) +
                      "; expected 0 or more");
  }
  options.workers = std::min(options.workers, most_threads);
  options.max_spare_threads = std::min(options.max_spare_threads, most_threads);
  if (options.push_patience.count() < 0)
    throw MisuseError("EngineOptions.push_patience is negative; expected 0 or more");
  if (options.watchdog.count() < 0)
    throw MisuseError("EngineOptions.watchdog is negative; expected 0 for none, or more");
  return options;
}

/// What a thread that ends an engine inside an op of another one does if no thread would be left for that one's ops. A
/// piece of a loop keeps its slot: its op goes on only with the piece, whatever the piece throws.
SlotsFree::IfNobodyIsLeft if_nobody_is_left() {
  const Running* const frame = Running::innermost();
  return frame != nullptr && frame->in_piece ? SlotsFree::IfNobodyIsLeft::keep_them : SlotsFree::IfNobodyIsLeft::refuse;
}

std::uint32_t next_number() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

}  // namespace

Core::Core(EngineOptions given)
    : options(checked(std::move(given))),
      number(next_number()),
      trace_path_(trace_path_from_environment()),
      access_check_(options.check ? std::make_unique<AccessCheck>() : nullptr) {
  engine_log();
  if (options.check) detours_ |= by_check;
  lanes_.emplace_back(*this, host_lane, HostLane{.name = "host", .threads = options.workers});
  host_ = &lanes_.front();
  end_of_graph_.lane = fence_.lane = captures_.lane = host_;
  policy_ = make_policy({.options = options,
                         .ports = ports_,
                         .run = [this](OpRecord& op, Slots& slots) { run(op, &slots); },
                         .out_of_work =
                             [this] {
                               if (trace_.on()) rest_traced();
                               tell_if_idle();
                             }});
  if (options.watchdog.count() > 0) watchdog_ = make_watchdog(*this);
  if (!trace_path_.empty()) start_trace({});
  WaitGraph::of_process().add_engine(*this);
  Forks::of_process().add(*this);
  watch_exit_of_this_thread();
}

Core::~Core() {
  link_->end();
  Forks::of_process().remove(*this);
  WaitGraph::of_process().remove_engine(*this);
}

Var Core::new_var(OpName name) {
  refuse_torn();
  const Var var = make_var(name);
  Port& port = ports_.mine();
  if (port.busy == Port::Busy::capturing) port.capture->made(var);
  return var;
}

Var Core::make_var(OpName name) {
  MutexLock lock(table_mutex_);
  const bool fresh = free_vars_.empty();
  if (fresh) {
    vars_.emplace_back().owner = number;
    if (free_vars_.capacity() < vars_.size()) free_vars_.reserve(2 * vars_.size());  // so that free() needs no memory
    free_vars_.push_back(&vars_.back());
  }
  VarState& var = *free_vars_.back();
  if (fresh) {
    free_vars_.pop_back();
    var.name = name.c_str();
    return Var(&var, 0);
  }
  const Entry entry(*this);
  free_vars_.pop_back();
  Dep::revive(var, entry.joiners());
  var.name = name.c_str();
  return Var(&var, Dep::generation(var, entry.joiners()));
}

void Core::free(VarState& var) {
  MutexLock lock(table_mutex_);
  free_vars_.push_back(&var);
}

VarState& Core::alive(Var var, const PushOptions& how) {
  refuse_torn();
  Port& port = ports_.mine();
  const OpInfo& about = info(port, how);
  check(var, about);
  const Entry entry(*this, port);
  if (Dep::generation(*var.state_, entry.joiners()) != var.generation_) {
    throw MisuseError(site(about) + " names a variable, which was retired");
  }
  return *var.state_;
}

std::uint64_t Core::version(Var var, const PushOptions& how) {
  return alive(var, how).version.load(std::memory_order_acquire);
}

std::uint64_t Core::pushed_version(Var var, const PushOptions& how) {
  VarState& state = alive(var, how);
  const Entry entry(*this, ports_.mine());
  return Dep::written(state, entry.joiners());
}

void Core::watch(Var var, std::span<std::byte> bytes, const PushOptions& how) {
  refuse_torn();
  const OpInfo& about = info(ports_.mine(), how);
  check(var, about);
  if (!watch_unless_retired(var, bytes)) throw MisuseError(site(about) + " names a variable, which was retired");
}

bool Core::watch_unless_retired(Var var, std::span<std::byte> bytes) {
  const auto is_var = [&](const Dep::Access& access) { return &var_of(access) == var.state_; };
  const Running* const frame = frame_of_mine();
  const bool held = frame != nullptr && std::ranges::any_of(frame->op->touches(), is_var);
  // Ops of a graph know the graph's own variables only by handles of the generation at the capture.
  const bool owned = held && frame->op->body() == OpRecord::Body::node;
  std::uint32_t generation = 0;
  {
    const Entry entry(*this, ports_.mine());
    generation = Dep::generation(*var.state_, entry.joiners());
  }
  // While the op has access, a retire of the variable may have been pushed, but no later life can have begun.
  const std::uint32_t ahead = generation - var.generation_;
  if (ahead != 0 && !(held && ahead == 1) && !(owned && ahead == 2)) return false;
  if (access_check_) access_check_->watch(*var.state_, bytes);
  return true;
}

void Core::refuse_inside(const char* call) const {
  if (const Running* frame = frame_of_mine()) {
    throw MisuseError(call + (" inside " + site(frame->op->info())) + " would wait for that op itself");
  }
}

void Core::shutdown() {
  if (fork_gate_.torn()) return;
  refuse_inside("shutdown");
  const SlotsFree slots(if_nobody_is_left());  // this may be called inside an op of another engine
  MutexLock lock(shutdown_mutex_);
  shut_down(std::nullopt);
}

bool Core::shutdown_for(std::chrono::nanoseconds patience, const std::function<void(std::string)>& abort) {
  if (patience < patience.zero()) {
    throw MisuseError("shutdown_for: " + std::to_string(patience.count()) + " ns; expected 0 or more");
  }
  if (fork_gate_.torn()) return false;
  refuse_inside("shutdown_for");
  const SlotsFree slots(if_nobody_is_left());
  bool ended = false;
  std::exception_ptr error;  // the first one: each step is taken whatever became of those before
  const auto attempt = [&](auto&& step) {
    try {
      step();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  attempt([&] { ended = shut_down_in_time(patience); });
  if (ended) return true;
  detours_ |= by_end;
  std::string pending;
  attempt([&] { pending = describe_pending(); });
  attempt([&] {
    if (abort) return abort(std::move(pending));
    engine_log().warn("windrow: shutdown has waited {} ms, and calls off what has not begun; {}",
                      std::chrono::duration_cast<std::chrono::milliseconds>(patience).count(), pending);
  });
  attempt([&] { ended = shut_down_in_time(patience); });
  left_ = !ended;
  if (error) std::rethrow_exception(error);
  return ended;
}

/// The same for a thread that must not wait for longer than this.
bool Core::shut_down_in_time(std::chrono::nanoseconds patience) {
  const Deadline deadline = deadline_after(patience);
  while (!shutdown_mutex_.try_lock()) {  // another thread waits in shutdown()
    if (has_passed(deadline)) return life_ == Life::stopped;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const MutexLock lock(shutdown_mutex_, MutexLock::Held{});
  return shut_down(deadline);
}

bool Core::shut_down(Deadline deadline) {
  if (life_ == Life::stopped) return true;
  do {
    set_life(Life::draining);
    if (!drain(deadline)) return false;
    set_life(Life::stopped);
  } while (ports_.sums().pending != 0);              // true if a retire was pushed in between
  while (visitors_ != 0) std::this_thread::yield();  // a short wait: each visitor is about to leave
  policy_->stop();
  if (watchdog_) watchdog_->stop();
  return true;
}

void Core::set_life(Life life) {
  life_ = life;
  const Ports::Stopped stopped(ports_);  // pushes that were under way have entered; later ones see the new life
}

bool Core::drain(Deadline deadline) {
  for (;;) {
    const auto notice = std::chrono::steady_clock::now() + shutdown_notice;
    if (wait_until_idle(deadline ? std::min(*deadline, notice) : notice)) break;
    if (has_passed(deadline)) return false;
    engine_log().warn("windrow: shutdown still waits for {} pending ops", ports_.sums().pending);
  }
  const std::size_t count = lanes();
  for (std::size_t i = 0; i < count; ++i) {
    const Point last = lane_at(i).last();
    if (!last) continue;
    std::exception_ptr failure;  // which waits report
    if (!deadline) {
      reach(last);
    } else if (!wait_until_reached(last, deadline, failure)) {
      return false;
    }
  }
  return true;
}

EngineStats Core::stats() const {
  const Ports::Sums sums = ports_.sums();
  return {.pushed = sums.pushed,
          .pending = sums.pending - sums.waits,
          .pending_bytes = pending_bytes_.sum(),
          .failed = failed_,
          .skipped = skipped_,
          .cancelled = cancelled_,
          .waits = waits_,
          .waits_in_ops = waits_in_ops_,
          .spare_threads = static_cast<std::uint64_t>(policy_->spares())};
}

bool Core::end() noexcept {
  if (fork_gate_.torn()) return false;
  bool ended = false;
  try {
    if (left_) {
      const SlotsFree slots(if_nobody_is_left());
      ended = shut_down_in_time(std::chrono::nanoseconds::zero());  // what was left behind may have ended since
    } else {
      shutdown();
      ended = true;
    }
    if (!ended && !engines_rest()) {
      engine_log().error("windrow: an engine is leaked, since ops are pending for which shutdown_for() has not waited");
    }
  } catch (const std::exception& e) {
    engine_log().error("windrow: an engine cannot end and is leaked: {}", e.what());
  }
  if (!ended) leave_behind();
  save_trace_for_environment();
  try {
    for (const FailurePtr& failure : failures_.unreported()) {
      engine_log().warn("windrow: nobody waited for this: {}", failure->describe());
    }
  } catch (const std::exception& e) {
    engine_log().error("windrow: a failure nobody waited for cannot be described: {}", e.what());
  }
  return ended;
}

void Core::leave_behind() noexcept {
  left_ = true;
  detours_ |= by_end | by_leak;
  if (watchdog_) watchdog_->stop();
}

}  // namespace windrow
