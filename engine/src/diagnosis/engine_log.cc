#include "diagnosis/engine_log.h"

// Both libraries are compiled into this file only, under separate names: programs need neither, and may contain other
// versions.
#define FMT_HEADER_ONLY
#define SPDLOG_FMT_EXTERNAL
#define SPDLOG_HEADER_ONLY
#define spdlog windrow_spdlog
#define fmt windrow_fmt
#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#undef spdlog
#undef fmt

#include <memory>

#include "process/immortal.h"

namespace windrow {

namespace {

class Logger : public windrow_spdlog::logger {
 public:
  Logger() : windrow_spdlog::logger("", std::make_shared<windrow_spdlog::sinks::stderr_color_sink_mt>()) {}
};

}  // namespace

std::string EngineLog::filled(std::string_view format, std::initializer_list<std::string> args) {
  std::string line;
  for (const std::string& arg : args) {
    const std::size_t hole = format.find("{}");
    line.append(format.substr(0, hole)).append(arg);
    format.remove_prefix(hole + 2);
  }
  return line.append(format);
}

void EngineLog::tell(Level level, std::string_view line) noexcept {
  using windrow_spdlog::level::level_enum;
  immortal<Logger>().log(level == Level::error ? level_enum::err : level_enum::warn,
                         windrow_spdlog::string_view_t(line.data(), line.size()));
}

EngineLog& engine_log() {
  immortal<Logger>();
  return immortal<EngineLog>();
}

}  // namespace windrow
