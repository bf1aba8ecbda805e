// One process of a group that fails in a chosen way; mpi_failure_test starts it. Prints what a wait throws.
//
//   mpirun -n 3 mpi_rank kill|stop|stuck|slow|abort|leave|last|late [RANK]
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "windrow/comm/mpi.h"

using namespace std::chrono_literals;

/// A member has ended, but after its part of the calls that the others still have.
std::string after_the_last(std::optional<windrow::Communicator>& all, int bad) {
  const windrow::Device device = all->device();
  const int rank = all->rank(), size = all->size();
  constexpr windrow::Index many = 1 << 20;
  const windrow::Tensor x(device, 1, many, "x"), y(device, 1, 1, "y"), z(device, 1, many, "z");
  for (const windrow::Tensor* const tensor : {&x, &z})
    tensor->set(std::vector<float>(many, static_cast<float>(1 + rank)));
  y.set({1});
  all->exchange({});
  all->all_reduce(x);
  if (rank == bad) {
    all.reset();
    return x.get()[many - 1] == static_cast<float>(size * (size + 1) / 2) ? "" : "a wrong sum";
  }
  if (rank == 0) all->send(z, 1);
  if (rank == 1) all->recv(z, 0);
  all->all_reduce(y, windrow::Combine::sum, {.name = "gradients"});
  if (x.get()[many - 1] != static_cast<float>(size * (size + 1) / 2)) return "a wrong sum";
  if (z.get()[many - 1] != 1) return "a wrong message";
  y.get();
  return "no failure";
}

/// MPI goes on to write a tensor whose call has failed, since another group calls MPI.
std::string set_after_a_failure(windrow::MpiWorld& world, const windrow::Communicator& other) {
  const windrow::Device device = other.device();
  windrow::Engine& engine = *device.engine;
  constexpr windrow::Index many = 1 << 22;
  int failed = 0;
  for (int round = 0; round < 3; ++round) {
    const windrow::Communicator broken = world.group(device);
    const windrow::Tensor x(device, 1, many, "x");
    x.set(std::vector<float>(many, 1));
    {
      const windrow::Tensor freed(device, 1, many, "freed");
      freed.set(std::vector<float>(many, 1));
      engine.wait_all();
      other.exchange({});
      broken.all_reduce(x);
      broken.all_reduce(freed);
      std::this_thread::sleep_for(1ms * (round + 1));
      if (other.rank() == 0) broken.abort("for the test");
      for (const windrow::Tensor* const tensor : {&x, &freed}) {
        try {
          engine.wait(tensor->var());
        } catch (const windrow::OpError&) {
          ++failed;
        }
      }
    }
    x.set(std::vector<float>(many, 7));
    device.memory->trim(0);
    for (int i = 0; i < 300; ++i) other.exchange({});
    const std::vector<float> values = x.get();
    if (std::ranges::count(values, 7.0f) != many) return "written after its call has failed";
  }
  return failed > 0 ? "" : "no call was under way";
}

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "";
  windrow::Engine engine({.workers = 1});
  windrow::MpiWorld world({.patience = 2s, .answer = 2s, .eager_bytes = 200});
  const windrow::Device device = windrow::host_device(engine);
  std::optional<windrow::Communicator> all(world.group(device));
  const int rank = all->rank(), bad = argc > 2 ? std::atoi(argv[2]) : all->size() - 1;
  const auto pids = all->exchange(std::vector<std::int64_t>{getpid()});
  const windrow::Tensor x(device, 100, 100, "x");
  std::string error;
  bool told_elsewhere = false;
  try {
    if (how == "late") error = set_after_a_failure(world, *all);
    if (how == "last") error = after_the_last(all, bad);
    for (int call = how == "late" || how == "last" ? 6 : 0; call < 6; ++call) {
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
    } catch (const windrow::PeerError&) {
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
