// References to an engine that become null when the engine ends, for objects that may outlive it.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <atomic>
#include <memory>

namespace windrow {

class Engine;

/// Shared by an engine and its references. Outlives the engine.
struct EngineLife {
  // Null once the engine is gone. Written with release by the thread that constructs or ends the engine; read with
  // acquire by any thread, so a thread that reads null sees what the engine's ops did, and `leaked`.
  std::atomic<Engine*> engine{nullptr};
  bool leaked = false;  // the engine could not end, so its ops may still run; written before `engine` becomes null
};

/// A handle. Threads: any thread may call any member, but not while another thread ends the engine.
class EngineRef {
 public:
  /// Names no engine.
  EngineRef() = default;
  EngineRef(Engine& engine);

  /// Null if the engine is gone or the reference names none.
  Engine* get() const noexcept { return life_ == nullptr ? nullptr : life_->engine.load(std::memory_order_acquire); }
  /// Throws MisuseError if the engine is gone or the reference names none.
  Engine& operator*() const {
    Engine* const engine = get();
    if (engine == nullptr) [[unlikely]]
      refuse();
    return *engine;
  }
  Engine* operator->() const { return &**this; }
  /// True if the engine is gone and none of its ops will ever run.
  bool drained() const noexcept { return life_ != nullptr && get() == nullptr && !life_->leaked; }
  /// True if both name the same engine, or both name none.
  friend bool operator==(const EngineRef&, const EngineRef&) = default;

 private:
  [[noreturn]] void refuse() const;

  std::shared_ptr<const EngineLife> life_;
};

}  // namespace windrow
