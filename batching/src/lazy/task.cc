#include <algorithm>
#include <exception>
#include <utility>

#include "lazy/epochs.h"
#include "lazy/record.h"
#include "windrow/batching/lazy_task.h"

namespace windrow {

bool LazyValue::await_ready() const { return expr_.computed(); }

void LazyValue::suspend(std::coroutine_handle<> task, const std::coroutine_handle<>* next) {
  if (next != &expr_.record_->next) {  // no flush of its own graph would resume it
    throw MisuseError("a task waits for an expression of another lazy graph than it runs with; expected the same");
  }
  expr_.record_->suspended.push_back(task);
}

std::coroutine_handle<>& lazy::next_of(LazyGraph& graph) { return graph.record_->next; }

void lazy::resume_all(LazyGraph& graph, const std::vector<std::coroutine_handle<>>& tasks, std::source_location from) {
  Record& record = *graph.record_;
  for (const std::coroutine_handle<> task : tasks) {
    if (!task) throw MisuseError("run: a task that was moved from; expected one that has not begun");
  }
  // A flush may throw for an earlier one that failed, and can be called again then: the tasks go on first.
  std::exception_ptr of_earlier;
  const auto flush = [&] {
    constexpr int most = 64;  // failures that nobody has read
    for (int failures = 0;; ++failures) {
      try {
        return record.epochs().flush(from);
      } catch (const OpError&) {
        if (failures == most) throw;
        if (!of_earlier) of_earlier = std::current_exception();
      }
    }
  };
  std::vector<std::coroutine_handle<>> ready = tasks;
  while (!ready.empty()) {
    for (const std::coroutine_handle<> task : ready) {
      record.cut();
      record.next = task;
      while (record.next) std::exchange(record.next, nullptr).resume();
    }
    ready = std::exchange(record.suspended, {});
    if (!ready.empty()) flush();
  }
  record.cut();
  const bool all_done = std::all_of(tasks.begin(), tasks.end(), [](auto task) { return task.done(); });
  if (all_done && of_earlier) std::rethrow_exception(of_earlier);
  if (all_done) return;
  throw MisuseError("run: a task still waits for what was cleared; expected clear() when all have ended");
}

}  // namespace windrow
