// Runs kernels with threads of the host.
#pragma once

#include <functional>

#include "cuda/plugin/host_team.h"
#include "fake.h"

namespace windrow::fake {

struct Launch {
  const cuda::HostKernel* kernel;
  std::vector<std::byte> arguments;  // of the struct, with addresses that the host can access
  int teams, threads;
  std::size_t shared_bytes;
};

/// Runs all teams, one after the other. Passes on what is wrong with the kernel, if anything is.
void run_teams(const Launch& launch, Threads threads, const std::function<void(std::string)>& report);

}  // namespace windrow::fake
