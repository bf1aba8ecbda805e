#include "streams.h"

#include "runtime.h"
#include "world.h"

namespace windrow::fake {

World& world() {
  static World* const made = new World;  // threads may outlive main()
  return *made;
}

Stream::Stream(int device, bool blocking)
    : device_(device),
      blocking_(blocking),
      number_(world().streams_made++),
      random_(world().options.seed * 7919 + static_cast<unsigned>(number_) + 1) {
  world().streams.push_back(this);
  thread_ = std::thread([this] { serve(); });
}

const TaskPtr& Stream::issue(std::string name, std::function<void()> work, std::vector<TaskPtr> after) {
  World& w = world();
  auto task = std::make_shared<Task>();
  task->name = std::move(name);
  task->work = std::move(work);
  task->device = device_;
  task->stream = number_;
  task->number = ++issued_;
  task->after = std::move(after);
  if (last_ != nullptr) task->after.push_back(last_);
  task->clock.join(w.checker.host_clock());
  for (const TaskPtr& before : task->after) task->clock.join(before->clock);
  task->clock.set(number_, task->number);
  std::erase_if(task->after, [](const TaskPtr& before) { return before->done; });
  task->wanted = w.options.order != Order::lazy;
  tasks_.push_back(task);
  last_ = std::move(task);
  wake();
  return last_;
}

bool Stream::may_run() const {
  const auto is_done = [](const TaskPtr& before) { return before->done; };
  const World& w = world();
  return !tasks_.empty() && !w.held && tasks_.front()->wanted &&
         (w.held_at.empty() || tasks_.front()->name.find(w.held_at) == std::string::npos) &&
         std::ranges::all_of(tasks_.front()->after, is_done);
}

void Stream::wake() {
  if (!running_ && (may_run() || (ending_ && tasks_.empty()))) changed_.notify_one();
}

void Stream::serve() {
  World& w = world();
  std::unique_lock lock(w.mutex);
  if (w.begin_allocating != nullptr) w.begin_allocating();
  while (true) {
    changed_.wait(lock, [&] { return may_run() || (ending_ && tasks_.empty()); });
    if (tasks_.empty()) return;
    running_ = true;
    const TaskPtr task = tasks_.front();
    const bool later = w.options.order == Order::random && random_() % 4 == 0;
    const auto delay = std::chrono::microseconds(later ? random_() % 200 : 0);
    const auto device = static_cast<std::size_t>(device_);
    if (task->work && w.fail_next_work[device]) {
      w.fail_next_work[device] = false;
      w.lost[device] = illegal_address;
    }
    const bool runs = task->work && w.lost[device] == 0;
    if (runs || later) {
      lock.unlock();
      if (later) std::this_thread::sleep_for(delay);
      if (runs) task->work();
      lock.lock();
    }
    running_ = false;
    tasks_.pop_front();
    task->done = true;
    task->done_at = std::chrono::steady_clock::now();
    task->work = nullptr;
    task->after.clear();
    wake_all();
  }
}

void Stream::end(std::unique_lock<std::mutex>& lock) {
  if (last_ != nullptr) want(last_);
  ending_ = true;
  changed_.notify_one();
  lock.unlock();
  thread_.join();
  lock.lock();
  std::erase(world().streams, this);
}

void wake_all() {
  World& w = world();
  for (Stream* stream : w.streams) stream->wake();
  if (w.waiting > 0) w.done.notify_all();
}

void want(const TaskPtr& task) {
  std::vector<Task*> open = {task.get()};
  while (!open.empty()) {
    Task* const next = open.back();
    open.pop_back();
    if (next->done || next->wanted) continue;
    next->wanted = true;
    for (const TaskPtr& before : next->after) open.push_back(before.get());
  }
  wake_all();
}

void wait_for(const TaskPtr& task, std::unique_lock<std::mutex>& lock) {
  if (task == nullptr) return;
  want(task);
  ++world().waiting;
  world().done.wait(lock, [&] { return task->done; });
  --world().waiting;
  world().checker.host_knows(task->clock);
}

}  // namespace windrow::fake
