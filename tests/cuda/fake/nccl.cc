#include "nccl.h"

#include <cstdio>
#include <filesystem>

#include "nccl_work.h"

namespace windrow::fake {
namespace {

/// Polls until the work of a group of calls begins.
constexpr int polls = 3;

struct Group;
}  // namespace
}  // namespace windrow::fake

struct ncclComm {
  std::shared_ptr<windrow::fake::Clique> clique;
  int rank = 0, device = 0;
  ncclResult_t error = ncclSuccess;
  std::shared_ptr<windrow::fake::Group> group = nullptr;  // calls that have not begun
  bool finalized = false;
  std::uint64_t collectives = 0;
  std::map<std::pair<int, int>, std::uint64_t> messages = {};
};

namespace windrow::fake {
namespace {

/// What a rank does in a group of calls, on one stream.
struct Work {
  ncclComm* comm;
  cudaStream_t stream;
  std::vector<Operation> operations;
};
struct Group {
  int polls_left = polls;
  bool begun = false;
  std::vector<Work> works;
};

struct Fault {
  NcclFault fault;
  std::uint64_t call;
  std::string function;
};

struct State {
  std::mutex mutex;
  std::condition_variable released;
  std::uint64_t releases = 0;
  std::vector<Fault> faults;
  std::map<std::string, std::shared_ptr<Clique>> cliques;  // by id
  std::set<ncclComm*> comms;
  std::uint64_t ids = 0;
};
State& state() {
  static State* const made = [] {
    auto* const begun = new State;
    // Programs: this function fails when it is first called.
    if (const char* const function = std::getenv("WINDROW_FAKE_NCCL_FAULT")) {
      begun->faults.push_back({NcclFault::error, 1, function});
    }
    return begun;
  }();
  return *made;
}

thread_local int depth = 0;
thread_local std::vector<Work> queued;
thread_local std::vector<ncclComm*> connecting;

/// How the names of a clique's files begin, if its ranks are processes.
std::string files_of(const std::string& id) {
  const char* const folder = std::getenv("WINDROW_FAKE_NCCL_FOLDER");
  return folder == nullptr ? "" : (std::filesystem::path(folder) / id).string();
}

bool ends_communicator(const std::string& function) {
  return function == "ncclCommAbort" || function == "ncclCommDestroy";
}

/// What each function does first: returns the error that it is to return, or success.
ncclResult_t begin(const char* function, std::unique_lock<std::mutex>& lock) {
  State& s = state();
  for (auto fault = s.faults.begin(); fault != s.faults.end(); ++fault) {
    if (!fault->function.empty() && fault->function != function) continue;
    if (--fault->call > 0) continue;
    const NcclFault what = fault->fault;
    s.faults.erase(fault);
    const auto before = s.releases;
    switch (what) {
      case NcclFault::error:
        return ncclSystemError;
      case NcclFault::hang:
        s.released.wait(lock, [&] { return s.releases != before; });
        // Others may have aborted the communicator meanwhile.
        return ends_communicator(function) ? ncclSuccess : ncclSystemError;
      case NcclFault::late_error:
        for (ncclComm* const comm : s.comms) comm->error = ncclRemoteError;
        [[fallthrough]];
      case NcclFault::lost:
        for (const auto& [id, clique] : s.cliques) {
          std::lock_guard of_clique(clique->mutex);
          clique->lost = true;
        }
        return ncclSuccess;
    }
  }
  return ncclSuccess;
}

#define WINDROW_BEGIN_NCCL()            \
  std::unique_lock lock(state().mutex); \
  if (const ncclResult_t injected = begin(__func__, lock); injected != ncclSuccess) return injected

/// Called with the state's mutex.
void launch(Group& group) {
  group.begun = true;
  for (Work& work : group.works) {
    ncclComm& comm = *work.comm;
    std::vector<MeetingName> names;
    std::vector<cuda::Access> accesses;
    for (const Operation& operation : work.operations) {
      std::pair<int, int> pair{-1, -1};
      if (operation.kind == Operation::Kind::send) pair = {comm.rank, operation.peer};
      if (operation.kind == Operation::Kind::receive) pair = {operation.peer, comm.rank};
      // A message to the own rank has both ends in one communicator.
      const bool own_end = pair.first == pair.second && operation.kind == Operation::Kind::receive;
      auto& number = operation.pair() ? comm.messages[own_end ? std::pair{-2, pair.second} : pair] : comm.collectives;
      names.emplace_back(pair.first, pair.second, number++);
      add_accesses(accesses, operation, *comm.clique, comm.rank);
    }
    std::lock_guard lock(world().mutex);
    Stream& stream = stream_of(work.stream);
    if (stream.device() != comm.device) world().report("NCCL: a stream of another device than the communicator's");
    issue(stream, "nccl", accesses, [clique = comm.clique, rank = comm.rank, names, operations = work.operations] {
      run(*clique, rank, names, operations);
    });
  }
  group.works.clear();
}

ncclResult_t enqueue(ncclComm* comm, cudaStream_t stream, const Operation& operation) {
  if (depth == 0) report_nccl("a call outside of a group, which waits for the other ranks");
  if (comm->group != nullptr) report_nccl("a call while the communicator is in progress");
  const auto same = std::ranges::find_if(queued, [&](const Work& w) { return w.comm == comm && w.stream == stream; });
  if (same != queued.end()) {
    same->operations.push_back(operation);
  } else {
    queued.push_back({comm, stream, {operation}});
  }
  return ncclSuccess;
}

}  // namespace

void inject_nccl(NcclFault fault, std::uint64_t call, const std::string& function) {
  std::lock_guard lock(state().mutex);
  state().faults.push_back({fault, call, function});
}
bool forget_nccl_faults() {
  std::lock_guard lock(state().mutex);
  const bool any = !state().faults.empty();
  state().faults.clear();
  return any;
}
void release_nccl() {
  std::lock_guard lock(state().mutex);
  ++state().releases;
  std::erase_if(state().faults,
                [](const Fault& one) { return one.fault == NcclFault::hang && one.function == "ncclCommAbort"; });
  state().released.notify_all();
}
int nccl_communicators() {
  std::lock_guard lock(state().mutex);
  return static_cast<int>(state().comms.size());
}

}  // namespace windrow::fake

using namespace windrow::fake;

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInvalidUsage:
      return "invalid usage";
    default:
      return "an error of NCCL";
  }
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  WINDROW_BEGIN_NCCL();
  *id = {};
  std::snprintf(id->internal, sizeof id->internal, "clique %llu", static_cast<unsigned long long>(++state().ids));
  if (!files_of("").empty()) {  // another process may make one, too
    std::snprintf(id->internal, sizeof id->internal, "clique-%u", std::random_device()());
  }
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  WINDROW_BEGIN_NCCL();
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  WINDROW_BEGIN_NCCL();
  if (--depth > 0) return ncclSuccess;
  auto group = std::make_shared<Group>();
  group->works = std::exchange(queued, {});
  for (ncclComm* const comm : std::exchange(connecting, {})) {
    comm->clique->joined.insert(comm->rank);
    if (!comm->clique->files.empty()) join_by_files(*comm->clique, comm->rank);
  }
  for (const Work& work : group->works) work.comm->group = group;
  return group->works.empty() ? ncclSuccess : ncclInProgress;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  WINDROW_BEGIN_NCCL();
  if (config == nullptr || config->blocking != 0) report_nccl("a communicator that blocks");
  auto& clique = state().cliques[id.internal];
  if (clique == nullptr) clique = std::make_shared<Clique>(size, files_of(id.internal));
  if (rank < 0 || rank >= size || clique->size != size) return ncclInvalidArgument;
  *made = new ncclComm{.clique = clique, .rank = rank, .device = current_device()};
  for (const ncclComm* other : state().comms) {
    if (other->clique == clique && other->device == (*made)->device) (*made)->error = ncclInvalidUsage;
  }
  state().comms.insert(*made);
  if (depth == 0) report_nccl("a communicator is made outside of a group");
  connecting.push_back(*made);
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  WINDROW_BEGIN_NCCL();
  *error = comm->error;
  if (comm->error != ncclSuccess) return ncclSuccess;
  if (!comm->clique->files.empty()) look_who_joined(*comm->clique);
  if (static_cast<int>(comm->clique->joined.size()) < comm->clique->size) *error = ncclInProgress;
  if (comm->group == nullptr) return ncclSuccess;
  Group& group = *comm->group;
  if (!group.begun && --group.polls_left <= 0) launch(group);
  if (group.begun) {
    comm->group = nullptr;
  } else {
    *error = ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  WINDROW_BEGIN_NCCL();
  comm->finalized = true;
  comm->group = std::make_shared<Group>();
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  WINDROW_BEGIN_NCCL();
  if (!comm->finalized || comm->group != nullptr) report_nccl("a communicator is destroyed before it was finalized");
  state().comms.erase(comm);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  WINDROW_BEGIN_NCCL();
  {
    std::lock_guard of_clique(comm->clique->mutex);
    comm->clique->aborted.insert(comm->rank);
    comm->clique->changed.notify_all();
  }
  state().comms.erase(comm);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t how,
                           ncclComm_t comm, cudaStream_t stream) {
  WINDROW_BEGIN_NCCL();
  return enqueue(comm, stream, {Operation::Kind::all_reduce, from, to, count, type, how});
}
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t how, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  WINDROW_BEGIN_NCCL();
  return enqueue(comm, stream, {Operation::Kind::reduce, from, to, count, type, how, root});
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  WINDROW_BEGIN_NCCL();
  return enqueue(comm, stream, {Operation::Kind::broadcast, from, to, count, type, ncclSum, root});
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  WINDROW_BEGIN_NCCL();
  return enqueue(comm, stream, {Operation::Kind::all_gather, from, to, count, type});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t how,
                               ncclComm_t comm, cudaStream_t stream) {
  WINDROW_BEGIN_NCCL();
  return enqueue(comm, stream, {Operation::Kind::reduce_scatter, from, to, count, type, how});
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  WINDROW_BEGIN_NCCL();
  return enqueue(comm, stream, {Operation::Kind::send, from, nullptr, count, type, ncclSum, peer});
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  WINDROW_BEGIN_NCCL();
  return enqueue(comm, stream, {Operation::Kind::receive, nullptr, to, count, type, ncclSum, peer});
}

}  // extern "C"
