// Passes as CUDA graphs.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <mutex>

#include "lane.h"

namespace windrow::cuda {

/// The graphs of a plan. Each minibatch captures its calls anew, and sets them in the graph of an earlier one that had
/// as many, if there is one. Threads: any.
class Graphs {
 public:
  explicit Graphs(const Plugin& cuda) : cuda_(cuda) {}
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  /// Issues, in an op of the lane, what `issue` issues on it, as one graph; call by call if there is no memory for a
  /// capture. `shape`: any number; those of other shapes have other graphs. Throws what `issue` throws, Error if a call
  /// fails, and TeamsRefused if that is the reason; then nothing was issued.
  void run(CudaLane& lane, std::size_t shape, const std::function<void()>& issue);

 private:
  struct Made {
    std::size_t shape, calls;
    GraphExec* exec;
  };
  static constexpr std::size_t most = 32;

  const Plugin& cuda_;
  std::mutex mutex_;      // guards what follows
  std::list<Made> made_;  // those used last come first
};

}  // namespace windrow::cuda
