#include "lane/lanes.h"

#include <algorithm>
#include <mutex>
#include <thread>
#include <utility>

#include "core/core.h"
#include "core/entry.h"
#include "policy/slots_free.h"
#include "wait/naps.h"

namespace windrow {

bool LaneState::has_room() {
  if (last_.serial - known_reached_ < max_in_flight) return true;
  const std::uint64_t enough = last_.serial - max_in_flight + 1;
  if (!ordered->reached({ordered.get(), enough})) return false;
  known_reached_ = enough;
  return true;
}

bool LaneState::admit(OpRecord& op) {
  if (!ordered) return true;
  Point room;
  {
    MutexLock lock(mutex_);
    if (taken_) {
      waiting_.put(op);
      return false;
    }
    taken_ = true;
    if (op.after_end || has_room()) return true;
    waiting_.put(op);
    room = point_of_room();
  }
  resume_behind(room);
  return false;
}

Point LaneState::record() {
  const Point point = ordered->record();
  MutexLock lock(mutex_);
  return last_ = point;
}

OpRecord* LaneState::release(Room room) {
  if (!ordered) return nullptr;
  Point awaited;
  {
    MutexLock lock(mutex_);
    if (waiting_.empty()) {
      taken_ = false;
      return nullptr;
    }
    if (room == Room::ignore || has_room()) return &waiting_.take();
    awaited = point_of_room();
  }
  resume_behind(awaited);
  return nullptr;
}

void LaneState::resume_behind(Point point) {
  // An op waits here, so the engine does not end before the callback. The capture is one pointer, for which
  // std::function needs no memory.
  ordered->when_reached(point, [this](const std::exception_ptr&) { core->resume(*this); });
}

void LaneState::keep(OpRecord& op) noexcept {
  const std::uint64_t serial = op.kept().point;  // the op may end as soon as it is kept
  bool asks = false;
  {
    MutexLock lock(mutex_);
    (first_kept_ == nullptr ? first_kept_ : last_kept_->kept().next) = &op;
    last_kept_ = &op;
    asks = std::exchange(asks_for_kept_, true);
  }
  if (asks) {
    ordered->anticipate({ordered.get(), serial});
  } else {
    end_kept_behind(serial);
  }
}

OpRecord* LaneState::take_kept() noexcept {
  // An answer serves several ops.
  constexpr std::uint64_t most_at_once = 32;
  OpRecord *first = nullptr, *last = nullptr;
  std::uint64_t serial = 0;
  {
    MutexLock lock(mutex_);
    first = first_kept_;
    while (first_kept_ != nullptr && ordered->reached({ordered.get(), first_kept_->kept().point})) {
      last = first_kept_;
      first_kept_ = last->kept().next;
    }
    asks_for_kept_ = first_kept_ != nullptr;
    if (asks_for_kept_) {
      serial = std::max(first_kept_->kept().point,
                        std::min(first_kept_->kept().point + most_at_once, last_kept_->kept().point));
    }
  }
  if (last != nullptr) last->kept().next = nullptr;
  if (serial != 0) end_kept_behind(serial);
  return last != nullptr ? first : nullptr;
}

void LaneState::end_kept_behind(std::uint64_t serial) noexcept {
  // What is kept counts as pending, so the engine does not end before the callback. The capture is one pointer, for
  // which std::function needs no memory.
  ordered->when_reached({ordered.get(), serial}, [this](const std::exception_ptr&) { core->end_kept(*this); });
}

bool LaneState::close_if_idle() {
  MutexLock lock(mutex_);
  if (!taken_) closed = true;
  return closed;
}

MisuseError LaneState::removed_error() const {
  return MisuseError("lane '" + host.name + "' was removed from its engine; expected a lane that was not");
}

Point LaneState::last() const {
  MutexLock lock(mutex_);
  return last_;
}

LaneState::Reached LaneState::reached() const {
  const Point last = this->last();
  if (!last) return {};
  std::uint64_t reached = 0, open = last.serial + 1;  // `reached` is reached, `open` is not
  if (ordered->reached(last)) return {last.serial, last.serial};
  while (open - reached > 1) {
    const std::uint64_t middle = reached + (open - reached) / 2;
    (ordered->reached({ordered.get(), middle}) ? reached : open) = middle;
  }
  return {reached, last.serial};
}

FailurePtr LaneState::failure(FailureLog& log, const std::exception_ptr& error) {
  MutexLock lock(mutex_);
  if (!failure_) failure_ = log.lane(host.name, error);
  return failure_;
}

std::size_t marks_before(const Dep::Access& access) {
  std::lock_guard lock(var_of(access).residue_lock);
  const Residue* residue = var_of(access).residue.get();
  if (residue == nullptr) return 0;
  return 1 + (access.writes() ? residue->readers.size() : 0);
}

std::optional<Mark> mark_before(const Dep::Access& access, std::size_t index) {
  std::lock_guard lock(var_of(access).residue_lock);
  const Residue& residue = *var_of(access).residue;
  return index == 0 ? residue.writer : residue.readers[index - 1];
}

bool is_apart_from_lanes(OpRecord& op) {
  if (op.info().lane->ordered) return false;
  const auto is_marked = [](const Dep::Access& access) {
    return var_of(access).marked.load(std::memory_order_relaxed);
  };
  const std::span<Dep::Access> accesses = op.touches();
  return std::none_of(accesses.begin(), accesses.end(), is_marked);
}

void reserve_marks(OpRecord& op, std::size_t lanes) {
  for (Dep::Access& access : op.touches()) {
    auto& residue = var_of(access).residue;
    auto fresh = var_of(access).marked.load(std::memory_order_relaxed) ? nullptr : std::make_unique<Residue>();
    std::lock_guard lock(var_of(access).residue_lock);
    if (!residue) residue = fresh != nullptr ? std::move(fresh) : std::make_unique<Residue>();
    residue->readers.reserve(lanes);
    var_of(access).marked.store(true, std::memory_order_relaxed);
  }
}

void leave_mark(VarState& var, AccessKind kind, const Mark& mark) noexcept {
  Residue& residue = *var.residue;
  if (kind != AccessKind::read) {
    residue.writer = mark;
    residue.readers.clear();
    return;
  }
  const auto same_lane = std::find_if(residue.readers.begin(), residue.readers.end(),
                                      [&](const Mark& m) { return m.point.lane == mark.point.lane; });
  if (same_lane != residue.readers.end()) {
    *same_lane = mark;
  } else if (residue.readers.size() < residue.readers.capacity()) {
    residue.readers.push_back(mark);
  }
}

void drop_marks(VarState& var) {
  var.residue.reset();
  var.marked.store(false, std::memory_order_relaxed);
}

void clear_marks(VarState& var, AccessKind kind) {
  if (!var.residue) return;
  if (kind != AccessKind::read) {
    drop_marks(var);
  } else {
    var.residue->writer.reset();
  }
}

// ---- the engine's lanes ----

LaneState& Core::lane(LaneId id) {
  if (id == host_lane) return *host_;
  if (id.engine != number) throw MisuseError("the LaneId names a lane of another engine");
  return lane_at(id.index);
}

LaneState& Core::lane_at(std::size_t index) {
  MutexLock lock(table_mutex_);
  return lanes_[index];
}

std::size_t Core::lanes() {
  MutexLock lock(table_mutex_);
  return lanes_.size();
}

void Core::resume(LaneState& lane) noexcept {
  const Visit visit(*this);
  if (OpRecord* const op = lane.release()) policy_->add(*op);
}

void Core::end_kept(LaneState& lane) noexcept {
  const Visit visit(*this);
  if (OpRecord* const first = lane.take_kept()) policy_->add(*first);
}

void Core::start(LaneState& lane) {
  if (lane.removed) throw lane.removed_error();
  if (life_ == Life::stopped) return;
  fork_gate_.pass();
  if (lane.lost) {
    throw MisuseError("lane '" + lane.host.name +
                      "' was made before a fork(), which its device does not survive; make a lane in the child");
  }
  // Several threads may call this; if one fails, the next one tries again.
  if (lane.ordered) policy_->start(*host_);  // for the ops that end captures
  policy_->start(lane);
  if (watchdog_) watchdog_->start();
  fork_gate_.if_open([&] { lane.started.store(true); });
  if (lane.removed) {  // meanwhile, by a thread that stores `started` before or after this one
    lane.started = false;
    throw lane.removed_error();
  }
}

LaneId Core::add_lane(HostLane lane) {
  if (lane.threads < 1) {
    throw MisuseError("lane '" + lane.name + "' has threads = " + std::to_string(lane.threads) +
                      "; expected 1 or more");
  }
  lane.threads = std::min(lane.threads, most_threads);
  MutexLock lock(table_mutex_);
  const LaneId id{number, static_cast<std::uint32_t>(lanes_.size())};
  return lanes_.emplace_back(*this, id, std::move(lane)).id;
}

LaneId Core::add_lane(std::shared_ptr<Lane> lane, const LaneOptions& how) {
  if (!lane) throw MisuseError("add_lane was given a null Lane");
  const std::string name(lane->name());
  if (how.max_in_flight < 1) throw MisuseError("lane '" + name + "' has max_in_flight = 0; expected 1 or more");
  MutexLock lock(table_mutex_);
  for (const LaneState& known : lanes_) {
    if (known.ordered == lane) throw MisuseError("lane '" + name + "' was added to this engine before");
  }
  const LaneId id{number, static_cast<std::uint32_t>(lanes_.size())};
  const LaneState& added = lanes_.emplace_back(*this, id, std::move(lane), how);
  if (trace_.on()) added.ordered->start_trace(trace_.max_ops());
  has_ordered_ = true;
  detours_ |= by_ordered_lanes;
  return id;
}

OpRecord& Core::make_keeper(Port& port) {
  OpRecord& keeper = *records_.make(port.records, 0, sizeof(Kept));
  Dep::place(keeper, std::size_t{0}, [](std::size_t) -> Dep::Access { return {}; });
  return keeper;
}

void Core::keep(OpRecord& keeper, Captures&& captures, LaneState& lane, Point point, Port& port) noexcept {
  keeper.begin(captures_, 0, false);
  keeper.set_kept({.captures = std::move(captures), .point = point.serial});
  keeper.set_stage(OpRecord::Stage::at_points);
  keeper.set_id(OpRecord::first_wait_id | ++last_wait_id_);
  Port::add(port.waits, 1);
  lane.keep(keeper);
}

OpRecord* Core::end_captures(OpRecord& first, Slots* slots) noexcept {
  Port& port = ports_.mine();
  std::uint64_t ended = 0;
  for (OpRecord *keeper = &first, *next = nullptr; keeper != nullptr; keeper = next, ++ended) {
    next = keeper->kept().next;
    if ((detours_ & by_leak) != 0) keeper->abandon_body();
    {
      const Running frame(*this, *keeper, slots);
      keeper->end_body();
    }
    keeper->set_id(0);
    records_.free(port.records, keeper);
  }
  ReadyList no_others;
  OpRecord* const next = go_on(nullptr, no_others, slots);
  Port::add(port.waits_left, ended);
  for (; ended > 0; --ended) one_less_pending(port);
  return next;
}

void Core::keep_captures(CapturedOp& op) noexcept {
  const Point last = op.info->lane->last();
  if (!op.owns_captures() || !last || last.lane->reached(last)) return;  // the caller destroys them
  OpRecord* keeper = nullptr;
  try {
    const Entry entry(*this);  // the engine does not stop meanwhile
    if (life_ != Life::stopped) {
      keeper = &make_keeper(entry.port());
      keep(*keeper, op.take_captures(), *op.info->lane, last, entry.port());
    }
  } catch (const std::exception&) {  // no memory
    op.function.abandon();
    op.async.abandon();
    return;
  }
  if (keeper == nullptr) reach(last);  // no thread is left that could end the captures later
}

void Core::remove_lane(LaneId id) {
  refuse_torn();
  if (const Running* frame = frame_of_mine()) {
    throw MisuseError("remove_lane inside " + site(frame->op->info()) + " would wait for that op itself");
  }
  if (id == host_lane) throw MisuseError("remove_lane was given the host lane; expected an ordered lane");
  if (id.engine != number) throw MisuseError("remove_lane was given a lane of another engine");
  LaneState& lane = lane_at(id.index);
  const std::string name = "lane '" + lane.host.name + "'";
  if (lane.lost) throw MisuseError(name + " was made before a fork(), which its device does not survive");
  if (!lane.ordered) throw MisuseError("remove_lane was given host " + name + "; expected an ordered lane");
  const SlotsFree slots;  // first, since it may throw
  if (lane.removed.exchange(true)) throw MisuseError(name + " was removed before");
  lane.started = false;  // so that pushes look at `removed`; see start()
  ports_.hand_over();
  Naps naps;
  const auto is_of_lane = [&lane](const OpRecord& op) { return op.info().lane == &lane; };
  while (any_pending(is_of_lane) || !lane.close_if_idle()) {
    std::this_thread::sleep_for(naps.next(1, Naps::Clock::now()));
  }
  if (const Point last = lane.last()) reach(last);
  lane.ordered->close();
}

}  // namespace windrow
