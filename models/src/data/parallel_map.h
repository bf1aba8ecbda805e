// Work on the elements of a corpus, which idle workers share.
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <source_location>
#include <utility>
#include <vector>

#include "windrow/engine/engine.h"
#include "windrow/engine/internal/engine_ref.h"
#include "windrow/engine/internal/engine_use.h"
#include "windrow/engine/parallel.h"

namespace windrow {

/// Returns make(0), make(1), ... make(count - 1). Inside an op, idle workers help (see parallel.h), so `make` may be
/// called by several threads. If several calls throw, the exception of the smallest number is passed on, so errors do
/// not depend on the number of workers.
template <class Make>
auto parallel_map(std::size_t count, Make&& make) {
  using Made = decltype(make(std::size_t{}));
  constexpr std::size_t grain = 64;
  std::vector<std::optional<Made>> made(count);
  std::vector<std::exception_ptr> errors(piece_count(count, grain));
  parallel_for(count, grain, [&](std::size_t begin, std::size_t end) {
    try {
      for (std::size_t i = begin; i < end; ++i) made[i].emplace(make(i));
    } catch (...) {
      errors[begin / grain] = std::current_exception();
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  std::vector<Made> result;
  result.reserve(count);
  for (std::optional<Made>& one : made) result.push_back(std::move(*one));
  return result;
}

/// Calls f() in an op, so that idle workers help in its loops, and waits. Passes on what f() throws. Traces name `from`
/// as the place of the push.
template <class F>
void run_in_op(const EngineRef& engine, F&& f, std::source_location from = std::source_location::current()) {
  std::exception_ptr error;
  const Var done = engine->new_var("data");
  engine->push(
      [&] {
        try {
          f();
        } catch (...) {
          error = std::current_exception();
        }
      },
      {mutate(done)}, {.name = "read data", .pushed_at = from});
  const LookWhileWaiting no_look;  // the op uses what this frame holds
  engine->wait(done);
  engine->retire(done);
  if (error) std::rethrow_exception(error);
}

}  // namespace windrow
