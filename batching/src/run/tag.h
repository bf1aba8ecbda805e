// A buffer without bytes, which owns a variable.
#pragma once

#include <memory>
#include <utility>

#include "windrow/memory/buffer.h"

namespace windrow {

inline Buffer tag(EngineRef engine, OpName name) {
  static const std::shared_ptr<Allocator> host = host_allocator();
  return Buffer(std::move(engine), host, 0, name);
}

}  // namespace windrow
