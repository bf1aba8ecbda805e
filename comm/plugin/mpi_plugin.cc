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
/// MPI_MAX gives a number or NaN for these, as the number of elements wants it.
MPI_Op max_of_floats = MPI_OP_NULL;
void max_or_nan(void* from, void* to, int* count, MPI_Datatype*) {
  const auto* const x = static_cast<const float*>(from);
  auto* const y = static_cast<float*>(to);
  for (int i = 0; i < *count; ++i) y[i] = x[i] > y[i] || x[i] != x[i] ? x[i] : y[i];
}

MPI_Op of(MpiOperation operation, MpiType type) {
  if (operation == MpiOperation::sum) return MPI_SUM;
  return type == MpiType::float32 ? max_of_floats : MPI_MAX;
}

const void* or_in_place(const void* from) { return from == nullptr ? MPI_IN_PLACE : from; }

/// Begins a transfer of so many elements by `call`, which gets their number as MPI counts.
int begin(MpiRequest** request, std::size_t count, auto&& call) {
  if (count > INT_MAX) return MPI_ERR_COUNT;
  auto* const made = new MPI_Request(MPI_REQUEST_NULL);
  const int error = call(static_cast<int>(count), made);
  if (error != MPI_SUCCESS) {
    delete made;
    return error;
  }
  *request = reinterpret_cast<MpiRequest*>(made);
  return 0;
}

int init(MpiGroup** world) {
  int started = 0;
  MPI_Initialized(&started);
  if (started != 0) return already_started;
  int provided = 0;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided); error != MPI_SUCCESS) {
    return error;
  }
  if (provided < MPI_THREAD_FUNNELED) {
    MPI_Finalize();
    return no_threads;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  constexpr int commutes = 1;
  if (const int error = MPI_Op_create(max_or_nan, commutes, &max_of_floats); error != MPI_SUCCESS) return error;
  *world = made(MPI_COMM_WORLD);
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

int all_reduce(MpiGroup* group, const void* from, void* to, std::size_t count, MpiType type, MpiOperation operation,
               MpiRequest** request) {
  return begin(request, count, [&](int n, MPI_Request* made) {
    return MPI_Iallreduce(or_in_place(from), to, n, of(type), of(operation, type), of(group), made);
  });
}
int reduce(MpiGroup* group, const void* from, void* to, std::size_t count, MpiType type, MpiOperation operation,
           int root, MpiRequest** request) {
  return begin(request, count, [&](int n, MPI_Request* made) {
    return MPI_Ireduce(or_in_place(from), from == to ? nullptr : to, n, of(type), of(operation, type), root, of(group),
                       made);
  });
}
int broadcast(MpiGroup* group, void* data, std::size_t count, MpiType type, int root, MpiRequest** request) {
  return begin(request, count,
               [&](int n, MPI_Request* made) { return MPI_Ibcast(data, n, of(type), root, of(group), made); });
}
int all_gather(MpiGroup* group, const void* from, void* to, std::size_t count, MpiType type, MpiRequest** request) {
  return begin(request, count, [&](int n, MPI_Request* made) {
    return MPI_Iallgather(from, n, of(type), to, n, of(type), of(group), made);
  });
}
int reduce_scatter(MpiGroup* group, const void* from, void* to, std::size_t count, MpiType type, MpiOperation operation,
                   MpiRequest** request) {
  return begin(request, count, [&](int n, MPI_Request* made) {
    return MPI_Ireduce_scatter_block(from, to, n, of(type), of(operation, type), of(group), made);
  });
}
int all_to_all(MpiGroup* group, const void* from, void* to, std::size_t count, MpiType type, MpiRequest** request) {
  return begin(request, count, [&](int n, MPI_Request* made) {
    return MPI_Ialltoall(from, n, of(type), to, n, of(type), of(group), made);
  });
}
int send(MpiGroup* group, const void* data, std::size_t count, MpiType type, int to, int tag, MpiRequest** request) {
  return begin(request, count,
               [&](int n, MPI_Request* made) { return MPI_Isend(data, n, of(type), to, tag, of(group), made); });
}
int receive(MpiGroup* group, void* data, std::size_t count, MpiType type, int from, int tag, MpiRequest** request) {
  return begin(request, count, [&](int n, MPI_Request* made) {
    return MPI_Irecv(data, n, of(type), from < 0 ? MPI_ANY_SOURCE : from, tag, of(group), made);
  });
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

const MpiCalls calls = {MpiCalls::current_version,
                        init,
                        MPI_Finalize,
                        text,
                        rank,
                        duplicate,
                        release,
                        all_reduce,
                        reduce,
                        broadcast,
                        all_gather,
                        reduce_scatter,
                        all_to_all,
                        send,
                        receive,
                        test,
                        cancel};

}  // namespace

const MpiCalls* windrow_mpi_calls() { return &calls; }

}  // namespace windrow::comm
