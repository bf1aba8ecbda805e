// One process of a group that fails in a chosen way; mpi_failure_test starts it. Prints what a wait throws.
//
//   mpirun -n 3 mpi_rank kill|stop|stuck|slow|abort|leave|eager [RANK]
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "windrow/comm/mpi.h"

using namespace std::chrono_literals;

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  windrow::Engine engine({.workers = 1});
  const windrow::MpiWorld::Started started = windrow::MpiWorld::started();
  const std::size_t eager = how == "eager" && started.rank == started.size - 1 ? 100 : 200;
  windrow::MpiWorld world({.patience = 2s, .answer = 2s, .eager_bytes = eager});
  const windrow::Device device = windrow::host_device(engine);
  std::optional<windrow::Communicator> all;
  try {
    all = world.group(device);
  } catch (const windrow::CommError& error) {
    std::printf("rank %d: %s\n", world.rank(), error.what());
    return 0;
  }
  const int rank = all->rank(), bad = argc > 2 ? std::atoi(argv[2]) : all->size() - 1;
  const auto pids = all->exchange(std::vector<std::int64_t>{getpid()});
  const windrow::Tensor x(device, 100, 100, "x");
  std::string error;
  bool told_elsewhere = false;
  try {
    for (int call = 0; call < 6; ++call) {
      x.set(std::vector<float>(10000, 1));
      if (call == 3 && rank == bad) {
        if (how == "kill") std::raise(SIGKILL);
        if (how == "stop") std::raise(SIGSTOP);
        if (how == "stuck") std::this_thread::sleep_for(60s);  // until it is killed
        if (how == "slow") std::this_thread::sleep_for(6s);
        if (how == "abort") all->abort("rank " + std::to_string(bad) + " gives up");
        if (how == "leave") {
          all.reset();
          break;
        }
      }
      all->all_reduce(x, windrow::Combine::sum, {.name = "gradients"});
      if (x.get()[0] != static_cast<float>(all->size())) error = "a wrong sum";
    }
  } catch (const windrow::OpError& failure) {
    error = failure.what();
    try {
      failure.rethrow_root();
    } catch (const windrow::ToldError&) {
      told_elsewhere = true;
    } catch (const std::exception&) {
    }
  }
  std::printf("rank %d%s: %s\n", rank, told_elsewhere ? " leaves it to another" : "", error.c_str());
  std::fflush(stdout);
  if ((how == "stop" || how == "stuck") && rank == (bad == 0 ? 1 : 0))
    ::kill(static_cast<pid_t>(pids[static_cast<std::size_t>(bad)]), SIGKILL);
  std::this_thread::sleep_for(500ms);  // until all others have printed: mpirun ends them when one ends badly
  std::_Exit(0);
}
