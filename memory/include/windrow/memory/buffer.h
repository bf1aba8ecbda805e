// Buffers: memory with a variable. Start here.
//
//   windrow::Buffer squares(engine, host_allocator(), 1000 * sizeof(int), "squares");
//   engine.push([](std::span<int> all) { fill(all); }, overwrite(squares.as<int>()));
//   engine.push([](std::span<const int> all) { print(all); }, read(squares.as<int>()));
//
// An op receives what it declares (value.h): a span of const T for a read, and of T for mutate, overwrite and commute;
// read(squares) gives a span of bytes. In a device's memory the addresses are the device's, and the op must be pushed
// to a lane of it. Ops whose accesses are known only at run time capture Bytes instead, and list var().
//
// A buffer's memory is freed by an engine op, which runs when all ops that were pushed with its variable have finished,
// so nobody waits for a free. Memory is allocated as late as possible: by the first op that writes it.
//
// Contract
//   Order    The engine orders ops by the accesses that they declare on the buffer's variable; nothing else orders
//            them.
//   Devices  A buffer in a device's memory has an ordered lane of this device. The op that writes it first, and so
//            allocates the memory, must be an op of this lane, and the freeing op is one too. Both ops finish when
//            their work is issued: the lane orders later uses of the memory, so nobody waits for the device. Other
//            lanes of the device may access the buffer between the two.
//   Graphs   A buffer that is created and destroyed inside a capture belongs to the graph: each launch allocates its
//            memory at the first write, and frees it where the buffer was destroyed. A buffer from outside that is
//            destroyed inside a capture is freed by the graph's only launch or, if the graph is never launched, with
//            the graph.
//   Errors   If a write finds no memory, OutOfMemory is thrown inside the op, so the variable is poisoned. With
//            EngineOptions::check, buffers are watched: an op that changes bytes without declaring it fails. In memory
//            of page_allocator(), so does an op that reads them without declaring it.
//   Threads  A buffer may be created, moved and destroyed from any thread, by one thread at a time. Its bytes may be
//            accessed by ops that declare it, or between a wait and the next push that conflicts.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>

#include "windrow/engine/engine.h"
#include "windrow/memory/allocator.h"

namespace windrow {

class Arena;
class Block;

/// A handle to a buffer's bytes, for ops to capture. Valid from Buffer::bytes() until the op that frees the buffer has
/// run.
class Bytes {
 public:
  // `lane` is the ordered lane of the op that calls, OpContext::lane(); null on the host. All of these throw
  // MisuseError on the host for memory that the host cannot access.

  /// For ops that overwrite or mutate. The first call allocates the memory, whose contents are undefined. Throws
  /// OutOfMemory; MisuseError for the first call, in a device's memory, by an op of another lane than the buffer's.
  std::byte* write(Lane* lane = nullptr) const;
  /// As write(), but the first call sets all bytes of the buffer to zero.
  std::byte* write_cleared(Lane* lane = nullptr) const;
  /// As write(), but if this is the first call, EngineOptions::check does not watch these bytes. For ops that declare
  /// only read access and concurrently write different parts of the buffer.
  std::byte* write_unwatched(Lane* lane = nullptr) const;
  /// For ops that read. Throws MisuseError if no op has written the buffer.
  const std::byte* read(Lane* lane = nullptr) const;
  /// For ops that mutate and need the old contents. Throws MisuseError if no op has written the buffer.
  std::byte* update(Lane* lane = nullptr) const;
  /// The allocator, which owns the memory and copies between it and the host's.
  Allocator& memory() const;
  /// Frees the memory, which the next write allocates again. Returns whether memory was freed; memory that
  /// EngineOptions::check watches is not. The caller ensures that no op that was pushed with the variable is pending
  /// (EngineUse::is_idle), and that none is pushed meanwhile. In a device's memory, an op of the buffer's lane calls
  /// it.
  bool release() const noexcept;

  // For an op on the host that ends while something outside of the engine still uses the memory, such as a message that
  // cannot be cancelled. The present memory is never freed, and EngineOptions::check continues to watch it.

  /// For ops that overwrite or mutate: moves the buffer, with its contents, to other memory. Throws OutOfMemory; then
  /// the buffer stays where it is.
  void move_away() const;
  /// For ops that read: the buffer stays where it is.
  void never_free() const noexcept;

 private:
  friend class Buffer;
  struct State;
  explicit Bytes(State* state) : state_(state) {}

  State* state_;
};

/// What an op with read(buffer.as<T>()) or another access keeps. Fails the op as Bytes::write() does for an overwrite,
/// and otherwise as read() and update().
template <class T, AccessKind kind>
struct BufferKept {
  Bytes bytes;
  std::size_t objects;
  std::span<Accessed<T, kind>> operator()(OpContext& op) const {
    if constexpr (kind == AccessKind::read) {
      return {reinterpret_cast<const T*>(bytes.read(op.lane())), objects};
    } else {
      constexpr bool fresh = kind == AccessKind::overwrite;
      return {reinterpret_cast<T*>(fresh ? bytes.write(op.lane()) : bytes.update(op.lane())), objects};
    }
  }
};

/// A buffer's bytes as objects of type T, for typed pushes. A handle, valid until the buffer ends.
template <class T>
struct BufferAs {
  static_assert(std::is_trivially_copyable_v<T>, "Buffer::as<T>(): T must be trivially copyable");
  Var var;
  Bytes bytes;
  std::size_t count;

  /// For read(), whose op receives std::span<const T>, and for mutate(), overwrite() and commute(), with std::span<T>.
  template <AccessKind kind>
  OneAccess<BufferKept<T, kind>> access() const {
    return {Access{var, kind}, {bytes, count}};
  }
};

/// An owner: it does not copy, and its destructor pushes an op that retires the variable and frees the memory. After
/// the engine's shutdown, and after the engine's end, which a buffer may outlive, the destructor frees the memory at
/// once. Nobody else may retire the variable: the memory would never be freed.
class Buffer {
 public:
  /// Allocates no memory yet. Throws MisuseError if there is no engine or no allocator, and for a lane of another
  /// engine. A device's memory needs an ordered lane, and the host's a host lane; others throw MisuseError, too.
  Buffer(EngineRef engine, std::shared_ptr<Allocator> memory, std::size_t bytes, VarName name = OpName("buffer"),
         LaneId lane = host_lane);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  /// Throws MisuseError if the engine is gone.
  Engine& engine() const { return *engine_; }
  /// Empty if the buffer was moved from.
  Var var() const { return var_; }
  /// The size in bytes.
  std::size_t size() const { return size_; }
  /// The lane on which the memory is allocated and freed.
  LaneId lane() const { return lane_; }
  /// Throw MisuseError if the buffer was moved from.
  Bytes bytes() const;
  /// The buffer as objects of type T, as many as fit.
  template <class T>
  BufferAs<T> as() const {
    return {var_, bytes(), size_ / sizeof(T)};
  }
  /// For read(), mutate(), overwrite() and commute() of as<std::byte>().
  template <AccessKind kind>
  OneAccess<BufferKept<std::byte, kind>> access() const {
    return as<std::byte>().template access<kind>();
  }
  const std::shared_ptr<Allocator>& memory() const;

 private:
  friend class Arena;
  Buffer(EngineRef engine, std::shared_ptr<Block> block, std::size_t offset, std::size_t bytes, OpName name,
         LaneId lane);
  void free() noexcept;

  EngineRef engine_;
  Var var_;
  std::size_t size_;
  LaneId lane_;
  Bytes::State* state_;  // null if moved from; once the freeing op is pushed, that op owns the state
};

/// Allocates several buffers in one block of memory. The block is allocated by the first write to any of the buffers,
/// and freed when all of them and the arena are gone. (In later launches of a graph, a buffer that the graph destroys
/// counts only from its first write on.)
///
/// An owner. Its buffers may outlive it, and are independent for the engine. Threads: one at a time.
class Arena {
 public:
  /// An arena of `bytes` bytes, rounded up to the memory's alignment. Throws OutOfMemory if that is not representable,
  /// and otherwise as Buffer does.
  Arena(EngineRef engine, std::shared_ptr<Allocator> memory, std::size_t bytes, LaneId lane = host_lane);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// A buffer of the next `bytes` bytes, rounded up to the memory's alignment, and at least as many. Throws MisuseError
  /// if less is left.
  Buffer cut(std::size_t bytes, VarName name = OpName("buffer"));
  /// Moves a buffer of the same memory and lane, which no op has written yet, to byte `offset` of the arena. Unlike
  /// buffers that are cut, buffers that are laid may share bytes; then the caller must order the ops that use them.
  /// EngineOptions::check does not watch their bytes. Throws MisuseError if the buffer does not fit there, or belongs
  /// to another memory or lane.
  void lay(Buffer& buffer, std::size_t offset);
  /// Bytes not yet cut.
  std::size_t left() const { return size_ - used_; }

 private:
  EngineRef engine_;
  std::shared_ptr<Block> block_;
  std::size_t size_;
  LaneId lane_;
  std::optional<Buffer> own_;  // in a device's memory: holds the block until an op of the lane
  std::size_t used_ = 0;
};

}  // namespace windrow
