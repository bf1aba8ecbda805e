// MPI alone, by the plug-in's table: what Windrow adds to it is the difference.
#include <array>
#include <thread>
#include <vector>

#include "comm/comm.h"
#include "mpi_calls.h"
#include "program.h"

namespace windrow::perf {
namespace {

using comm::MpiCalls, comm::MpiGroup, comm::MpiRequest;

const MpiCalls& calls() {
  const OpenedPlugIn opened = open_plug_in(comm::mpi_plug_in);
  if (opened.table == nullptr) throw MisuseError(opened.error);
  return *static_cast<const MpiCalls*>(opened.table);
}

void require(int error) {
  if (error != 0) throw Error("MPI failed");
}

/// Polls as Windrow's thread does.
void finish(const MpiCalls& mpi, MpiRequest* request) {
  int done = 0;
  for (int polls = 0; done == 0; ++polls) {
    require(mpi.test(&request, &done));
    if (done == 0 && polls > 100) std::this_thread::yield();
  }
}

}  // namespace

void run_bare_mpi() {
  const MpiCalls& mpi = calls();
  MpiGroup* world = nullptr;
  require(mpi.init(nullptr, &world));
  int rank = 0, size = 0;
  require(mpi.rank(world, &rank, &size));
  std::vector<std::vector<float>> data(calls_together, std::vector<float>(call_bytes / sizeof(float)));
  const auto begin = [&](int i) {
    MpiRequest* request = nullptr;
    std::vector<float>& of = data[static_cast<std::size_t>(i)];
    const comm::MpiTransfer what{
        .kind = comm::CallKind::all_reduce, .to = of.data(), .count = of.size(), .type = comm::MpiType::float32};
    require(mpi.begin(world, &what, &request));
    return request;
  };
  for (int i = 0; i < calls_together; ++i) finish(mpi, begin(i));
  measure_calls(
      rank, [&] { finish(mpi, begin(0)); },
      [&] {
        std::array<MpiRequest*, calls_together> requests{};
        for (int k = 0; k < calls_together; ++k) requests[static_cast<std::size_t>(k)] = begin(k);
        for (MpiRequest* const request : requests) finish(mpi, request);
      });
  require(mpi.finalize(world));
}

}  // namespace windrow::perf
