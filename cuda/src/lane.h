// The lane of a CUDA stream.
//
// A point is a number. An event is recorded when someone asks for a point, or may do so soon. It stands for all points
// up to the newest one at that moment. So a stream has few events in flight, however many ops there are.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "hardware.h"
#include "timeline.h"
#include "windrow/engine/lane.h"
#include "windrow/ops/internal/captured_work.h"

namespace windrow::cuda {

/// The device has refused a kernel whose teams wait for each other: Result::teams_refused. Nothing was issued.
class TeamsRefused : public Error {
 public:
  using Error::Error;
};

/// Functions that the engine and the device's thread call do not depend on host memory: if none is left to note what
/// someone waits for, they wait for the device instead.
class CudaLane final : public Lane, public CapturingLane {
 public:
  struct Options {
    std::string name;
    bool sync = false;  ///< see DeviceOptions
    QueueOptions queue = {};
  };
  /// Throws Error if no stream can be made.
  static std::shared_ptr<CudaLane> make(std::shared_ptr<Hardware> hardware, Options options);
  ~CudaLane() override;

  std::string_view name() const override { return options_.name; }
  int device() const override { return hardware_->number() + 1; }  // 0 is the host
  void enter() noexcept override;
  std::exception_ptr leave() noexcept override;
  Point record() noexcept override;
  bool reached(Point point) const noexcept override;
  bool can_wait_for(const Lane& other) const noexcept override;
  void wait(Point point, IfFailed if_failed) noexcept override;
  void when_reached(Point point, Reached callback) noexcept override;
  void anticipate(Point point) noexcept override;
  void anticipate_next() noexcept override { anticipates_ = true; }
  void start_trace(std::uint64_t most) noexcept override { timeline_.start(most); }
  void stop_trace() noexcept override { timeline_.stop(); }
  std::vector<DeviceWork> traced() override { return timeline_.read(); }
  void close() noexcept override;
  std::unique_ptr<CapturedWork> capture_work(const std::function<void()>& work) override;

  /// Converts the lane that a device's kernel or copy gets. Throws Error, with `work` as its subject, if it is null or
  /// not an open CUDA lane.
  static CudaLane& of(Lane* lane, std::string_view work);

  // For ops of the lane, while they issue work.
  const Options& options() const { return options_; }
  const Hardware& hardware() const { return *hardware_; }
  const std::shared_ptr<Hardware>& shared_hardware() const { return hardware_; }
  Queue* queue() const { return capturing_ ? capture_queue_ : queue_; }
  /// Issues work by a function that returns the error of the call. `work` is a string literal or an operator's name.
  /// Throws Error if the call fails, or TeamsRefused, after which the op may continue.
  template <class Function>
  void issue(const char* work, Function function) {
    note(work);
    const bool timed = timeline_.on() && !capturing_;
    if (timed) begin_timed(work);
    cuda_.begin_range(work);
    const int error = function();
    cuda_.end_range();
    if (error == teams_refused) cuda_.take_error();
    if (timed) end_timed();
    if (error != success) throw_error(work, error);
  }
  /// Whether there is memory for capture(): the first call takes it, or finds that there is none.
  bool can_capture();
  /// Captures the work that `issue` issues on this lane, without running it. The caller frees the graph, which is null
  /// if nothing was issued. Throws what `issue` throws, and Error if the capture fails.
  Graph* capture(const std::function<void()>& issue, std::size_t* calls);
  /// Keeps an object until the work that has been issued is done.
  void keep(std::shared_ptr<void> object);

  /// "; in flight on NAME: " and the last unfinished kernels and copies; empty if there are none. Threads: any.
  std::string in_flight() const;

  struct Seen {
    bool advanced, open;  // whether points were reached, and whether someone waits for more
  };
  /// Called by the thread of the device: polls which points are reached, and runs their callbacks.
  Seen look() noexcept;

 private:
  /// An event that covers all points up to `serial`.
  struct Mark {
    std::uint64_t serial;
    Event* event;
    bool anticipated = false;  // by anticipate_next()
  };

  CudaLane(std::shared_ptr<Hardware> hardware, Options options);
  void note(const char* work);
  void begin_timed(const char* work) noexcept;
  void end_timed() noexcept;
  Error error_of(const char* work, int error) const;
  [[noreturn]] void throw_error(const char* work, int error) const;
  std::exception_ptr error_of_section(int error) const noexcept;
  // Called with mutex_.
  Event* covering(std::uint64_t serial) noexcept;
  bool note_mark(const Mark& mark) noexcept;
  bool has_room() const { return std::ranges::count(marks_, false, &Mark::anticipated) < most_marks; }
  void ask_marks(std::unique_lock<std::mutex>& lock) noexcept;
  void drain() noexcept;
  void fail(const std::exception_ptr& error) noexcept;
  // Called with or without mutex_.
  std::exception_ptr failure_at(std::uint64_t serial) const noexcept;
  bool fails_at(std::uint64_t serial) const noexcept;

  static constexpr std::ptrdiff_t most_marks = 8;
  static constexpr std::size_t most_marks_in_all = 64;
  static constexpr std::size_t names = 32;

  const std::shared_ptr<Hardware> hardware_;
  const Plugin& cuda_;
  const Options options_;
  Queue* queue_ = nullptr;
  // Used only for captures: other threads may record events on queue_ at any time, and these must not be captured.
  Queue* capture_queue_ = nullptr;
  bool capturing_ = false;
  bool anticipates_ = false;  // whether someone may soon ask for the next point
  bool refused_ = false;      // whether memory for captures was refused
  Timeline timeline_;
  std::atomic<std::uint64_t> recorded_{0}, reached_{0};
  /// The first point that failed because the device did, or 0. It and all later points count as reached.
  std::atomic<std::uint64_t> failed_at_{0};

  // A thread takes at most one of these, and no lock after it.
  mutable std::mutex error_mutex_, names_mutex_;
  std::exception_ptr error_;        // guarded by error_mutex_
  std::atomic<bool> keeps_{false};  // whether keep() was called since the last point was recorded

  mutable std::mutex mutex_;  // guards what follows
  std::deque<Mark> marks_;    // events in flight, in the order of their points
  // By their points, which may be recorded later. Due callbacks move to a container of the same kind, which needs no
  // memory.
  std::multimap<std::uint64_t, Reached> callbacks_;

  struct Issued {
    std::uint64_t serial;
    std::array<char, 32> name;
  };
  // The last kernels and copies; guarded by names_mutex_.
  std::array<Issued, names> issued_{};
  std::size_t next_name_ = 0;
};

}  // namespace windrow::cuda
