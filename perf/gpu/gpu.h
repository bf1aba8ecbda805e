// Training and inference on a CUDA device: throughput, and where the time goes. `windrow-perf gpu`.
#pragma once

#include <string>
#include <vector>

#include "devices.h"
#include "report.h"
#include "windrow/models/trainer.h"

namespace windrow::perf {

struct GpuOptions {
  program::DeviceFlags device = {.device = "cuda:0"};
  std::vector<std::string> models;  ///< names of workloads
  std::vector<int> hidden;          ///< hidden and embedding sizes; empty for the models' own
  std::vector<int> batches;
  WorkloadOptions workload;
  int passes = 3;
  bool inference = false;  ///< evaluate the validation set instead of training
};

/// Makes the devices of this process compute nothing, so that what remains is the host's time. To be called before a
/// device is opened.
void leave_out_work();

/// Measures each model with each size and batch size, and reports a record for each. Throws what opening the device,
/// reading and training throw.
void measure_gpu(const GpuOptions& options, const Report& report);

/// What the fields of a record mean, for --help.
extern const char* const gpu_fields;

}  // namespace windrow::perf
