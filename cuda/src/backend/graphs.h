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
  Graphs() = default;
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  /// Issues, in an op of the lane, what `issue` issues on it, as one graph. `pass`: any number; passes do not share
  /// graphs. Throws what `issue` throws, and Error if a call fails.
  void run(CudaLane& lane, int pass, const std::function<void()>& issue);

 private:
  struct Made {
    int pass;
    std::size_t calls;
    GraphExec* exec;
  };
  static constexpr std::size_t most = 32;

  std::mutex mutex_;              // guards what follows
  std::list<Made> made_;          // those used last come first
  const Plugin* cuda_ = nullptr;  // null while there are none
};

}  // namespace windrow::cuda
