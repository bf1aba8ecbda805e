// Opening the plug-in library for NCCL; the communicators that the members of this process have, and their calls.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <vector>

#include "plugin/nccl_calls.h"
#include "windrow/comm/internal/member.h"

namespace windrow::comm {

/// The table of the plug-in, which is opened by the first call and stays open. Throws MisuseError if there is none.
const NcclCalls& nccl_calls();
/// Empty, or why there is none.
std::string why_no_nccl();

/// The text for an error of one of these functions.
std::string nccl_text(const NcclCalls& calls, int error);

/// A member's part of a call whose operands are on the device, or are being computed there.
struct NcclPart {
  int rank = 0;
  Call call = {};
  Pieces pieces = {};
  NcclEvent* after = nullptr;  ///< what the pieces depend on
  NcclEvent* done = nullptr;   ///< set by end_issue()
};

/// An owner. Threads: one, except for abort() and events. Failures throw CommError; the clique cannot be used
/// afterwards.
class NcclClique {
 public:
  struct RankAndDevice {
    int rank, device;
  };
  /// `size`: members in all processes.
  NcclClique(const NcclCalls& calls, const std::vector<RankAndDevice>& places, int size);
  /// Frees what the devices do not use any more.
  ~NcclClique();
  NcclClique(const NcclClique&) = delete;
  NcclClique& operator=(const NcclClique&) = delete;

  /// Begins to connect the members.
  void connect(const NcclId& id);
  /// Whether the last call of connect() or issue() has ended.
  bool settled();
  /// Begins to issue one call, with the parts of all its members that are here.
  void issue(std::vector<NcclPart>& parts);
  /// Called once issue() has settled.
  void end_issue(std::vector<NcclPart>& parts);
  /// Whether the work of the call is done; then the parts' events are free.
  bool reached(std::vector<NcclPart>& parts);
  /// Ends the communicators, whose calls are all done. If that takes longer than `limit`, NCCL aborts them.
  void close(std::chrono::nanoseconds limit);

  /// Ends the communicators and their work. May take for ever. Any thread calls it; no other member may be called
  /// afterwards.
  void abort();

  /// Makes an event after the present work of a stream of the thread's device. Returns an error's text. Threads: any.
  std::string mark(void* stream, NcclEvent** made);
  void give_back(int rank, NcclEvent* event);

 private:
  struct Seat {
    int rank, device;
    void* stream = nullptr;
    NcclComm* comm = nullptr;  // guarded by mutex_ where it changes
    std::vector<void*> scratch = {};
    std::size_t scratch_bytes = 0;        // of the last one
    std::vector<NcclEvent*> events = {};  // not in use; guarded by mutex_
  };

  void require(int error, const char* what) const;
  Seat& seat_of(int rank);
  NcclComm* comm_of(const Seat& seat);
  std::vector<std::byte*> prepared(Seat& seat, const NcclPart& part);
  void transfer(const Seat& seat, const NcclPart& part, const std::vector<std::byte*>& places);
  void copy(const Seat& seat, const Piece& piece, std::byte* dense, bool back) const;

  const NcclCalls& calls_;
  const int size_;
  std::vector<Seat> seats_;
  std::vector<std::vector<std::byte*>> places_;  // of the call that is being issued: where its pieces lie, by part
  std::mutex mutex_;
  std::vector<NcclEvent*> events_;  // all; guarded by mutex_
  bool ended_ = false;              // NCCL uses the streams no more
};

}  // namespace windrow::comm
