// Where the engine tells people what no exception can.
#pragma once

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>

#include "immortal.h"

namespace windrow {

/// On standard error: standard output is for what programs print, which other programs may read.
class EngineLog : public spdlog::logger {
 public:
  EngineLog() : spdlog::logger("", std::make_shared<spdlog::sinks::stderr_color_sink_mt>()) {}
};

/// The first call needs memory; each engine makes one, so that none is needed where no exception may come from.
inline EngineLog& engine_log() { return immortal<EngineLog>(); }

}  // namespace windrow
