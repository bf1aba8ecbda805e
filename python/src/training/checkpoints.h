// Writers of checkpoints as Python sees them.
#pragma once
#include <mutex>
#include <string>

#include "python.h"
#include "windrow/training/checkpoint_folder.h"

namespace windrow::python {

/// A writer, whose calls must not overlap. Their order is that of the mutex.
struct WriterObject {
  CheckpointWriter writer;
  std::mutex mutex;
  std::string path;
};

}  // namespace windrow::python
