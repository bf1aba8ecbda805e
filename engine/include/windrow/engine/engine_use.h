// A push whose op may end the engine.
#pragma once

#include "windrow/engine/engine.h"

namespace windrow {

/// While it lives, the end of the engine waits for its thread. A push hands its op to another thread before it returns;
/// if what the op does may end the last owner of the engine, the thread that pushes holds one of these around the push.
/// The engine must be alive when it is made.
///
/// Its thread must not end or shut down the engine meanwhile, except inside an op.
class EngineUse {
 public:
  explicit EngineUse(Engine& engine);
  ~EngineUse();
  EngineUse(const EngineUse&) = delete;
  EngineUse& operator=(const EngineUse&) = delete;

 private:
  Core& core_;
};

}  // namespace windrow
