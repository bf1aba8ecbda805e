#include "policy/queue_workers.h"

#include <exception>
#include <utility>

#include "policy/running_policy.h"

namespace windrow {
namespace {

/// The object that owns the calling thread, or null.
thread_local QueueWorkers* own_queue = nullptr;

}  // namespace

QueueWorkers::QueueWorkers(QueueWorkersOptions options, std::unique_ptr<ReadyQueue> queue, RunOp run)
    : options_(std::move(options)), run_(std::move(run)), queue_(std::move(queue)) {}

QueueWorkers::~QueueWorkers() { stop(); }

void QueueWorkers::start() {
  MutexLock lock(mutex_);
  if (stopping_ || own_threads() > 0) return;
  if (!spawn()) throw Error("cannot start a thread for policy " + options_.name);
}

void QueueWorkers::add(OpRecord& op) noexcept {
  MutexLock lock(mutex_);
  queue_->put(op);
  rouse();
}

void QueueWorkers::announce() {
  MutexLock lock(mutex_);
  ++callers_;
}

void QueueWorkers::help(Patience patience) {
  MutexLock lock(mutex_);
  while (!slot_free() && patience == Patience::wait_for_turn && !unusable_) changed_.wait(mutex_);
  while (slot_free() && !queue_->empty()) {
    --callers_;
    take_and_run();
    ++callers_;
  }
  --callers_;
  rouse();
}

void QueueWorkers::block() {
  MutexLock lock(mutex_);
  const bool own = own_queue == this;
  --active_;
  active_own_ -= own;
  blocked_own_ += own;
  const bool nobody_left = own_threads() == blocked_own_;
  if (nobody_left && (own || !options_.callers_run || !queue_->empty()) && !spawn()) {
    ++active_;
    active_own_ += own;
    blocked_own_ -= own;
    throw Error("a wait inside an op would leave policy " + options_.name +
                " without a thread: " + std::to_string(own_threads()) +
                " wait already, max_spare_threads = " + std::to_string(options_.max_spares));
  }
  if (options_.callers_run) changed_.notify_all();  // the turn is free
  rouse();
}

void QueueWorkers::let_others_in() {
  const auto until = std::chrono::steady_clock::now() + longest_courtesy;
  MutexLock lock(mutex_);
  while (may_take() && std::chrono::steady_clock::now() < until) {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  }
}

void QueueWorkers::unblock(Patience patience) {
  MutexLock lock(mutex_);
  if (options_.callers_run && patience == Patience::wait_for_turn) {
    ++callers_;
    while (!slot_free()) changed_.wait(mutex_);
    --callers_;
  }
  const bool own = own_queue == this;
  ++active_;
  active_own_ += own;
  blocked_own_ -= own;
}

bool QueueWorkers::may_unblock_other() const { return own_queue == this && !options_.callers_run; }

void QueueWorkers::unblock_other() {
  MutexLock lock(mutex_);
  ++active_;
  ++active_own_;
  --blocked_own_;
}

OpRecord* QueueWorkers::take_wanted(const Wanted& wanted) {
  MutexLock lock(mutex_);
  if (unusable_) return nullptr;
  // If the order is drawn and few ops wait, keep to the draw: a spare thread can run ops that the wait does not depend
  // on.
  const bool few_wait = blocked_own_ < few_spares;
  return queue_->take_wanted(wanted, few_wait ? ReadyQueue::Search::in_order : ReadyQueue::Search::near);
}

OpRecord* QueueWorkers::take_wanted_anywhere(const Wanted& wanted) {
  MutexLock lock(mutex_);
  return unusable_ ? nullptr : queue_->take_wanted(wanted, ReadyQueue::Search::all);
}

bool QueueWorkers::lacks_threads() const {
  MutexLock lock(mutex_);
  return idle_ == 0 && own_threads() >= regular_threads() + few_spares;
}

void QueueWorkers::stop() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

void QueueWorkers::forget_threads(Copied copied) noexcept {
  forget(threads_);
  changed_.forget_waiters();
  active_ = active_own_ = idle_ = blocked_own_ = callers_ = 0;
  unusable_ = copied == Copied::unusable;
  if (unusable_) stopping_ = true;
}

int QueueWorkers::spares() const {
  MutexLock lock(mutex_);
  return spares_;
}

std::size_t QueueWorkers::ready() const {
  MutexLock lock(mutex_);
  return queue_->size();
}

bool QueueWorkers::may_take() const { return !queue_->empty() && slot_free() && callers_ == 0; }

void QueueWorkers::serve() {
  own_queue = this;
  call_start_hook(options_.on_thread_start);
  MutexLock lock(mutex_);
  while (true) {
    if (may_take()) {
      take_and_run();
    } else if (stopping_) {
      return;
    } else {
      sleep();
    }
  }
}

void QueueWorkers::take_and_run() {
  const bool own = own_queue == this;
  ++active_;
  active_own_ += own;
  if (const auto pause = queue_->pause(); pause.count() > 0) {
    mutex_.unlock();
    std::this_thread::sleep_for(pause);
    mutex_.lock();
  }
  if (!queue_->empty()) {  // another thread may have been quicker
    OpRecord& op = queue_->take();
    rouse();
    mutex_.unlock();
    run_(op, *this);
    mutex_.lock();
  }
  --active_;
  active_own_ -= own;
  if (options_.callers_run) changed_.notify_all();
}

void QueueWorkers::sleep() {
  ++idle_;
  changed_.wait(mutex_);
  --idle_;
}

void QueueWorkers::rouse() {
  if (!may_take()) return;
  const int looking = own_threads() - blocked_own_ - idle_ - active_own_;  // awake, and about to look
  if (looking > 0) return;
  if (idle_ == 0) {
    if (own_threads() - blocked_own_ < options_.slots) spawn();
  } else if (options_.callers_run) {
    changed_.notify_all();  // callers sleep on changed_, too
  } else {
    changed_.notify_one();
  }
}

bool QueueWorkers::spawn() {
  if (own_threads() >= regular_threads() + options_.max_spares + (options_.callers_run ? 1 : 0)) return false;
  try {
    threads_.reserve(threads_.size() + 1);
    threads_.push_back(options_.ports->start_thread([this] { serve(); }));
  } catch (const std::exception&) {
    return false;  // fewer threads still make progress; block() and start() ensure that
  }
  spares_ += own_threads() > regular_threads();
  return true;
}

}  // namespace windrow
