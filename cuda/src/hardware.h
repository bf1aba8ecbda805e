// A device of the process, which the lanes of all engines share: its failure, its events, and the thread that polls
// which points are reached.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "library.h"

namespace windrow::cuda {

class Code;
class CudaLane;

/// Such as "9.0".
std::string architecture_of(const DeviceFacts& facts);

/// Selects a device for the calling thread while this object exists.
class OnThread {
 public:
  OnThread(const Plugin& cuda, int device);
  ~OnThread();
  OnThread(const OnThread&) = delete;
  OnThread& operator=(const OnThread&) = delete;

  /// Why the device could not be selected; or success.
  int error() const { return error_; }

 private:
  const Plugin& cuda_;
  int before_ = -1;  // -1: unchanged
  int error_ = success;
};

/// Threads: any.
class Hardware {
 public:
  /// Throws MisuseError if there is no such device, and Error if it cannot be used.
  static std::shared_ptr<Hardware> open(int number);
  explicit Hardware(int number);
  ~Hardware();
  Hardware(const Hardware&) = delete;
  Hardware& operator=(const Hardware&) = delete;

  const Plugin& cuda() const { return cuda_; }
  int number() const { return number_; }
  const std::string& name() const { return name_; }
  const DeviceFacts& facts() const { return facts_; }

  /// Null while the device works.
  std::exception_ptr failure() const;
  /// Records that the device is lost, and what is in flight on its lanes. Only the first call has an effect. Returns
  /// the failure.
  std::exception_ptr fail(int error) noexcept;

  /// Returns an error of the CUDA runtime, or success.
  int take_event(Event** taken) noexcept;
  void give_back(Event* event) noexcept;

  /// Whether the device runs kernels whose teams wait for each other.
  bool runs_teams_together() const { return !teams_refused_; }
  /// Called when the device has refused such a kernel: it gets no more. The first call reports this on standard error.
  void refuse_teams_together() noexcept;

  /// Compiled kernels of a source; calls `make` if there are none yet. They are kept as long as the device is open,
  /// since work in flight may use them.
  const Code* code_of(const std::string& source, const std::function<std::unique_ptr<const Code>()>& make);

  void add(std::weak_ptr<CudaLane> lane);
  /// Tells the thread that a lane has work that someone waits for.
  void wake();

 private:
  std::string in_flight() const;
  /// State of the thread. It may briefly outlive this object: a callback on the thread can destroy a lane that is the
  /// last user of the device.
  struct Watch {
    std::mutex mutex;  // guards what follows
    std::vector<std::weak_ptr<CudaLane>> lanes;
    bool awake = false, ending = false;
    std::condition_variable woken;
  };
  static void serve(Watch& watch) noexcept;

  const Plugin& cuda_;
  const int number_;
  const std::string name_;
  const std::exception_ptr lost_;  // the failure if there is no memory for a message
  DeviceFacts facts_{};            // constant once the object exists
  std::atomic<bool> teams_refused_{false};
  mutable std::mutex mutex_;  // guards what follows
  std::exception_ptr failure_;
  std::vector<Event*> events_;  // unused events; has room for all that were made
  std::size_t events_made_ = 0;
  std::mutex compiling_;  // guards codes_; held while code is compiled
  std::map<std::string, std::unique_ptr<const Code>> codes_;
  const std::shared_ptr<Watch> watch_ = std::make_shared<Watch>();
  std::thread thread_;
};

}  // namespace windrow::cuda
