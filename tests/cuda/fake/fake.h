// A CUDA runtime without a GPU, for tests. Start here.
//
// The library implements the functions of the CUDA runtime and of cuBLAS that cuda/plugin calls, with threads of the
// host. It is linked in place of them, so that tests run the very objects that nvcc made. What it shows: the order of
// work, memory, errors and results of kernels. What it cannot show: code of a device, and times.
//
//   runtime.*    the controls below, and what the functions of the CUDA runtime share: *_calls.cc
//   blas.cc      the functions of cuBLAS
//   world.h      the state, and the mutex that guards it
//   streams.*    queues of work, each with a thread; events; orders in which work runs
//   memory.*     memory of devices, at addresses that the host cannot access
//   compiler.cc  the functions of NVRTC, by the compiler of the host
//   teams.*      runs kernels, see cuda/plugin/team.h
//   checker.*    finds accesses to memory that nothing orders
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace windrow::fake {

/// When work runs that may run.
enum class Order {
  eager,   ///< at once
  random,  ///< sometimes later, by the seed
  lazy,    ///< when a thread waits for it, or has asked for it several times
};

/// How the threads of a team run.
enum class Threads {
  loop,  ///< one after the other, between two barriers
  real,  ///< each as a thread of the host, for ThreadSanitizer
};

struct Options {
  int devices = 1;
  std::size_t memory = std::size_t{256} << 20;  ///< bytes of each device
  Order order = Order::eager;
  unsigned seed = 1;
  Threads threads = Threads::loop;
  bool check = true;           ///< look for accesses that nothing orders
  bool kernels_run = true;     ///< otherwise they are issued and do nothing
  int driver_version = 13000;  ///< 0: there is no driver
  int major = 9;               ///< of the devices' architecture
  bool cooperative = true;     ///< otherwise kernels whose teams wait for each other are refused at their launch
  int compiler_minor = 0;      ///< of NVRTC's version
  int multiprocessors = 3;     ///< of a device; one runs a team of a kernel whose teams wait for each other
  std::size_t shared_bytes = std::size_t{227} << 10;  ///< the most of a team
};

/// Begins anew, with no failure, no report and all counters zero. Waits a while for streams to
/// end; throws std::logic_error if they do not.
void reset(const Options& options = {});
/// Whether streams exist.
bool in_use();

/// From now on.
void set_order(Order order, unsigned seed);
/// While true, no work begins.
void hold(bool held);
/// No work begins whose name contains this text, unless that is empty.
void hold_at(const std::string& name);

/// The `call`-th call from now on, counted from 1, returns this error of the CUDA runtime. If it lasts, all later calls
/// for that thread's device return it too, as after a failure of the device.
void fail(std::uint64_t call, int error, bool lasts);
/// Whether the device has a context: a thread has chosen it, or allocated on it.
bool has_context(int device);
/// The next work of a device fails when it runs, as a kernel with a wrong address does. The device is lost.
void fail_next_work(int device = 0);

/// For tests that make allocations fail: the runtime calls `begin` before it allocates for itself on a thread, and
/// `end` afterwards. To be called before anything else.
void around_own_allocations(void (*begin)(), void (*end)());

/// Calls since reset().
struct Counters {
  std::uint64_t calls = 0;  ///< of all functions that can fail
  std::uint64_t launches = 0, products = 0, copies = 0;
  unsigned most_teams = 0;                            ///< of a kernel whose teams wait for each other
  std::uint64_t records = 0, queries = 0, waits = 0;  ///< of events
  std::uint64_t synchronisations = 0;                 ///< calls in which the host waits for a device
  std::uint64_t compilations = 0;                     ///< by NVRTC
  std::uint64_t graphs = 0, graphs_made = 0;          ///< launched, and instantiated
  std::uint64_t streams = 0, allocations = 0, pinned_allocations = 0;
};
Counters counters();

/// What is wrong with the program that uses the runtime, one line each: accesses that nothing orders, accesses to
/// memory that is not allocated, threads of a team that share memory without a barrier.
std::vector<std::string> reports();
void forget_reports();

}  // namespace windrow::fake
