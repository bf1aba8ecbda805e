// The log in which the engine reports what it cannot report by an exception.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace windrow {

/// Writes to standard error: standard output belongs to the program, and other programs may read it. Threads: any.
class EngineLog {
 public:
  /// Each "{}" in `format` stands for the next of `args`: text or integers.
  /// Throws nothing; without memory for the line, `format` itself is logged.
  template <class... Args>
  void warn(std::string_view format, const Args&... args) noexcept {
    tell(Level::warning, format, [&] { return filled(format, {text(args)...}); });
  }
  template <class... Args>
  void error(std::string_view format, const Args&... args) noexcept {
    tell(Level::error, format, [&] { return filled(format, {text(args)...}); });
  }

 private:
  enum class Level { warning, error };

  template <class T>
  static std::string text(const T& value) {
    if constexpr (std::is_integral_v<T>) {
      return std::to_string(value);
    } else {
      return std::string(value);
    }
  }
  static std::string filled(std::string_view format, std::initializer_list<std::string> args);
  template <class Line>
  void tell(Level level, std::string_view format, const Line& line) noexcept {
    try {
      tell(level, line());
    } catch (...) {
      tell(level, format);
    }
  }
  void tell(Level level, std::string_view line) noexcept;
};

/// The first call needs memory. Each engine calls it once, so later calls, in places that must not throw, need none.
EngineLog& engine_log();

}  // namespace windrow
