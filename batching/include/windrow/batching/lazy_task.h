// Lazy tasks: coroutines over a lazy graph that read their own values. Start here for programs such as parsers, whose
// next step depends on a score.
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
// Each sample is written as if it were alone. It runs until it waits for a value. When all samples wait, everything
// that they recorded is computed in batches across samples, and all continue.
//
// A coroutine copies its parameters; references are copied as references, so what they refer to must outlive the task.
// Pass values that the caller may destroy earlier by value. Do not make a task of a lambda with captures: they end with
// the lambda. Do not loop over a part of what run() returns, as in `for (x : run(graph, tasks).front())`: the vector
// ends before the loop begins. (g++ 12 rejects braced initialiser lists in an expression that awaits; name them first.)
//
// Contract
//   Errors   An exception that leaves a task, such as OpError from a failed value, ends that task only; the others get
//            their values and continue. When all have ended, run() throws the first exception in the order of the
//            tasks. MisuseError is thrown for a task that waits for a value of another graph, that was moved from, or
//            whose graph was cleared while it waited.
//   Threads  One at a time, as for the graph.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <coroutine>
#include <exception>
#include <optional>
#include <source_location>
#include <type_traits>
#include <utility>
#include <vector>

#include "windrow/batching/lazy.h"

namespace windrow {

namespace lazy {
template <class T>
struct PromiseOf;
}  // namespace lazy

template <class T = void>
class LazyTask;
/// The results of several tasks: a vector, or void.
template <class T>
using LazyResults = std::conditional_t<std::is_void_v<T>, void, std::vector<T>>;
template <class T>
LazyResults<T> run(LazyGraph& graph, std::vector<LazyTask<T>> tasks,
                   std::source_location from = std::source_location::current());

/// A coroutine that has not started, or waits. An owner: it can be moved, and its destructor destroys an unfinished
/// coroutine.
template <class T>
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

  // A task can await another task: that starts it, and co_await returns its result.
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

/// The awaitable of value(); co_await in a LazyTask returns std::vector<float>, and throws as LazyExpr::value does.
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
  /// `next` identifies the graph that the task runs with.
  void suspend(std::coroutine_handle<> task, const std::coroutine_handle<>* next);

  LazyExpr expr_;
  std::source_location from_;
};
inline LazyValue value(LazyExpr expr, std::source_location from = std::source_location::current()) {
  return {std::move(expr), from};
}

namespace lazy {

/// The part of a promise that does not depend on the result type: the task to resume next, and the exception.
///
/// A task that ends or starts another task does not resume the next task itself. It returns to the loop that resumed
/// it, which resumes the next one. With symmetric transfer, compilers that do not optimise would keep a stack frame for
/// each resumption.
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
  /// A task can await only values and other tasks: nothing would resume it from another wait.
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
/// Where a task stores the coroutine to resume after it.
std::coroutine_handle<>& next_of(LazyGraph& graph);

}  // namespace lazy

template <class T>
LazyTask<T> lazy::PromiseOf<T>::get_return_object() {
  return LazyTask<T>(std::coroutine_handle<PromiseOf>::from_promise(*this));
}
inline LazyTask<void> lazy::PromiseOf<void>::get_return_object() {
  return LazyTask<void>(std::coroutine_handle<PromiseOf>::from_promise(*this));
}

/// Runs the tasks concurrently until all have ended. Returns their results, if they have any, in the order of the
/// tasks. Throws as the contract says.
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
