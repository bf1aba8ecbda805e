// A variable with an owner: a buffer without bytes.
#pragma once

#include <memory>
#include <utility>

#include "windrow/memory/buffer.h"

namespace windrow {

inline Buffer owned_var(EngineRef engine, OpName name) {
  static const std::shared_ptr<Allocator> host = host_allocator();
  return Buffer(std::move(engine), host, 0, name);
}

}  // namespace windrow
