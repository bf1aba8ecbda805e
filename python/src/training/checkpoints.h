// Writers of checkpoints as Python sees them.
#pragma once
#include <mutex>
#include <string>

#include "python.h"
#include "windrow/training/checkpoint_folder.h"

namespace windrow::python {

/// A writer, with a mutex, since its calls must not overlap.
struct WriterObject {
  CheckpointWriter writer;
  std::mutex mutex;
  std::string path;
};

}  // namespace windrow::python
