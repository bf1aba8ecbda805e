// What the house's programs share: output, and how they end. What is wrong is told in one line, and the exit status is
// 2. Their flags are in flags.h, for the few sources that have to compile CLI11.
#pragma once

#include <exception>
#include <functional>

#include "windrow/engine/engine.h"

namespace CLI {
class App;
}

namespace windrow::program {

/// Prints to standard output, as printf does, at once. Throws Error if it cannot be written.
[[gnu::format(printf, 1, 2)]] void print(const char* format, ...);

/// Beside an engine, made after it. Where an exception ends them, nobody is told what else failed in that engine: most
/// often it is the same once more, such as memory that ran out, and the exception tells of that.
class ToldOnce {
 public:
  explicit ToldOnce(Engine& engine) : engine_(engine) {}
  ~ToldOnce();
  ToldOnce(const ToldOnce&) = delete;
  ToldOnce& operator=(const ToldOnce&) = delete;

 private:
  Engine& engine_;
  const int exceptions_ = std::uncaught_exceptions();
};

/// Parses, then runs the body. Returns the exit status: 0; or 2, after a line that begins with the program's name, for
/// arguments that do not fit and for whatever the body throws.
int run(CLI::App& app, int argc, char** argv, const std::function<void()>& body);

}  // namespace windrow::program
