// Instances that look at their own values: coroutines over a lazy graph, which go on together. Start here for programs
// such as parsers, whose next step depends on a score.
//
//   windrow::LazyTask<double> parse(const Model& model, windrow::LazyGraph& graph, Sentence sentence) {
//     ...
//     while (!state.final()) state.apply(best(co_await value(model.scores(graph, state))));
//     co_return state.attachment_score();
//   }
//
//   std::vector<windrow::LazyTask<double>> tasks;
//   for (const Sentence& sentence : minibatch) tasks.push_back(parse(model, graph, sentence));
//   std::vector<double> scores = windrow::run(graph, std::move(tasks));
//
// Each instance is written as if it were alone. It runs until it waits for a value; when all wait, what they recorded
// is computed at once, in batches across them, and all go on.
//
// A coroutine's parameters are copied into it, references as references: what they name must outlive the task. So take
// by value what a caller may not keep, and do not make a task of a lambda that captures: its captures end with it.
// (g++ 12 refuses braces for an initializer list in an expression that awaits: name what they make before.)
//
// Contract
//   Errors   An exception that leaves a task, such as OpError from a failed value, ends that task only: the others get
//            their values and go on. When all have ended, run() throws the first exception in the order of the tasks.
//            MisuseError for a task that waits for a value of another graph, that was moved from, or whose graph was
//            cleared while it waited.
//   Threads  One at a time, as for the graph.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <source_location>
#include <type_traits>
#include <utility>
#include <vector>

#include "windrow/batching/lazy.h"

namespace windrow {

/// For co_await in a LazyTask: gives std::vector<float>.
class LazyValue {
 public:
  LazyValue(LazyExpr expr, std::source_location from) : expr_(std::move(expr)), from_(from) {}
  bool await_ready() const;
  template <class P>
  void await_suspend(std::coroutine_handle<P> task) {
    suspend(task, task.promise().next);
  }
  std::vector<float> await_resume() const { return expr_.value(from_); }

 private:
  /// `next` tells which graph the task runs with.
  void suspend(std::coroutine_handle<> task, const std::coroutine_handle<>* next);

  LazyExpr expr_;
  std::source_location from_;
};
inline LazyValue value(LazyExpr expr, std::source_location from = std::source_location::current()) {
  return {std::move(expr), from};
}

template <class T>
class LazyTask;
/// Of several tasks.
template <class T>
using LazyResults = std::conditional_t<std::is_void_v<T>, void, std::vector<T>>;
template <class T>
LazyResults<T> run(LazyGraph& graph, std::vector<LazyTask<T>> tasks,
                   std::source_location from = std::source_location::current());

namespace lazy {

/// What promises of all types share: who goes on behind the task, and what it threw.
///
/// A task that ends or begins another one does not resume it, but leaves it to the loop that resumed the task itself:
/// compilers that do not optimise would keep a frame of the stack for each of them (symmetric transfer is no promise).
struct Promise {
  struct Final {
    bool await_ready() const noexcept { return false; }
    template <class P>
    void await_suspend(std::coroutine_handle<P> task) const noexcept {
      *task.promise().next = task.promise().behind;
    }
    void await_resume() const noexcept {}
  };

  std::coroutine_handle<>* next = nullptr;  // what resume_all() resumes next; null for nothing
  std::coroutine_handle<> behind;
  std::exception_ptr error;

  std::suspend_always initial_suspend() const noexcept { return {}; }
  Final final_suspend() const noexcept { return {}; }
  void unhandled_exception() { error = std::current_exception(); }
  /// A task waits for values and for other tasks, and for nothing else: nobody would make it go on.
  LazyValue await_transform(LazyValue value) const { return value; }
  template <class T>
  LazyTask<T> await_transform(LazyTask<T> task) const {
    return task;
  }
};

template <class T>
struct PromiseOf : Promise {
  std::optional<T> result;
  LazyTask<T> get_return_object();
  void return_value(T value) { result = std::move(value); }
  T take() { return std::move(*result); }
};
template <>
struct PromiseOf<void> : Promise {
  LazyTask<void> get_return_object();
  void return_void() const {}
  void take() const {}
};

void resume_all(LazyGraph& graph, const std::vector<std::coroutine_handle<>>& tasks, std::source_location from);
/// Where its tasks leave whom to resume behind them.
std::coroutine_handle<>& next_of(LazyGraph& graph);

}  // namespace lazy

/// A coroutine that has not begun, or waits. An owner: it can be moved, and ends what it has not finished.
template <class T = void>
class [[nodiscard]] LazyTask {
 public:
  using promise_type = lazy::PromiseOf<T>;

  explicit LazyTask(std::coroutine_handle<promise_type> task) : task_(task) {}
  LazyTask(LazyTask&& other) noexcept : task_(std::exchange(other.task_, nullptr)) {}
  LazyTask& operator=(LazyTask other) noexcept {
    std::swap(task_, other.task_);
    return *this;
  }
  ~LazyTask() {
    if (task_) task_.destroy();
  }

  // A task may wait for another one: it begins, and its result is what co_await gives.
  bool await_ready() const noexcept { return false; }
  template <class P>
  void await_suspend(std::coroutine_handle<P> behind) {
    if (!task_) throw MisuseError("co_await: a task that was moved from; expected one that has not begun");
    task_.promise().behind = behind;
    task_.promise().next = behind.promise().next;
    *task_.promise().next = task_;
  }
  T await_resume() { return result(); }

 private:
  template <class U>
  friend LazyResults<U> run(LazyGraph& graph, std::vector<LazyTask<U>> tasks, std::source_location from);
  T result() {
    if (task_.promise().error) std::rethrow_exception(task_.promise().error);
    return task_.promise().take();
  }

  std::coroutine_handle<promise_type> task_;
};

template <class T>
LazyTask<T> lazy::PromiseOf<T>::get_return_object() {
  return LazyTask<T>(std::coroutine_handle<PromiseOf>::from_promise(*this));
}
inline LazyTask<void> lazy::PromiseOf<void>::get_return_object() {
  return LazyTask<void>(std::coroutine_handle<PromiseOf>::from_promise(*this));
}

/// Runs the tasks to their ends, side by side. Returns their results, if they have some, in the order of the tasks.
template <class T>
LazyResults<T> run(LazyGraph& graph, std::vector<LazyTask<T>> tasks, std::source_location from) {
  std::vector<std::coroutine_handle<>> handles;
  for (const LazyTask<T>& task : tasks) {
    handles.push_back(task.task_);
    if (task.task_) task.task_.promise().next = &lazy::next_of(graph);
  }
  lazy::resume_all(graph, handles, from);
  if constexpr (std::is_void_v<T>) {
    for (LazyTask<T>& task : tasks) task.result();
  } else {
    std::vector<T> results;
    for (LazyTask<T>& task : tasks) results.push_back(task.result());
    return results;
  }
}

}  // namespace windrow
