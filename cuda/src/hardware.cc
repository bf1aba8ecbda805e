#include "hardware.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <new>

#include "backend/code.h"
#include "lane.h"

namespace windrow::cuda {

std::string architecture_of(const DeviceFacts& facts) {
  return std::to_string(facts.major) + "." + std::to_string(facts.minor);
}

OnThread::OnThread(const Plugin& cuda, int device) : cuda_(cuda) {
  int now = 0;
  if (cuda.device(&now) != success || now == device) return;
  before_ = now;
  error_ = cuda.set_device(device);
}
OnThread::~OnThread() {
  if (before_ >= 0) cuda_.restore_device(before_);
}

std::shared_ptr<Hardware> Hardware::open(int number) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<Hardware>> opened;
  const int count = count_devices();
  if (number < 0 || number >= count) {
    throw MisuseError("device " + device_name(number) + ": expected " +
                      (count == 1 ? "cuda:0, the only one" : "cuda:0 to " + device_name(count - 1)));
  }
  std::lock_guard lock(mutex);
  std::shared_ptr<Hardware> made = opened[number].lock();
  if (made == nullptr) opened[number] = made = std::make_shared<Hardware>(number);
  if (const std::exception_ptr failure = made->failure()) std::rethrow_exception(failure);
  return made;
}

Hardware::Hardware(int number)
    : cuda_(plugin()),
      number_(number),
      name_(device_name(number)),
      lost_(std::make_exception_ptr(Error(name_ + ": the device failed"))) {
  const OnThread here(cuda_, number);
  std::size_t free = 0;
  int error = here.error();  // whichever call creates the context
  if (error == success) error = cuda_.free_memory(&free);
  if (error == devices_unavailable) {
    throw Error(name_ + ": the device is busy: another program has it for itself; expected a device that is free");
  }
  if (error == success) error = cuda_.facts(number, &facts_);
  if (error != success) throw Error(name_ + ": cannot be used: " + cuda_.text(error));
  if (facts_.major < 8) {
    throw Error(name_ + ": has architecture " + architecture_of(facts_) + "; expected 8.0 or later");
  }
  thread_ = std::thread([watch = watch_, &cuda = cuda_, number] {
    cuda.set_device(number);
    serve(*watch);
  });
}

Hardware::~Hardware() {
  {
    std::lock_guard lock(watch_->mutex);
    watch_->ending = true;
  }
  watch_->woken.notify_all();
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
  const OnThread here(cuda_, number_);
  codes_.clear();
  for (Event* event : events_) cuda_.end_event(event);
}

std::exception_ptr Hardware::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::exception_ptr Hardware::fail(int error) noexcept {
  if (const std::exception_ptr before = failure()) return before;
  std::exception_ptr made = lost_;
  try {
    made = std::make_exception_ptr(Error(name_ + ": the device failed: " + cuda_.text(error) + in_flight()));
  } catch (const std::bad_alloc&) {
  }
  std::lock_guard lock(mutex_);
  if (failure_ == nullptr) failure_ = made;
  return failure_;
}

std::string Hardware::in_flight() const {
  std::vector<std::weak_ptr<CudaLane>> lanes;
  {
    std::lock_guard lock(watch_->mutex);
    lanes = watch_->lanes;
  }
  std::string text;
  for (const auto& weak : lanes) {
    if (const std::shared_ptr<CudaLane> lane = weak.lock()) text += lane->in_flight();
  }
  return text;
}

/// Reserves room in the list before it makes an event, so that give_back() needs no memory.
int Hardware::take_event(Event** taken) noexcept try {
  std::unique_lock lock(mutex_);
  if (!events_.empty()) {
    *taken = events_.back();
    events_.pop_back();
    return success;
  }
  events_.reserve(events_made_ + 1);
  ++events_made_;
  lock.unlock();
  const OnThread here(cuda_, number_);
  const int error = cuda_.make_event(taken);
  lock.lock();
  if (error != success) --events_made_;
  return error;
} catch (const std::bad_alloc&) {
  return out_of_memory;
}

void Hardware::give_back(Event* event) noexcept {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
}

void Hardware::refuse_teams_together() noexcept {
  if (teams_refused_.exchange(true)) return;
  std::fprintf(stderr,
               "windrow: %s: levels of minibatches are computed by launches alone, since it has refused a kernel whose "
               "teams wait for each other\n",
               name_.c_str());
}

const Code* Hardware::code_of(const std::string& source, const std::function<std::unique_ptr<const Code>()>& make) {
  std::lock_guard lock(compiling_);
  const auto found = codes_.find(source);
  if (found != codes_.end()) return found->second.get();
  return codes_.emplace(source, make()).first->second.get();
}

void Hardware::add(std::weak_ptr<CudaLane> lane) {
  std::lock_guard lock(watch_->mutex);
  watch_->lanes.push_back(std::move(lane));
}

void Hardware::wake() {
  {
    std::lock_guard lock(watch_->mutex);
    if (watch_->awake) return;
    watch_->awake = true;
  }
  watch_->woken.notify_one();
}

// The thread polls all lanes in turn, and never blocks on one event. While points are reached soon it does not sleep.
// But it pauses between two polls, since a query and a launch on another thread wait for each other. Later it polls
// less and less often.
void Hardware::serve(Watch& watch) noexcept {
  using namespace std::chrono_literals;
  constexpr auto pause = 8us, shortest = 10us, longest = 100us;
  std::unique_lock lock(watch.mutex);
  int in_vain = 0;
  while (!watch.ending) {
    if (!watch.awake) {
      watch.woken.wait(lock, [&] { return watch.awake || watch.ending; });
      in_vain = 0;
      continue;
    }
    watch.awake = false;
    std::erase_if(watch.lanes, [](const auto& lane) { return lane.expired(); });
    bool advanced = false, open = false;
    // Other threads can only append lanes meanwhile.
    for (std::size_t i = 0; i < watch.lanes.size(); ++i) {
      std::shared_ptr<CudaLane> lane = watch.lanes[i].lock();
      if (lane == nullptr) continue;
      lock.unlock();
      const CudaLane::Seen seen = lane->look();
      advanced = advanced || seen.advanced;
      open = open || seen.open;
      lane.reset();  // may destroy the device, whose destructor takes the lock
      lock.lock();
    }
    lock.unlock();
    in_vain = advanced ? 0 : in_vain + 1;
    if (open && in_vain > 50) {
      std::this_thread::sleep_for(std::min<std::chrono::microseconds>(longest, shortest * (in_vain - 50)));
    } else if (open) {
      const auto next = std::chrono::steady_clock::now() + pause;
      while (std::chrono::steady_clock::now() < next) std::this_thread::yield();
    }
    lock.lock();
    watch.awake = watch.awake || open;
  }
}

}  // namespace windrow::cuda
