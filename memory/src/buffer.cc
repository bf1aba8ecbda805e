// Buffers and arenas over blocks (block.h). Start here; pool.cc is an allocator that keeps what comes back.
#include "windrow/memory/buffer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "block.h"

namespace windrow {

/// The state of a buffer that ops access. When the buffer ends, the op that frees the bytes becomes the owner: the
/// state ends after that op has run, or, if the op belongs to a graph, with the graph. Each launch of the graph begins
/// with the state that end_life() leaves.
struct Bytes::State {
  const std::shared_ptr<Block> block;
  const std::size_t offset, size;
  const OpName name;
  const Watcher watcher;
  Var var;
  // Written by ops that may write the buffer, read by ops that read it; the engine orders them. Invariant: if `start`
  // is set, this state holds the block.
  bool holds_block = true;
  std::byte* start = nullptr;

  State(std::shared_ptr<Block> of, std::size_t at, std::size_t bytes, OpName called, Watcher by)
      : block(std::move(of)), offset(at), size(bytes), name(called), watcher(by) {}
  ~State() { end_life(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::byte* take() {
    if (!holds_block) {
      block->hold();
      holds_block = true;
    }
    return block->start() + offset;
  }
  void end_life() noexcept {
    start = nullptr;
    if (std::exchange(holds_block, false)) block->let_go();
  }
};

std::byte* Bytes::write() const {
  if (state_->start == nullptr) {
    std::byte* const start = state_->take();
    // Has no effect if an async op writes after the buffer has ended, from another thread than its function's.
    if (state_->watcher) state_->watcher.watch(state_->var, {start, state_->size});
    state_->start = start;
  }
  return state_->start;
}

std::byte* Bytes::write_unwatched() const {
  if (state_->start == nullptr) state_->start = state_->take();
  return state_->start;
}

std::byte* Bytes::update() const {
  if (state_->start == nullptr) {
    throw MisuseError("buffer '" + std::string(state_->name.text()) + "' is read before anything was written to it");
  }
  return state_->start;
}

const std::byte* Bytes::read() const { return update(); }

bool Bytes::written() const { return state_->start != nullptr; }

Buffer::Buffer(EngineRef engine, std::shared_ptr<Block> block, std::size_t offset, std::size_t bytes, OpName name)
    : engine_(std::move(engine)), size_(bytes) {
  const Watcher watcher = block->on_host() ? engine_->watcher() : Watcher();
  auto state = std::make_unique<Bytes::State>(std::move(block), offset, bytes, name, watcher);
  state->var = var_ = engine_->new_var(name);
  state_ = state.release();
}

Buffer::Buffer(EngineRef engine, std::shared_ptr<Allocator> memory, std::size_t bytes, OpName name)
    : Buffer(std::move(engine), std::make_shared<Block>(std::move(memory), bytes), 0, bytes, name) {}

Buffer::Buffer(Buffer&& other) noexcept
    : engine_(std::move(other.engine_)),
      var_(std::exchange(other.var_, {})),
      size_(other.size_),
      state_(std::exchange(other.state_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  free();
  engine_ = std::move(other.engine_);
  var_ = std::exchange(other.var_, {});
  size_ = other.size_;
  state_ = std::exchange(other.state_, nullptr);
  return *this;
}

Buffer::~Buffer() { free(); }

Bytes Buffer::bytes() const {
  if (state_ == nullptr) throw MisuseError("buffer: bytes() of one that was moved from");
  return Bytes(state_);
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
  try {
    engine->retire(std::exchange(var_, {}), std::move(end_life), {.name = "free"});
  } catch (...) {
    // The variable was already retired, or there is no memory for the op. Ops may still use the bytes, so keep them.
    end_life.abandon();
  }
}

Arena::Arena(EngineRef engine, std::shared_ptr<Allocator> memory, std::size_t bytes)
    : engine_(std::move(engine)),
      block_(std::make_shared<Block>(std::move(memory), aligned_size(bytes))),
      size_(aligned_size(bytes)) {}

Arena::~Arena() { block_->let_go(); }

Buffer Arena::cut(std::size_t bytes, OpName name) {
  const std::size_t place = aligned_size(std::max<std::size_t>(bytes, 1));
  if (place > left()) {
    throw MisuseError("arena: buffer '" + std::string(name.text()) + "' of " + std::to_string(place) +
                      " bytes does not fit into the " + std::to_string(left()) + " that are left");
  }
  block_->hold();  // for the buffer
  Buffer result(engine_, block_, used_, bytes, name);
  used_ += place;
  return result;
}

}  // namespace windrow
