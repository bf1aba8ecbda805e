// Runs passes as CUDA graphs.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <mutex>

#include "lane.h"

namespace windrow::cuda {

/// The graphs of a plan. Each minibatch captures its calls. If an earlier minibatch had as many calls, its graph is
/// updated with them. Threads: any.
class Graphs {
 public:
  explicit Graphs(const Plugin& cuda) : cuda_(cuda) {}
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  /// Issues the work of `issue` as one graph, in an op of the lane; call by call if there is no memory for a capture.
  /// `shape`: any number; each shape has its own graphs. Throws what `issue` throws, and Error if a call fails. Throws
  /// TeamsRefused if the device refused a kernel; then nothing was issued.
  void run(CudaLane& lane, std::size_t shape, const std::function<void()>& issue);

 private:
  struct Made {
    std::size_t shape, calls;
    GraphExec* exec;
  };
  static constexpr std::size_t most = 32;

  const Plugin& cuda_;
  std::mutex mutex_;      // guards what follows
  std::list<Made> made_;  // most recently used first
};

}  // namespace windrow::cuda
