#include "nccl/clique.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "windrow/engine/error.h"
#include "windrow/engine/internal/plug_in.h"

namespace windrow::comm {
namespace {

const OpenedPlugIn& opened() {
  static const OpenedPlugIn plug_in = open_plug_in({.file = "windrow_nccl.so",
                                                    .variable = "WINDROW_NCCL_PLUGIN",
                                                    .function = "windrow_nccl_calls",
                                                    .version = NcclCalls::current_version,
                                                    .purpose = "NCCL cannot be used",
                                                    .needs = "a build with nvcc and nccl.h, and libnccl.so.2"});
  return plug_in;
}

bool reads(const NcclPart& part, std::size_t piece) {
  if (part.call.has_two_ends()) return piece == 0;
  if (part.call.kind == CallKind::broadcast) return part.rank == part.call.peer;
  return part.call.kind != CallKind::recv;
}
bool writes(const NcclPart& part, std::size_t piece) {
  if (part.call.has_two_ends()) return piece == 1;
  switch (part.call.kind) {
    case CallKind::reduce:
      return part.rank == part.call.peer;
    case CallKind::broadcast:
      return part.rank != part.call.peer;
    case CallKind::send:
      return false;
    default:
      return true;
  }
}

const char* nccl_name_of(CallKind kind) {
  constexpr const char* names[] = {"ncclAllReduce",     "ncclReduce", "ncclBroadcast", "ncclAllGather",
                                   "ncclReduceScatter", "",           "ncclSend",      "ncclRecv"};
  return names[static_cast<std::size_t>(kind)];
}

}  // namespace

const NcclCalls& nccl_calls() {
  if (opened().table == nullptr) throw MisuseError(opened().error);
  return *static_cast<const NcclCalls*>(opened().table);
}
std::string why_no_nccl() { return opened().table == nullptr ? opened().error : ""; }

std::string nccl_text(const NcclCalls& calls, int error) {
  std::array<char, 512> text{};
  calls.text(error, text.data(), text.size());
  return text.data();
}

NcclClique::NcclClique(const NcclCalls& calls, const std::vector<RankAndDevice>& places, int size)
    : calls_(calls), size_(size) {
  for (const auto& [rank, device] : places) seats_.push_back({.rank = rank, .device = device});
}

NcclClique::~NcclClique() {
  if (!ended_) return;  // NCCL may still hold all of it
  std::thread([this] {  // the caller keeps its device
    for (const Seat& seat : seats_) {
      calls_.use(seat.device);
      if (seat.stream != nullptr) calls_.end_stream(seat.stream);
      for (void* const scratch : seat.scratch) calls_.free(scratch);
    }
    for (NcclEvent* const event : events_) calls_.end_event(event);
  })
      .join();
}

void NcclClique::require(int error, const char* what) const {
  if (error == 0) return;
  throw CommError(std::string(what) + " failed: " + nccl_text(calls_, error) + "; the group is broken");
}

NcclComm* NcclClique::comm_of(const Seat& seat) {
  std::lock_guard lock(mutex_);
  if (seat.comm == nullptr) throw CommError("NCCL was aborted; the group is broken");
  return seat.comm;
}

NcclClique::Seat& NcclClique::seat_of(int rank) { return *std::ranges::find(seats_, rank, &Seat::rank); }

void NcclClique::connect(const NcclId& id) {
  for (Seat& seat : seats_) {
    require(calls_.use(seat.device), "cudaSetDevice");
    require(calls_.make_stream(&seat.stream), "cudaStreamCreate");
  }
  require(calls_.group_start(), "ncclGroupStart");
  for (Seat& seat : seats_) {
    require(calls_.use(seat.device), "cudaSetDevice");
    NcclComm* made = nullptr;
    const int error = calls_.init(size_, &id, seat.rank, &made);
    {
      std::lock_guard lock(mutex_);
      seat.comm = made;
    }
    if (error != nccl_in_progress) require(error, "ncclCommInitRankConfig");
  }
  if (const int error = calls_.group_end(); error != nccl_in_progress) require(error, "ncclGroupEnd");
}

bool NcclClique::settled() {
  bool all = true;
  for (const Seat& seat : seats_) {
    int error = 0;
    require(calls_.state(comm_of(seat), &error), "ncclCommGetAsyncError");
    if (error == nccl_in_progress) {
      all = false;
    } else if (error != 0) {
      throw CommError("NCCL failed at rank " + std::to_string(seat.rank) + ": " + nccl_text(calls_, error) +
                      "; the group is broken");
    }
  }
  return all;
}

/// Where each piece lies as one contiguous run of elements: in its own place, or packed in the seat's scratch memory.
/// Later calls use that memory again, in the order of the stream.
std::vector<std::byte*> NcclClique::prepared(Seat& seat, const NcclPart& part) {
  constexpr std::size_t alignment = 256;
  const auto whole = [](const Piece& piece) { return (piece.bytes() + alignment - 1) / alignment * alignment; };
  std::size_t needed = 0;
  for (const Piece& piece : part.pieces) needed += piece.dense() ? 0 : whole(piece);
  if (needed > seat.scratch_bytes) {
    const std::size_t bytes = std::max(needed, 2 * seat.scratch_bytes);
    void* made = nullptr;
    require(calls_.allocate(bytes, &made), "cudaMalloc");
    seat.scratch.push_back(made);
    seat.scratch_bytes = bytes;
  }
  std::vector<std::byte*> places;
  std::size_t used = 0;
  for (std::size_t i = 0; i < part.pieces.size(); ++i) {
    const Piece& piece = part.pieces[i];
    if (piece.dense()) {
      places.push_back(piece.data);
      continue;
    }
    places.push_back(static_cast<std::byte*>(seat.scratch.back()) + used);
    used += whole(piece);
    if (reads(part, i)) copy(seat, piece, places.back(), false);
  }
  return places;
}

void NcclClique::copy(const Seat& seat, const Piece& piece, std::byte* dense, bool back) const {
  const auto width = static_cast<std::size_t>(4 * piece.width), stride = static_cast<std::size_t>(piece.stride);
  const auto rows = static_cast<std::size_t>(piece.rows);
  if (width == 0 || rows == 0) return;
  const int error = back ? calls_.copy(seat.stream, piece.data, stride, dense, width, width, rows)
                         : calls_.copy(seat.stream, dense, width, piece.data, stride, width, rows);
  require(error, "cudaMemcpy2DAsync");
}

void NcclClique::transfer(const Seat& seat, const NcclPart& part, const std::vector<std::byte*>& places) {
  const Call& call = part.call;
  const bool two_ends = call.has_two_ends();
  const auto begin = [&](const NcclTransfer& what) {
    if (const int error = calls_.begin(&what); error != nccl_in_progress) require(error, nccl_name_of(what.kind));
  };
  for (std::size_t i = 0; i < call.shapes.size(); ++i) {
    const auto count = static_cast<std::size_t>(call.shapes[i].rows * call.shapes[i].width);
    if (count == 0) continue;
    const NcclTransfer one{.kind = call.kind,
                           .from = places[i],
                           .to = places[two_ends ? 1 : i],
                           .count = count,
                           .type = call.elements,
                           .combine = call.combine,
                           .peer = call.peer,
                           .comm = comm_of(seat),
                           .stream = seat.stream};
    if (call.kind != CallKind::all_to_all) {
      begin(one);
      continue;
    }
    for (int peer = 0; peer < size_; ++peer) {
      const std::size_t offset = static_cast<std::size_t>(peer) * 4 * count;
      NcclTransfer block = one;
      block.from = places[0] + offset;
      block.to = places[1] + offset;
      block.peer = peer;
      for (const CallKind end : {CallKind::send, CallKind::recv}) {
        block.kind = end;
        begin(block);
      }
    }
  }
}

void NcclClique::issue(std::vector<NcclPart>& parts) {
  places_.clear();
  for (const NcclPart& part : parts) {
    Seat& seat = seat_of(part.rank);
    require(calls_.use(seat.device), "cudaSetDevice");
    require(calls_.wait(seat.stream, part.after), "cudaStreamWaitEvent");
    places_.push_back(prepared(seat, part));
  }
  require(calls_.group_start(), "ncclGroupStart");
  for (std::size_t i = 0; i < parts.size(); ++i) transfer(seat_of(parts[i].rank), parts[i], places_[i]);
  if (const int error = calls_.group_end(); error != nccl_in_progress) require(error, "ncclGroupEnd");
}

void NcclClique::end_issue(std::vector<NcclPart>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    NcclPart& part = parts[i];
    Seat& seat = seat_of(part.rank);
    require(calls_.use(seat.device), "cudaSetDevice");
    for (std::size_t piece = 0; piece < part.pieces.size(); ++piece) {
      if (part.pieces[piece].dense() || !writes(part, piece)) continue;
      copy(seat, part.pieces[piece], places_[i][piece], true);
    }
    // The stream has waited for `after`, so its event is free.
    give_back(part.rank, std::exchange(part.after, nullptr));
    const std::string why = mark(seat.stream, &part.done);
    if (!why.empty()) throw CommError(why + "; the group is broken");
  }
}

bool NcclClique::reached(std::vector<NcclPart>& parts) {
  bool all = true;
  for (NcclPart& part : parts) {
    if (part.done == nullptr) continue;
    const int error = calls_.query(part.done);
    if (error == nccl_not_reached) {
      all = false;
      continue;
    }
    require(error, "cudaEventQuery");
    give_back(part.rank, std::exchange(part.done, nullptr));
  }
  return all;
}

std::string NcclClique::mark(void* stream, NcclEvent** made) {
  int device = 0;
  int error = calls_.device(&device);
  const char* what = "cudaGetDevice";
  NcclEvent* event = nullptr;
  if (error == 0) {
    std::lock_guard lock(mutex_);
    const auto seat = std::ranges::find(seats_, device, &Seat::device);
    if (seat != seats_.end() && !seat->events.empty()) {
      event = seat->events.back();
      seat->events.pop_back();
    }
  }
  if (error == 0 && event == nullptr) {
    what = "cudaEventCreate";
    error = calls_.make_event(&event);
    std::lock_guard lock(mutex_);
    if (error == 0) events_.push_back(event);
  }
  if (error == 0) {
    what = "cudaEventRecord";
    error = calls_.record(event, stream);
  }
  if (error != 0) return std::string(what) + " failed: " + nccl_text(calls_, error);
  *made = event;
  return "";
}

void NcclClique::give_back(int rank, NcclEvent* event) {
  if (event == nullptr) return;
  std::lock_guard lock(mutex_);
  seat_of(rank).events.push_back(event);
}

void NcclClique::close(std::chrono::nanoseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  bool good = calls_.group_start() == 0;
  for (const Seat& seat : seats_) {
    const int error = calls_.finalize(comm_of(seat));
    good = good && (error == 0 || error == nccl_in_progress);
  }
  const int error = calls_.group_end();
  good = good && (error == 0 || error == nccl_in_progress);
  try {
    while (good && !settled()) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      good = std::chrono::steady_clock::now() < until;
    }
  } catch (const CommError&) {
    good = false;
  }
  if (!good) return abort();
  for (Seat& seat : seats_) {
    NcclComm* ended = nullptr;
    {
      std::lock_guard lock(mutex_);
      std::swap(ended, seat.comm);
    }
    calls_.destroy(ended);
    calls_.use(seat.device);
    calls_.drain(seat.stream);
  }
  ended_ = true;
}

void NcclClique::abort() {
  std::vector<std::pair<Seat*, NcclComm*>> comms;
  {
    std::lock_guard lock(mutex_);
    for (Seat& seat : seats_) comms.emplace_back(&seat, std::exchange(seat.comm, nullptr));
  }
  calls_.group_start();
  for (const auto& [seat, comm] : comms) {
    calls_.use(seat->device);
    if (comm != nullptr) calls_.abort(comm);
  }
  calls_.group_end();
  for (const auto& [seat, comm] : comms) {
    calls_.use(seat->device);
    if (seat->stream != nullptr) calls_.drain(seat->stream);
  }
  ended_ = true;
}

}  // namespace windrow::comm
