// Buffers: bytes with a variable. Start here.
//
//   windrow::Buffer squares(engine, host_allocator(), 1000 * sizeof(int), "squares");
//   engine.push([bytes = squares.bytes()] { fill(reinterpret_cast<int*>(bytes.write())); },
//               {overwrite(squares.var())});
//
// The end of a buffer is an op like any other: the bytes go when all that was pushed with the variable is done, and
// nobody waits for that. They come as late as possible too, with the first op that writes them.
//
// Contract
//   Order    What an op does to the bytes it declares on the variable; that is all that orders them.
//   Graphs   A buffer that is made and ended inside a capture belongs to the graph: each launch takes its bytes with
//            the first write and frees them where the buffer ended. One that was made outside and ends inside a
//            capture is freed by the graph's only launch, or with the graph if that is never launched.
//   Errors   A write that finds no memory throws OutOfMemory inside the op, and so poisons the variable. With
//            EngineOptions::check buffers are watched: an op fails that changes bytes and did not declare that.
//   Threads  Buffers are made, moved and ended from any thread, one thread at a time for each; their bytes are touched
//            by ops, or between waits.
#pragma once

#include <cstddef>
#include <memory>

#include "windrow/engine/engine.h"
#include "windrow/memory/allocator.h"

namespace windrow {

class Arena;
class Block;

/// A handle for ops to capture: the buffer's bytes, from the time of the call until the buffer's free has run.
class Bytes {
 public:
  /// For ops that overwrite or mutate. Takes the memory at the first call; it holds anything then. Throws OutOfMemory.
  std::byte* write() const;
  /// As write(). If it is the first, EngineOptions::check leaves these bytes alone: for ops that share them out among
  /// themselves, and so write some while others do, with no more than read access to the buffer.
  std::byte* write_unwatched() const;
  /// For ops that read. Throws MisuseError if nothing was written.
  const std::byte* read() const;
  /// For ops that mutate and look at what is there. Throws MisuseError if nothing was written.
  std::byte* update() const;
  /// Whether write() was called.
  bool written() const;

 private:
  friend class Buffer;
  struct State;
  explicit Bytes(State* state) : state_(state) {}

  State* state_;
};

/// An owner: it does not copy, and its end retires its variable and frees its bytes, as an op. After the engine's
/// shutdown the bytes go at once, and so they do after the engine's end, which the buffer may outlive. Nobody else may
/// retire its variable: the bytes would be kept for ever.
class Buffer {
 public:
  /// Takes no memory yet.
  Buffer(EngineRef engine, std::shared_ptr<Allocator> memory, std::size_t bytes, OpName name = "buffer");
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  /// Throws MisuseError if the engine is gone.
  Engine& engine() const { return *engine_; }
  /// Names no variable when moved from.
  Var var() const { return var_; }
  std::size_t size() const { return size_; }
  /// Throws MisuseError when moved from.
  Bytes bytes() const;

 private:
  friend class Arena;
  Buffer(EngineRef engine, std::shared_ptr<Block> block, std::size_t offset, std::size_t bytes, OpName name);
  void free() noexcept;

  EngineRef engine_;
  Var var_;
  std::size_t size_;
  Bytes::State* state_;  // null when moved from; owned by the op that frees, once that is pushed
};

/// Cuts buffers from one block of memory: it comes with the first write to any of them, and goes with the last of them
/// and the arena. (In a graph's second and later launches, a buffer that ends in the graph counts from its first
/// write.)
///
/// An owner. Its buffers may outlive it, and are independent for the engine. Threads: one at a time.
class Arena {
 public:
  /// Room for `bytes`, rounded up by aligned_size().
  Arena(EngineRef engine, std::shared_ptr<Allocator> memory, std::size_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// The next `bytes`, rounded up by aligned_size(), at least one place. Throws MisuseError if that is more than is
  /// left.
  Buffer cut(std::size_t bytes, OpName name = "buffer");
  std::size_t left() const { return size_ - used_; }

 private:
  EngineRef engine_;
  std::shared_ptr<Block> block_;
  std::size_t size_;
  std::size_t used_ = 0;
};

}  // namespace windrow
