// Compiled kernels, in the memory of the process and on disk.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hardware.h"

namespace windrow::cuda {

/// A kernel of a source.
struct KernelNeeds {
  std::string name;
  std::size_t shared_bytes = 0;  ///< at its launch
};

/// The kernels of one source on one device.
class Code {
 public:
  /// Compiles the source, or reads the code from a cache of files (by compiler, options and architecture). The variable
  /// WINDROW_CUDA_CACHE names the cache's folder, by default $XDG_CACHE_HOME/windrow or ~/.cache/windrow; an empty
  /// value turns the cache off. A damaged file is replaced. The device keeps the code. Throws Error if the source does
  /// not compile. Threads: any.
  static const Code* of(Hardware& hardware, const std::string& source, const std::vector<KernelNeeds>& kernels);
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  /// The kernel with this number in `kernels`; null if the device cannot give it its shared memory.
  Function* function(std::size_t number) const { return functions_[number]; }

 private:
  Code(const Hardware& hardware, const std::string& code, const std::vector<KernelNeeds>& kernels);

  std::unique_ptr<Module, int (*)(Module*)> module_;
  std::vector<Function*> functions_;
};

}  // namespace windrow::cuda
