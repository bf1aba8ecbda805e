#include "crew.h"

#include <spdlog/spdlog.h>

#include <system_error>

namespace windrow {
namespace {

/// The crew whose thread this is.
thread_local Crew* own_crew = nullptr;

/// After this long without the op that a queue waits for, it is told to give up.
constexpr std::chrono::milliseconds replay_patience{1000};

}  // namespace

Crew::Crew(CrewOptions options, std::unique_ptr<ReadyQueue> queue, Run run)
    : options_(std::move(options)), run_(std::move(run)), queue_(std::move(queue)) {}

Crew::~Crew() { stop(); }

void Crew::start() {
  MutexLock lock(mutex_);
  if (options_.callers_run || own_threads() > 0) return;
  if (!spawn()) throw Error("cannot start a thread for crew '" + options_.name + "'");
}

void Crew::add(OpRecord& op) {
  MutexLock lock(mutex_);
  queue_->put(op);
  ++puts_;
  rouse();
}

void Crew::help(Patience patience) {
  MutexLock lock(mutex_);
  while (active_ >= options_.slots) {
    if (patience == Patience::give_up_if_taken) return;
    changed_.wait(mutex_);
  }
  while (queue_->has_next()) take_and_run();
}

void Crew::block() {
  MutexLock lock(mutex_);
  const bool own = own_crew == this;
  --active_;
  ++blocked_;
  blocked_own_ += own;
  if (options_.callers_run ? !queue_->empty() : idle_ == 0) {
    if (own_threads() - blocked_own_ == 0 && !spawn()) {
      ++active_;
      --blocked_;
      blocked_own_ -= own;
      throw Error("a wait inside an op would leave crew '" + options_.name +
                  "' without a thread: " + std::to_string(own_threads()) +
                  " threads wait already, max_spare_threads = " + std::to_string(options_.max_spares));
    }
  }
  changed_.notify_all();
  rouse();
}

void Crew::unblock() {
  MutexLock lock(mutex_);
  while (options_.callers_run && active_ >= options_.slots) changed_.wait(mutex_);
  ++active_;
  --blocked_;
  blocked_own_ -= own_crew == this;
}

void Crew::stop() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    changed_.notify_all();
  }
  for (std::thread& thread : threads) thread.join();
}

int Crew::spares() const {
  MutexLock lock(mutex_);
  return spares_;
}

bool Crew::may_take() const {
  return queue_->has_next() && active_ < options_.slots && (!options_.callers_run || blocked_ > 0);
}

void Crew::serve() {
  own_crew = this;
  try {
    if (options_.on_thread_start) options_.on_thread_start();
  } catch (const std::exception& e) {
    spdlog::error("windrow: on_thread_start threw, the thread goes on: {}", e.what());
  }
  MutexLock lock(mutex_);
  while (true) {
    if (may_take()) {
      // Whoever holds the turn goes on until nothing is ready: others have given up because it was taken.
      do take_and_run();
      while (queue_->has_next() && active_ < options_.slots);
    } else if (stopping_) {
      return;
    } else {
      sleep();
    }
  }
}

void Crew::take_and_run() {
  ++active_;
  if (const auto pause = queue_->pause(); pause.count() > 0) {
    mutex_.unlock();
    std::this_thread::sleep_for(pause);
    mutex_.lock();
  }
  if (queue_->has_next()) {  // another thread may have been quicker
    OpRecord& op = queue_->take();
    rouse();
    mutex_.unlock();
    run_(op, *this);
    mutex_.lock();
  }
  --active_;
  if (options_.callers_run) changed_.notify_all();
}

void Crew::sleep() {
  ++idle_;
  const std::uint64_t puts = puts_;
  if (queue_->empty() || queue_->has_next()) {
    changed_.wait(mutex_);
  } else if (!changed_.wait_until(mutex_, std::chrono::steady_clock::now() + replay_patience)) {
    if (puts == puts_ && active_ == 0) queue_->give_up_waiting();
  }
  --idle_;
}

void Crew::rouse() {
  if (!may_take()) return;
  const int looking = own_threads() - blocked_own_ - idle_ - active_;  // awake, and about to see this
  if (options_.callers_run) {
    changed_.notify_all();  // callers sleep on it too
  } else if (looking <= 0 && idle_ > 0) {
    changed_.notify_one();
  } else if (looking <= 0 && own_threads() - blocked_own_ < options_.slots) {
    spawn();
  }
}

bool Crew::spawn() {
  const bool spare = options_.callers_run || own_threads() >= options_.slots;
  if (spare && own_threads() >= (options_.callers_run ? 0 : options_.slots) + options_.max_spares) return false;
  try {
    threads_.emplace_back(&Crew::serve, this);
  } catch (const std::system_error& e) {
    spdlog::warn("windrow: crew '{}' cannot start another thread: {}", options_.name, e.what());
    return false;
  }
  spares_ += spare;
  return true;
}

}  // namespace windrow
