// Loops inside an op: the engine's idle workers help the thread that runs the op.
//
//   engine.push([&] { parallel_for(rows, 64, [&](std::size_t begin, std::size_t end) { scale(begin, end); }); },
//               {mutate(matrix)});
//
// Contract
//   Cuts     A loop over [0, count) is cut into pieces of `grain` indices, the last one smaller. The cuts depend on
//            nothing else, so that results do not depend on the number of workers.
//   Order    Pieces run at the same time and in any order. The call returns after the last one.
//   Threads  Pieces run on the calling thread and on workers that have no op to run; with policy `per_device`, on
//            workers of the op's lane. A worker leaves the loop after its piece when an op is ready for it. So no more
//            threads run than the engine, or the lane, has workers. In these cases all pieces run on the calling
//            thread, one after the other: outside an op, with policy `serial`, inside an op of an ordered lane, and
//            while the thread captures a graph or refuses pushes. So scopes of the thread also apply to pushes by
//            pieces. The thread that per_device reserves for ops of positive priority gets no help.
//   Errors   If a piece throws, pieces that have not begun are dropped, and one of the exceptions is passed on. A piece
//            must not wait for the engine: that throws MisuseError. It may push, and may contain loops.
//   Cost     Waking a sleeping worker takes time, so do not divide small loops. Operators (ops/cut.h) give each piece
//            some tens of microseconds of work, and do not cut loops of fewer than four pieces.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace windrow {

/// A reference to a callable(begin, end), which must outlive it; or a function.
class LoopBody {
 public:
  LoopBody(void (*function)(std::size_t, std::size_t))
      : object_(reinterpret_cast<void*>(function)), call_([](void* object, std::size_t begin, std::size_t end) {
          reinterpret_cast<void (*)(std::size_t, std::size_t)>(object)(begin, end);
        }) {}
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, LoopBody> &&
           !std::is_convertible_v<std::remove_reference_t<F>*, void (*)(std::size_t, std::size_t)>) LoopBody(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* object, std::size_t begin, std::size_t end) {
          (*static_cast<std::remove_reference_t<F>*>(object))(begin, end);
        }) {}
  void operator()(std::size_t begin, std::size_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, std::size_t, std::size_t);
};

/// The number of pieces of a loop. A grain of 0 counts as 1.
constexpr std::size_t piece_count(std::size_t count, std::size_t grain) {
  return grain == 0 ? count : count / grain + (count % grain != 0);
}

/// Calls body(begin, end) for each piece.
void parallel_for(std::size_t count, std::size_t grain, LoopBody body);

/// Combines map(begin, end) of all pieces, in the order of the pieces, so the result has the same bits for any number
/// of workers. `init` is the first operand; without pieces it is the result.
template <class T, class Map, class Combine>
T parallel_reduce(std::size_t count, std::size_t grain, T init, Map&& map, Combine&& combine) {
  if (grain == 0) grain = 1;
  std::vector<std::optional<T>> parts(piece_count(count, grain));
  parallel_for(count, grain,
               [&](std::size_t begin, std::size_t end) { parts[begin / grain].emplace(map(begin, end)); });
  for (std::optional<T>& part : parts) init = combine(std::move(init), std::move(*part));
  return init;
}

}  // namespace windrow
