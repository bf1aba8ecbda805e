#include "lane.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace windrow::cuda {
namespace {

struct Section {
  int own;      // device
  int before;   // the device that the thread gets back
  int error;    // of this section, found by an inner section or by enter(); or success
  bool failed;  // whether the lane had failed before: its points report that, so its ops need not

  void note(int found) {
    if (found != not_ready && error == success) error = found;
  }
};

/// The nested sections of a thread. They allocate no memory, since enter() must not fail. Beyond `most` (which needs
/// ops that push ops on the same thread), inner sections count as part of the last one.
struct Sections {
  static constexpr std::size_t most = 32;
  std::size_t count;
  std::array<Section, most> all;

  Section& innermost() { return all[std::min(count, most) - 1]; }
};
constinit thread_local Sections sections{};

/// Keeps the thread's last error for the innermost section, before calls that may set another one. `not_ready` is not
/// an error.
void save_error(const Plugin& cuda) {
  const int error = cuda.take_error();
  if (sections.count > 0) sections.innermost().note(error);
}

}  // namespace

std::shared_ptr<CudaLane> CudaLane::make(std::shared_ptr<Hardware> hardware, Options options) {
  const std::shared_ptr<CudaLane> made(new CudaLane(std::move(hardware), std::move(options)));
  made->hardware_->add(made);
  return made;
}

CudaLane::CudaLane(std::shared_ptr<Hardware> hardware, Options options)
    : hardware_(std::move(hardware)),
      cuda_(hardware_->cuda()),
      options_(std::move(options)),
      timeline_(cuda_, hardware_->number()) {
  const OnThread here(cuda_, hardware_->number());
  const int error = cuda_.make_queue(hardware_->number(), &options_.queue, &queue_);
  if (error != success) throw Error(options_.name + ": no stream: " + cuda_.text(error));
}

CudaLane::~CudaLane() {
  close();
  for (const Mark& mark : marks_) hardware_->give_back(mark.event);
}

void CudaLane::close() noexcept {
  if (queue_ == nullptr) return;
  const OnThread here(cuda_, hardware_->number());
  cuda_.end_queue(std::exchange(queue_, nullptr));
  if (capture_queue_ != nullptr) cuda_.end_queue(std::exchange(capture_queue_, nullptr));
}

CudaLane& CudaLane::of(Lane* lane, std::string_view work) {
  auto* const ours = dynamic_cast<CudaLane*>(lane);
  if (ours != nullptr && ours->queue_ != nullptr) return *ours;
  const std::string where = lane == nullptr ? "on the host" : "on lane '" + std::string(lane->name()) + "'";
  throw Error(std::string(work) + " " + where + "; expected a lane of a CUDA device");
}

void CudaLane::enter() noexcept {
  save_error(cuda_);  // the error belongs to the enclosing section, or to nobody
  const int own = hardware_->number();
  int now = own, error = success;
  cuda_.device(&now);
  if (now != own) {
    error = cuda_.set_device(own);
    if (sections.count == 0 && thread_is_free()) now = own;  // it stays selected for the next op
  }
  if (++sections.count > Sections::most) return sections.innermost().note(error);
  sections.innermost() = {own, now, error, fails_at(recorded_ + 1)};
}

std::exception_ptr CudaLane::leave() noexcept {
  Section section = sections.innermost();
  if (sections.count-- > Sections::most) {
    sections.innermost().error = success;
    section.before = section.own;
  }
  const int last = cuda_.take_error();
  const int error = section.error != success ? section.error : last;
  std::exception_ptr found;
  if (error != success && error != not_ready) {
    // An error that remains is an error of the device, not of a launch.
    const bool lost = cuda_.take_error() != success;
    std::lock_guard lock(mutex_);
    if (lost) {
      fail(hardware_->fail(error));
      if (!section.failed) found = failure_at(recorded_ + 1);
    } else {
      found = error_of_section(error);
    }
  }
  if (section.before != hardware_->number()) cuda_.restore_device(section.before);
  if (found != nullptr) hardware_->wake();
  return found;
}

Point CudaLane::record() noexcept {
  const std::uint64_t serial = ++recorded_;
  if (std::exchange(anticipates_, false)) {
    std::lock_guard lock(mutex_);
    if (marks_.size() < most_marks_in_all && covering(serial) != nullptr) marks_.back().anticipated = true;
  }
  if (keeps_.exchange(false)) hardware_->wake();
  if (options_.sync) {
    save_error(cuda_);
    std::unique_lock lock(mutex_);
    covering(serial);
    while (!reached({this, serial})) {
      ask_marks(lock);
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
  return {this, serial};
}

bool CudaLane::reached(Point point) const noexcept { return reached_ >= point.serial || fails_at(point.serial); }

bool CudaLane::can_wait_for(const Lane& other) const noexcept {
  const auto* const ours = dynamic_cast<const CudaLane*>(&other);
  return ours != nullptr && ours->hardware_ == hardware_;
}

/// Lanes of one device fail together, so this lane need not be told that the other one failed.
void CudaLane::wait(Point point, IfFailed) noexcept {
  auto& other = static_cast<CudaLane&>(*point.lane);
  save_error(cuda_);
  std::lock_guard lock(other.mutex_);
  if (other.reached(point)) return;
  Event* const event = other.covering(point.serial);
  if (event == nullptr) return;
  // The call captures the event's present state, so the event may be reused afterwards.
  const int error = cuda_.wait_for_event(queue_, event);
  if (error != success) other.drain();
}

void CudaLane::when_reached(Point point, Reached callback) noexcept {
  std::unique_lock lock(mutex_);
  if (!reached(point)) {
    try {
      callbacks_.emplace(point.serial, std::move(callback));
      if (has_room()) covering(point.serial);
      lock.unlock();
      hardware_->wake();
      return;
    } catch (const std::bad_alloc&) {  // the callback is unchanged
      drain();
    }
  }
  const std::exception_ptr error = failure_at(point.serial);
  lock.unlock();
  callback(error);
}

void CudaLane::anticipate(Point point) noexcept {
  std::lock_guard lock(mutex_);
  if (has_room()) covering(point.serial);
}

void CudaLane::note(const char* work) {
  std::lock_guard lock(names_mutex_);
  Issued& issued = issued_[next_name_++ % names];
  issued = {recorded_ + 1, {}};
  std::strncpy(issued.name.data(), work, issued.name.size() - 1);
}

void CudaLane::begin_timed(const char* work) noexcept {
  save_error(cuda_);
  timeline_.begin(queue_, work);
}

void CudaLane::end_timed() noexcept {
  save_error(cuda_);
  timeline_.end(queue_);
}

bool CudaLane::can_capture() {
  if (capture_queue_ != nullptr || refused_) return !refused_;
  save_error(cuda_);
  Queue* made = nullptr;
  int error = cuda_.make_queue(hardware_->number(), &options_.queue, &made);
  if (error == success) error = cuda_.prepare_capture(made);
  if (error == success) {
    capture_queue_ = made;
  } else if (made != nullptr) {
    cuda_.end_queue(made);
  }
  refused_ = error == out_of_memory;
  if (refused_) {
    cuda_.take_error();
  } else if (error != success) {
    throw error_of("capture", error);
  }
  return error == success;
}

Graph* CudaLane::capture(const std::function<void()>& issue, std::size_t* calls) {
  const auto require = [&](int error) {
    if (error != success) throw error_of("capture", error);
  };
  require(cuda_.begin_capture(capture_queue_));
  capturing_ = true;
  std::exception_ptr thrown;
  try {
    issue();
  } catch (...) {
    thrown = std::current_exception();
  }
  capturing_ = false;
  Graph* made = nullptr;
  const int error = cuda_.end_capture(capture_queue_, &made, calls);
  if (thrown != nullptr || (error == success && *calls == 0)) {
    if (made != nullptr) cuda_.free_graph(made);
    made = nullptr;
  }
  if (thrown != nullptr) std::rethrow_exception(thrown);
  require(error);
  return made;
}

Error CudaLane::error_of(const char* work, int error) const {
  return Error(options_.name + ": " + work + ": " + cuda_.text(error));
}

void CudaLane::throw_error(const char* work, int error) const {
  const Error made = error_of(work, error);
  if (error == teams_refused) throw TeamsRefused(made.what());
  throw made;
}

std::exception_ptr CudaLane::error_of_section(int error) const noexcept try {
  return std::make_exception_ptr(Error(options_.name + ": " + cuda_.text(error)));
} catch (const std::bad_alloc&) {
  return std::current_exception();  // so the op still fails
}

void CudaLane::keep(std::shared_ptr<void> object) {
  {
    std::lock_guard lock(mutex_);
    callbacks_.emplace(recorded_ + 1, [object = std::move(object)](const std::exception_ptr&) {});
  }
  keeps_ = true;  // the op's point is recorded later
}

/// An event in flight that is reached no sooner than the point. Null if the point is reached now.
Event* CudaLane::covering(std::uint64_t serial) noexcept {
  if (reached({this, serial})) return nullptr;
  const auto found = std::ranges::lower_bound(marks_, serial, {}, &Mark::serial);
  if (found != marks_.end()) return found->event;
  if (sections.count > 0) save_error(cuda_);
  const OnThread here(cuda_, hardware_->number());  // the thread may have selected another, failed device
  Event* event = nullptr;
  int error = hardware_->take_event(&event);
  // Work is issued before its point is recorded, and the event after.
  const std::uint64_t newest = recorded_;
  if (error == success) {
    error = cuda_.record(event, queue_);
    if (error == success && note_mark({newest, event})) return event;
    hardware_->give_back(event);
  }
  drain();
  return nullptr;
}

bool CudaLane::note_mark(const Mark& mark) noexcept try {
  marks_.push_back(mark);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

/// Releases the lock while it queries: a query waits for launches of other threads, and threads that issue work need
/// the lock.
void CudaLane::ask_marks(std::unique_lock<std::mutex>& lock) noexcept {
  if (const std::exception_ptr failure = hardware_->failure()) return fail(failure);
  while (!marks_.empty()) {
    const Mark first = marks_.front();
    lock.unlock();
    const int error = cuda_.query(first.event);
    lock.lock();
    // If another thread has waited for the lane meanwhile, the event may stand for another point.
    if (marks_.empty() || marks_.front().serial != first.serial) continue;
    if (error == not_ready) return;
    if (error != success) return drain();
    marks_.pop_front();
    hardware_->give_back(first.event);
    reached_ = first.serial;
  }
}

/// Used when a call about an event fails or a note cannot be allocated, while the device may still work. Waits for all
/// issued work, so that no unfinished work counts as done. Rare.
void CudaLane::drain() noexcept {
  const OnThread here(cuda_, hardware_->number());
  const std::uint64_t newest = recorded_;
  const int error = cuda_.drain(queue_);
  cuda_.take_error();
  if (error != success) return fail(hardware_->fail(error));
  for (const Mark& mark : marks_) hardware_->give_back(mark.event);
  marks_.clear();
  reached_ = newest;
}

/// All points that are not reached fail and count as reached: the device no longer works.
void CudaLane::fail(const std::exception_ptr& error) noexcept {
  if (failed_at_ != 0) return;
  {
    std::lock_guard lock(error_mutex_);
    error_ = error;
  }
  failed_at_ = reached_ + 1;
}

bool CudaLane::fails_at(std::uint64_t serial) const noexcept { return failed_at_ != 0 && serial >= failed_at_; }
std::exception_ptr CudaLane::failure_at(std::uint64_t serial) const noexcept {
  if (!fails_at(serial)) return nullptr;
  std::lock_guard lock(error_mutex_);
  return error_;
}

std::string CudaLane::in_flight() const {
  std::vector<std::string> open;
  std::lock_guard lock(names_mutex_);
  for (std::size_t i = next_name_ - std::min(next_name_, names); i < next_name_; ++i) {
    const auto& [serial, name] = issued_[i % names];
    if (serial > reached_ && std::ranges::find(open, name.data()) == open.end()) open.emplace_back(name.data());
  }
  std::string text = open.empty() ? "" : "; in flight on " + options_.name + ": ";
  for (std::size_t i = 0; i < open.size(); ++i) text += (i == 0 ? "" : ", ") + open[i];
  return text;
}

CudaLane::Seen CudaLane::look() noexcept {
  decltype(callbacks_) due;
  std::unique_lock lock(mutex_);
  const std::uint64_t before = reached_, failed_before = failed_at_;
  ask_marks(lock);
  while (!callbacks_.empty() && reached({this, callbacks_.begin()->first})) {
    due.insert(due.end(), callbacks_.extract(callbacks_.begin()));
  }
  // Objects that are kept for an op that is still being issued have no point yet.
  const bool open = !callbacks_.empty() && callbacks_.begin()->first <= recorded_;
  const std::uint64_t covered = marks_.empty() ? std::uint64_t{reached_} : marks_.back().serial;
  if (open && has_room() && recorded_ > covered) covering(recorded_);
  const bool advanced = reached_ != before || failed_at_ != failed_before;
  lock.unlock();
  for (const auto& [serial, callback] : due) callback(failure_at(serial));
  return {advanced, open};
}

}  // namespace windrow::cuda
