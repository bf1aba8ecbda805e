// Buffers and arenas over blocks. Start here; pool.cc is an allocator that keeps what comes back.
#include "windrow/memory/buffer.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "windrow/engine/internal/engine_use.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

#ifdef NDEBUG
static constexpr bool is_debug_build = false;
#else
static constexpr bool is_debug_build = true;
#endif

/// Memory that is allocated when first used, and freed by its last holder. An owner, shared by the buffers cut from it.
/// Threads: all members may be called from any thread.
///
/// Invariant: the memory is allocated only while the block has a holder.
class Block {
 public:
  /// The caller becomes the first holder. Throws MisuseError without an allocator.
  Block(std::shared_ptr<Allocator> memory, std::size_t bytes);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  Allocator& memory() const { return *memory_; }
  const std::shared_ptr<Allocator>& shared_memory() const { return memory_; }
  void hold() WINDROW_EXCLUDES(mutex_);
  /// Removes a holder; the last one frees the memory.
  void let_go() noexcept WINDROW_EXCLUDES(mutex_);
  /// The memory, for holders only; allocates it if necessary. Throws OutOfMemory; a later call tries again.
  std::byte* start() WINDROW_EXCLUDES(mutex_);

 private:
  const std::shared_ptr<Allocator> memory_;
  const std::size_t bytes_;
  Mutex mutex_;  // also held during the allocation, so that there is only one
  std::size_t holders_ WINDROW_GUARDED_BY(mutex_) = 1;
  std::byte* start_ WINDROW_GUARDED_BY(mutex_) = nullptr;  // null: not allocated
};

Block::Block(std::shared_ptr<Allocator> memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {
  if (memory_ == nullptr) throw MisuseError("buffer: no allocator; expected one");
}

Block::~Block() {
  if (start_ != nullptr) memory_->deallocate(start_, bytes_);  // if the constructor of a buffer threw
}

void Block::hold() {
  MutexLock lock(mutex_);
  ++holders_;
}

void Block::let_go() noexcept {
  MutexLock lock(mutex_);
  if (--holders_ > 0) return;
  std::byte* const start = std::exchange(start_, nullptr);
  lock.unlock();
  if (start != nullptr) memory_->deallocate(start, bytes_);
}

std::byte* Block::start() {
  MutexLock lock(mutex_);
  if (start_ == nullptr) start_ = memory_->allocate(bytes_);
  return start_;
}

/// The state of a buffer that ops access. When the buffer ends, the op that frees the bytes becomes the owner: the
/// state ends after that op has run, or, if the op belongs to a graph, with the graph. Each launch of the graph begins
/// with the state that end_life() leaves.
struct Bytes::State {
  std::shared_ptr<Block> block;  // changed by Arena::lay, before ops access the buffer
  std::shared_ptr<Block> other;  // after move_away(), in place of `block`, which other threads may read meanwhile
  std::size_t offset;
  const std::size_t size;
  const OpName name;
  Watcher watcher;
  const bool on_host;
  const bool fills_freed;  // with NaN, so that a reader of freed bytes notices it
  Lane* const lane;        // whose ops allocate and free; null on the host
  Var var;
  // Written by ops that may write the buffer, read by ops that read it; the engine orders them. Invariant: if `start`
  // is set, this state holds the block.
  bool holds_block = true;
  std::byte* start = nullptr;

  State(std::shared_ptr<Block> of, std::size_t at, std::size_t bytes, OpName called, Watcher by, Lane* on)
      : block(std::move(of)),
        offset(at),
        size(bytes),
        name(called),
        watcher(by),
        on_host(block->memory().on_host()),
        fills_freed(on_host && (is_debug_build || watcher) && !block->memory().borrowed()),
        lane(on) {}
  ~State() { end_life(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  static void* operator new(std::size_t bytes) { return CallableMemory::take(bytes); }
  static void operator delete(void* memory, std::size_t bytes) { CallableMemory::give_back(memory, bytes); }

  MisuseError error(const std::string& what) const {
    return MisuseError("buffer '" + std::string(name.text()) + "' " + what);
  }
  std::string of_device() const { return "in the memory of " + std::string(block->memory().name()); }
  void require_access(Lane* by) const {
    if (!on_host && by == nullptr) {
      throw error(of_device() + " is accessed by an op on the host; expected an op of a lane of that device");
    }
  }
  /// Watches the bytes at `at`, and the rest of their last page if it belongs to them, because only reads of whole
  /// pages are detected.
  void watch(std::byte* at) const {
    if (!watcher) return;
    static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t alignment = held()->memory().alignment();
    watcher.watch(var, {at, alignment % page == 0 ? aligned_size(size, page) : size});
  }
  std::byte* take(Lane* by) {
    if (!on_host && by != lane) {
      throw error(of_device() + " is written first by an op of lane '" + std::string(by->name()) +
                  "'; expected one of its own, '" + std::string(lane->name()) + "'");
    }
    if (!holds_block) {
      held()->hold();
      holds_block = true;
    }
    return held()->start() + offset;
  }
  void end_life() noexcept {
    if (start != nullptr && fills_freed) std::fill_n(start, size, std::byte{0xff});
    start = nullptr;
    if (std::exchange(holds_block, false)) held()->let_go();
  }
  const std::shared_ptr<Block>& held() const { return other ? other : block; }
  void move_away() {
    if (start == nullptr) return;
    auto to = std::allocate_shared<Block>(PassedOn<Block>(), block->shared_memory(), size);
    std::byte* const there = to->start();
    std::copy_n(start, size, there);
    keep_for_ever(held());  // with the hold of this state
    watch(there);
    other = std::move(to);
    offset = 0;
    start = there;
  }
  /// Holds a block for ever. The block stays reachable, so that leak detectors do not report it.
  static void keep_for_ever(const std::shared_ptr<Block>& block) {
    static Mutex mutex;
    static auto* const kept = new std::vector<std::shared_ptr<Block>>();
    const MutexLock lock(mutex);
    kept->push_back(block);
  }
};

std::byte* Bytes::write(Lane* lane) const {
  state_->require_access(lane);
  if (state_->start == nullptr) {
    std::byte* const start = state_->take(lane);
    // Has no effect if an asynchronous op writes from another thread, after the buffer has ended.
    state_->watch(start);
    state_->start = start;
  }
  return state_->start;
}

std::byte* Bytes::write_cleared(Lane* lane) const {
  const bool first = state_->start == nullptr;
  std::byte* const start = write(lane);
  if (first) memory().clear(lane, start, state_->size);
  return start;
}

std::byte* Bytes::write_unwatched(Lane* lane) const {
  state_->require_access(lane);
  if (state_->start == nullptr) state_->start = state_->take(lane);
  return state_->start;
}

std::byte* Bytes::update(Lane* lane) const {
  state_->require_access(lane);
  if (state_->start == nullptr) throw state_->error("is read before anything was written to it");
  return state_->start;
}

const std::byte* Bytes::read(Lane* lane) const { return update(lane); }

Allocator& Bytes::memory() const { return state_->block->memory(); }

bool Bytes::release() const noexcept {
  if (state_->start == nullptr || state_->watcher) return false;
  state_->end_life();
  return true;
}

void Bytes::move_away() const { state_->move_away(); }

void Bytes::never_free() const noexcept {
  if (state_->start == nullptr) return;
  state_->held()->hold();
  try {
    State::keep_for_ever(state_->held());
  } catch (const std::bad_alloc&) {  // the block is not freed in this case either
  }
}

Buffer::Buffer(EngineRef engine, std::shared_ptr<Block> block, std::size_t offset, std::size_t bytes, OpName name,
               LaneId lane)
    : engine_(std::move(engine)), size_(bytes), lane_(lane) {
  const bool on_host = block->memory().on_host();
  Lane* const ordered = lane == host_lane ? nullptr : engine_->lane(lane);
  if (on_host && ordered != nullptr) {
    throw MisuseError("buffer '" + std::string(name.text()) + "' in the host's memory: on lane '" +
                      std::string(ordered->name()) + "'; expected a host lane, which every device may use");
  }
  if (!on_host && ordered == nullptr) {
    throw MisuseError("buffer '" + std::string(name.text()) + "' in the memory of " +
                      std::string(block->memory().name()) +
                      ": on a host lane; expected an ordered lane of that device");
  }
  const Watcher watcher = on_host ? engine_->watcher() : Watcher();
  auto state = std::make_unique<Bytes::State>(std::move(block), offset, bytes, name, watcher, ordered);
  state->var = var_ = engine_->new_var(name);
  state_ = state.release();
}

Buffer::Buffer(EngineRef engine, std::shared_ptr<Allocator> memory, std::size_t bytes, VarName name, LaneId lane)
    : Buffer(std::move(engine), std::allocate_shared<Block>(PassedOn<Block>(), std::move(memory), bytes), 0, bytes,
             name, lane) {}

Buffer::Buffer(Buffer&& other) noexcept
    : engine_(std::move(other.engine_)),
      var_(std::exchange(other.var_, {})),
      size_(other.size_),
      lane_(other.lane_),
      state_(std::exchange(other.state_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  free();
  engine_ = std::move(other.engine_);
  var_ = std::exchange(other.var_, {});
  size_ = other.size_;
  lane_ = other.lane_;
  state_ = std::exchange(other.state_, nullptr);
  return *this;
}

Buffer::~Buffer() { free(); }

Bytes Buffer::bytes() const {
  if (state_ == nullptr) throw MisuseError("buffer: bytes() of one that was moved from");
  return Bytes(state_);
}

const std::shared_ptr<Allocator>& Buffer::memory() const {
  if (state_ == nullptr) throw MisuseError("buffer: memory() of one that was moved from");
  return state_->block->shared_memory();
}

void Buffer::free() noexcept {
  std::unique_ptr<Bytes::State> state(std::exchange(state_, nullptr));
  if (state == nullptr) return;
  Engine* const engine = engine_.get();
  if (engine == nullptr) {
    if (!engine_.drained()) static_cast<void>(state.release());  // ops may still use it
    return;
  }
  OpFunction end_life([ends = std::move(state)] { ends->end_life(); });
  const Var var = std::exchange(var_, {});
  const auto retire_on = [&](LaneId lane) {
    try {
      EngineUse::retire(*engine, var, "the tensor's handle (or the buffer)", std::move(end_life),
                        {.name = "free", .lane = lane});
      return true;
    } catch (...) {
      return false;
    }
  };
  if (retire_on(lane_)) return;
  // A host op waits for the work of the lane, which may have been removed.
  if (lane_ != host_lane && retire_on(host_lane)) return;
  // The variable was already retired, or there is no memory for the op. Ops may still use the bytes, so keep them.
  end_life.abandon();
}

/// The constructor of the block throws if there is no allocator.
static std::size_t alignment_of(const std::shared_ptr<Allocator>& memory) {
  return memory == nullptr ? memory_alignment : memory->alignment();
}

Arena::Arena(EngineRef engine, std::shared_ptr<Allocator> memory, std::size_t bytes, LaneId lane)
    : engine_(std::move(engine)),
      block_(std::allocate_shared<Block>(PassedOn<Block>(), memory, aligned_size(bytes, alignment_of(memory)))),
      size_(aligned_size(bytes, alignment_of(memory))),
      lane_(lane) {
  if (lane_ != host_lane) own_ = Buffer(engine_, block_, 0, 0, "arena", lane_);
}

Arena::~Arena() {
  if (!own_) block_->let_go();
}

Buffer Arena::cut(std::size_t bytes, VarName name) {
  const std::size_t place = aligned_size(std::max<std::size_t>(bytes, 1), block_->memory().alignment());
  if (place > left()) {
    throw MisuseError("arena: buffer '" + std::string(name.text()) + "' of " + std::to_string(place) +
                      " bytes does not fit into the " + std::to_string(left()) + " that are left");
  }
  block_->hold();  // for the buffer
  Buffer result(engine_, block_, used_, bytes, name, lane_);
  used_ += place;
  return result;
}

void Arena::lay(Buffer& buffer, std::size_t offset) {
  auto* const state = buffer.state_;
  if (state == nullptr || state->block->shared_memory() != block_->shared_memory() || buffer.lane_ != lane_ ||
      offset > size_ || buffer.size_ > size_ - offset) {
    throw MisuseError("arena: buffer of " + std::to_string(buffer.size_) + " bytes laid at byte " +
                      std::to_string(offset) + " of " + std::to_string(size_) +
                      "; expected one of the arena's memory and lane that fits there");
  }
  block_->hold();
  state->end_life();
  state->other = nullptr;
  state->block = block_;
  state->offset = offset;
  state->watcher = Watcher();
  state->holds_block = true;
}

}  // namespace windrow
