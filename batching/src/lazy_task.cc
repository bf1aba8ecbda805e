#include "windrow/batching/lazy_task.h"

#include "lazy_epochs.h"
#include "lazy_record.h"

namespace windrow {

bool LazyValue::await_ready() const { return expr_.computed(); }

void LazyValue::await_suspend(std::coroutine_handle<> task) { expr_.record_->suspended.push_back(task); }

void lazy::resume_all(LazyGraph& graph, const std::vector<std::coroutine_handle<>>& tasks) {
  Record& record = *graph.record_;
  std::vector<std::coroutine_handle<>> ready = tasks;
  while (!ready.empty()) {
    for (const std::coroutine_handle<> task : ready) {
      record.cut();
      task.resume();
    }
    ready = std::exchange(record.suspended, {});
    if (!ready.empty()) record.epochs().flush(std::source_location::current());
  }
  record.cut();
}

}  // namespace windrow
