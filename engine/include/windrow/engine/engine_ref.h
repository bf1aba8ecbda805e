// References to an engine that know when it is gone: for what uses an engine and may be dropped, or used, after it.
#pragma once

#include <atomic>
#include <memory>

namespace windrow {

class Engine;

/// What an engine and the references to it share. Outlives the engine.
struct EngineLife {
  // Null once it is gone. Written by the thread that makes or ends the engine, with release; read by any, with acquire:
  // who sees that it is gone sees what its ops did, and `leaked`.
  std::atomic<Engine*> engine{nullptr};
  bool leaked = false;  // it could not end, so its ops may still run; written before `engine` becomes null
};

/// A handle. Threads: all members from any thread, but not while another thread ends the engine.
class EngineRef {
 public:
  /// Names no engine.
  EngineRef() = default;
  EngineRef(Engine& engine);

  /// Null if the engine is gone, or there is none.
  Engine* get() const noexcept { return life_ == nullptr ? nullptr : life_->engine.load(std::memory_order_acquire); }
  /// Throws MisuseError if the engine is gone, or there is none.
  Engine& operator*() const {
    Engine* const engine = get();
    if (engine == nullptr) [[unlikely]]
      refuse();
    return *engine;
  }
  Engine* operator->() const { return &**this; }
  /// The engine is gone, and none of its ops will ever run.
  bool drained() const noexcept { return life_ != nullptr && get() == nullptr && !life_->leaked; }
  /// Both name the same engine, or none.
  friend bool operator==(const EngineRef&, const EngineRef&) = default;

 private:
  [[noreturn]] void refuse() const;

  std::shared_ptr<const EngineLife> life_;
};

}  // namespace windrow
