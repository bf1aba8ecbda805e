// The log of one thread: its records of the ops that it ran.
//
// Records are stored in chunks, one after the other, as plain words. The thread appends without a lock; other threads
// may read what is published at any time. Written parts of a chunk are never overwritten, so readers share the chunk.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "process/fork.h"
#include "record/op.h"
#include "trace/clock.h"
#include "windrow/engine/engine.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class Slots;

/// How an op has ended.
enum class Outcome : std::uint8_t {
  ran,
  failed,
  cancelled,  ///< failed by Cancelled
  skipped,
};

/// The head of a record; its accesses follow it.
struct TraceRecord {
  enum class Kind : std::uint8_t {
    op,           ///< ran from begin to end on this thread
    async_op,     ///< began on some thread, and ended when its OnComplete was called
    call,         ///< the function of an async op ran on this thread
    wait_inside,  ///< the op with this number waited
    wait,         ///< not an op, without times: a variable's place of a wait, or of a fence between kinds of access
    counter,      ///< not an op: at time `begin`, the counter with number `end` had the value `id`
  };
  Kind kind = Kind::op;
  Outcome outcome = Outcome::ran;
  bool retires = false;
  std::uint32_t accesses = 0;
  Ticks begin = 0, end = 0;
  OpId id = 0;
  const OpInfo* info = nullptr;  ///< lives as long as the engine
};

/// An access of a record: its place, and the value (see VarName) that the op changes there, if it changes one.
struct TracedAccess {
  VarPlace place;
  const char* value = nullptr;  ///< its name, which lives as long as the process; null if there is none
  std::int32_t index = 0;

  TracedAccess() = default;
  /// To be called while the op has access, or while the place is a wait's.
  explicit TracedAccess(const VarPlace& at) : place(at) {
    if ((at.exclusive == 0 && at.commutes == 0) || at.var->index == VarName::no_value) return;
    value = at.var->name;
    index = at.var->index;
  }
};

/// Written by one thread at a time, read by any.
class TraceLog {
 public:
  struct Chunk {
    explicit Chunk(std::size_t room) : capacity(room), memory(new std::byte[room]) {}
    const std::size_t capacity;
    const std::unique_ptr<std::byte[]> memory;
    std::atomic<std::size_t> used{0};  ///< bytes that may be read; written by the log's thread
  };
  using Chunks = std::vector<std::shared_ptr<const Chunk>>;

  /// The trace that the records belong to: each start of an engine's trace has a number. At most `max_ops` ops are
  /// recorded.
  struct Session {
    std::uint32_t number = 0;
    std::uint64_t max_ops = 0;
  };

  explicit TraceLog(const Slots* whose) : slots(whose) {}

  /// The slots that the log's thread belongs to; null for a thread from outside.
  const Slots* const slots;

  // ---- by the log's thread ----
  std::uint32_t session() const { return session_.number; }
  /// Begins a session; drops what was recorded before.
  void begin(const Session& session) noexcept WINDROW_EXCLUDES(mutex_);
  /// Appends the record with its accesses, of which access_of(i) returns the i-th. Leaves the record out if the
  /// session's limit is reached, or if there is no memory.
  template <class AccessOf>
  void append(const TraceRecord& record, AccessOf&& access_of) noexcept {
    const std::size_t bytes = bytes_of(record);
    const bool is_op = record.kind == TraceRecord::Kind::op || record.kind == TraceRecord::Kind::async_op;
    if (count_ >= session_.max_ops || (bytes > room_ && !add_chunk(bytes))) {
      left_out_.store(left_out_.load(std::memory_order_relaxed) + is_op, std::memory_order_relaxed);
      return;
    }
    count_ += record.kind != TraceRecord::Kind::counter;
    std::memcpy(at_, &record, sizeof record);
    auto* accesses = at_ + sizeof record;
    for (std::uint32_t i = 0; i < record.accesses; ++i) {
      const TracedAccess access(access_of(i));
      std::memcpy(accesses + i * sizeof access, &access, sizeof access);
    }
    at_ += bytes;
    room_ -= bytes;
    // release: a thread that reads up to here sees the record.
    chunk_->used.store(static_cast<std::size_t>(at_ - chunk_->memory.get()), std::memory_order_release);
  }

  // ---- by any thread ----
  struct Read {
    Chunks chunks;
    std::uint64_t left_out = 0;  ///< ops
  };
  /// What was recorded in that session.
  Read read(std::uint32_t session) const WINDROW_EXCLUDES(mutex_);

  void each_mutex(EachMutex f) { f(mutex_); }  // see fork.h

  static std::size_t bytes_of(const TraceRecord& record) {
    return sizeof(TraceRecord) + record.accesses * sizeof(TracedAccess);
  }

 private:
  static constexpr std::size_t chunk_bytes = 64 * 1024;

  bool add_chunk(std::size_t at_least) noexcept WINDROW_EXCLUDES(mutex_);

  // Owned by the log's thread.
  Session session_;
  Chunk* chunk_ = nullptr;  // the last one
  std::byte* at_ = nullptr;
  std::size_t room_ = 0;
  std::uint64_t count_ = 0;  // number of records other than counters, which never come alone

  std::atomic<std::uint64_t> left_out_{0};  // written by the log's thread
  mutable Mutex mutex_;
  std::uint32_t read_session_ WINDROW_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<Chunk>> chunks_ WINDROW_GUARDED_BY(mutex_);
};

/// What a port keeps for the trace. Owned by the port's thread.
struct TracePort {
  TraceLog* log = nullptr;    ///< belongs to the recorder
  Ticks last_sample = 0;      ///< when the thread last counted the pending ops
  bool some_pending = false;  ///< whether there were any then
};

}  // namespace windrow
