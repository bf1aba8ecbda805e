// Buffers and arenas over blocks (block.h). Start here; pool.cc is an allocator that keeps what comes back.
#include "windrow/memory/buffer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "block.h"

namespace windrow {

/// What ops see of a buffer. Lives until the op that frees it has run.
struct Bytes::State {
  std::shared_ptr<Block> block;
  std::size_t offset, size;
  OpName name;
  Watcher watcher;
  Var var;
  // Written by ops that may write the buffer, read by those that read it: the engine orders them.
  std::byte* start = nullptr;
};

std::byte* Bytes::write() const {
  if (state_->start == nullptr) {
    std::byte* const start = state_->block->start() + state_->offset;
    // Not, where an async op writes to a buffer that has ended meanwhile, on another thread than its function's.
    if (state_->watcher) state_->watcher.watch(state_->var, {start, state_->size});
    state_->start = start;
  }
  return state_->start;
}

std::byte* Bytes::write_unwatched() const {
  if (state_->start == nullptr) state_->start = state_->block->start() + state_->offset;
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
  auto state = std::make_unique<Bytes::State>(Bytes::State{std::move(block), offset, bytes, name, watcher, {}});
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
  Bytes::State* state = std::exchange(state_, nullptr);
  if (state == nullptr) return;
  Engine* const engine = engine_.get();
  if (engine == nullptr) {
    const std::unique_ptr<Bytes::State> ends(engine_.drained() ? state : nullptr);  // else ops may still use it
    return;
  }
  try {
    engine->retire(std::exchange(var_, {}), [state] { std::unique_ptr<Bytes::State> ends(state); }, {.name = "free"});
  } catch (...) {
    // Somebody else retired the variable, or there is no memory for the op. Ops may still be using the bytes: keep
    // them.
  }
}

Arena::Arena(EngineRef engine, std::shared_ptr<Allocator> memory, std::size_t bytes)
    : engine_(std::move(engine)),
      block_(std::make_shared<Block>(std::move(memory), aligned_size(bytes))),
      size_(aligned_size(bytes)) {}

Buffer Arena::cut(std::size_t bytes, OpName name) {
  const std::size_t place = aligned_size(std::max<std::size_t>(bytes, 1));
  if (place > left()) {
    throw MisuseError("arena: buffer '" + std::string(name.text()) + "' of " + std::to_string(place) +
                      " bytes does not fit into the " + std::to_string(left()) + " that are left");
  }
  Buffer result(engine_, block_, used_, bytes, name);
  used_ += place;
  return result;
}

}  // namespace windrow
