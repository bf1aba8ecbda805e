// Keeps an engine alive during a push whose op may end it.
#pragma once

#include "windrow/engine/engine.h"

namespace windrow {

/// While an EngineUse exists, the end of the engine waits for it. A push hands its op to another thread before it
/// returns. If that op may drop the last owner of the engine, the pushing thread must hold an EngineUse around the
/// push. The engine must be alive when it is constructed.
///
/// The holding thread must not end or shut down the engine meanwhile, except inside an op.
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
