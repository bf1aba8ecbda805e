#include <mpi.h>

#include <climits>
#include <cstdlib>
#include <cstring>

#include "mpi_calls.h"

namespace windrow::comm {
namespace {

struct HeldComm {
  MPI_Comm comm;
};
MPI_Comm of(MpiGroup* group) { return reinterpret_cast<HeldComm*>(group)->comm; }
MpiGroup* made(MPI_Comm comm) { return reinterpret_cast<MpiGroup*>(new HeldComm{comm}); }

MPI_Datatype of(MpiType type) {
  switch (type) {
    case MpiType::float32:
      return MPI_FLOAT;
    case MpiType::int32:
      return MPI_INT32_T;
    case MpiType::int64:
      return MPI_INT64_T;
    default:
      return MPI_BYTE;
  }
}
/// The result of MPI_MAX of a float and NaN depends on the number of elements, so floats have an operation of their
/// own.
MPI_Op max_of_floats = MPI_OP_NULL;
void max_or_nan(void* from, void* to, int* count, MPI_Datatype*) {
  const auto* const x = static_cast<const float*>(from);
  auto* const y = static_cast<float*>(to);
  for (int i = 0; i < *count; ++i) y[i] = x[i] > y[i] || x[i] != x[i] ? x[i] : y[i];
}

MPI_Op of(Combine combine, MpiType type) {
  if (combine != Combine::max) return MPI_SUM;
  return type == MpiType::float32 ? max_of_floats : MPI_MAX;
}

/// Whether init() has started MPI.
bool own = false;

/// Starts MPI, unless the program has done so in a way that serves. Returns 0 or an error.
int start(bool with_communicator) {
  int started = 0, ended = 0, provided = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  if (started != 0) {
    if (own || ended != 0) return already_started;
    MPI_Query_thread(&provided);
    return provided < MPI_THREAD_MULTIPLE ? already_started : 0;
  }
  if (with_communicator) return not_started;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided); error != MPI_SUCCESS) {
    return error;
  }
  if (provided < MPI_THREAD_FUNNELED) {
    MPI_Finalize();
    return no_threads;
  }
  own = true;
  return 0;
}

int init(const void* communicator, MpiGroup** world) {
  if (const int error = start(communicator != nullptr); error != 0) return error;
  MPI_Comm comm = MPI_COMM_WORLD;
  if (!own) {  // the program may use and free its communicator
    const MPI_Comm of_program = communicator == nullptr ? comm : *static_cast<const MPI_Comm*>(communicator);
    if (const int error = MPI_Comm_dup(of_program, &comm); error != MPI_SUCCESS) return error;
  }
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  constexpr int commutes = 1;
  if (max_of_floats == MPI_OP_NULL) {
    if (const int error = MPI_Op_create(max_or_nan, commutes, &max_of_floats); error != MPI_SUCCESS) return error;
  }
  *world = made(comm);
  return 0;
}

void text(int error, char* text, std::size_t size) {
  char whole[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, whole, &length);
  std::strncpy(text, whole, size - 1);
  text[size - 1] = '\0';
}

int rank(MpiGroup* group, int* rank, int* size) {
  if (const int error = MPI_Comm_rank(of(group), rank); error != MPI_SUCCESS) return error;
  return MPI_Comm_size(of(group), size);
}

int duplicate(MpiGroup* group, MpiGroup** copy) {
  MPI_Comm comm = MPI_COMM_NULL;
  if (const int error = MPI_Comm_dup(of(group), &comm); error != MPI_SUCCESS) return error;
  *copy = made(comm);
  return 0;
}

int release(MpiGroup* group) {
  const int error = MPI_Comm_free(&reinterpret_cast<HeldComm*>(group)->comm);
  delete reinterpret_cast<HeldComm*>(group);
  return error;
}

int begin(const MpiTransfer& what, MPI_Comm comm, MPI_Request* made) {
  const void* const own = what.from == nullptr ? MPI_IN_PLACE : what.from;
  void* const to = what.to;
  const int count = static_cast<int>(what.count);
  const MPI_Datatype type = of(what.type);
  const MPI_Op operation = of(what.combine, what.type);
  switch (what.kind) {
    case CallKind::all_reduce:
      return MPI_Iallreduce(own, to, count, type, operation, comm, made);
    case CallKind::reduce:
      return MPI_Ireduce(own, own == to ? nullptr : to, count, type, operation, what.peer, comm, made);
    case CallKind::broadcast:
      return MPI_Ibcast(to, count, type, what.peer, comm, made);
    case CallKind::all_gather:
      return MPI_Iallgather(own, count, type, to, count, type, comm, made);
    case CallKind::reduce_scatter:
      return MPI_Ireduce_scatter_block(own, to, count, type, operation, comm, made);
    case CallKind::all_to_all:
      return MPI_Ialltoall(own, count, type, to, count, type, comm, made);
    case CallKind::send:
      return MPI_Isend(own, count, type, what.peer, what.tag, comm, made);
    case CallKind::recv:
      return MPI_Irecv(to, count, type, what.peer < 0 ? MPI_ANY_SOURCE : what.peer, what.tag, comm, made);
    case CallKind::exchange:
      break;
  }
  return MPI_ERR_ARG;
}

int begin(MpiGroup* group, const MpiTransfer* what, MpiRequest** request) {
  if (what->count > INT_MAX) return MPI_ERR_COUNT;
  auto* const made = new MPI_Request(MPI_REQUEST_NULL);
  const int error = begin(*what, of(group), made);
  if (error != MPI_SUCCESS) {
    delete made;
    return error;
  }
  *request = reinterpret_cast<MpiRequest*>(made);
  return 0;
}

int test(MpiRequest** request, int* done) {
  auto* const made = reinterpret_cast<MPI_Request*>(*request);
  const int error = MPI_Test(made, done, MPI_STATUS_IGNORE);
  if (error != MPI_SUCCESS || *done != 0) {
    delete made;
    *request = nullptr;
  }
  return error;
}

int cancel(MpiRequest** request) {
  auto* const made = reinterpret_cast<MPI_Request*>(*request);
  int error = MPI_Cancel(made);
  if (error == MPI_SUCCESS) error = MPI_Wait(made, MPI_STATUS_IGNORE);
  delete made;
  *request = nullptr;
  return error;
}

int finalize(MpiGroup* world) { return own ? MPI_Finalize() : release(world); }

const MpiCalls calls = {MpiCalls::current_version, init, finalize, text, rank, duplicate, release, begin, test, cancel};

}  // namespace

const MpiCalls* windrow_mpi_calls() { return &calls; }

}  // namespace windrow::comm
