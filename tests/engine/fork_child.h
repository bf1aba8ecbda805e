// Child processes of tests, and their checks of an engine.
#pragma once

#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sim_device.h"
#include "support.h"
#include "tests/sanitized.h"

namespace windrow::testing {

/// If the condition does not hold, prints its source line and ends the child.
#define CHILD_EXPECT(condition) \
  if (!(condition)) child_failed(__LINE__, #condition)

[[noreturn]] inline void child_failed(int line, const char* what) {
  std::fprintf(stderr, "fork_test.cc:%d: in the child: %s\n", line, what);
  _exit(1);
}

/// Whether all threads except this one are asleep.
inline bool others_sleep() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(syscall(SYS_gettid))) continue;
    std::string stat;
    std::getline(std::ifstream(task.path() / "stat"), stat);
    const std::size_t name_ends = stat.rfind(')');  // followed by the state
    if (name_ends != std::string::npos && stat.compare(name_ends, 3, ") S") != 0) return false;
  }
  return true;
}

/// As fork(). If another thread holds a lock of a sanitizer's allocator, the lock stays locked in the child (LLVM's
/// pull request 96600 fixes that for one sanitizer). So with a sanitizer, waits until all other threads are asleep.
inline pid_t fork_at_rest() {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (sanitized && !others_sleep() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
  return fork();
}

/// A child process. The destructor waits for its end, and kills it if it hangs.
class Child {
 public:
  /// The body runs in the child, which then ends at once, without destructors.
  explicit Child(const std::function<void()>& body) : id_(fork_at_rest()) {
    if (id_ != 0) return;
    run(body);
    _exit(0);
  }
  /// Takes a child that was forked elsewhere.
  explicit Child(pid_t id) : id_(id) {}
  ~Child() { EXPECT_EQ(status(), 0); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  static void run(const std::function<void()>& body) try {
    use_fresh_stacks();
    body();
  } catch (const std::exception& e) {
    child_failed(0, e.what());
  }

  /// ThreadSanitizer ends a process if a thread gets the stack of a thread that a fork has left behind. Larger stacks
  /// are never those.
  static void use_fresh_stacks() {
#if defined(__SANITIZE_THREAD__)
    pthread_attr_t attributes;
    std::size_t bytes = 0;
    pthread_getattr_default_np(&attributes);
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_setstacksize(&attributes, bytes + (64 << 10));
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
#endif
  }

  /// The status from waitpid. Blocks until the child has ended.
  int status() {
    const auto until = std::chrono::steady_clock::now() + patience;
    int status = 0;
    while (waitpid(id_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > until) kill(id_, SIGKILL);
      std::this_thread::sleep_for(1ms);
    }
    return status;
  }

 private:
  const pid_t id_;
};

/// A child of a process whose other threads never sleep. With a sanitizer it ends at once.
class ChildBesideThreads : public Child {
 public:
  explicit ChildBesideThreads(const std::function<void()>& body) : Child(fork_and_run(body)) {}

 private:
  static pid_t fork_and_run(const std::function<void()>& body) {
    const pid_t id = fork();
    if (id != 0) return id;
    if (!sanitized) run(body);
    _exit(0);
  }
};

inline void count_up(Engine& engine, Var v, int& value, int times) {
  for (int i = 0; i < times; ++i) engine.push([&value] { ++value; }, {mutate(v)});
}

template <class Call>
inline bool refuses(Call&& call) {
  try {
    call();
  } catch (const MisuseError&) {
    return true;
  }
  return false;
}

/// Whether the engine accepts ops and runs them.
inline bool works(Engine& engine) {
  const Var x = engine.new_var(), y = engine.new_var();
  int a = 0, b = 0;
  for (int i = 0; i < 20; ++i) {
    engine.push([&] { ++a; }, {mutate(x)}, {.priority = i % 3 - 1});
    engine.push([&] { b += a; }, {read(x), mutate(y)});
  }
  std::thread completes;
  engine.push_async([&](OnComplete done) { completes = std::thread([d = std::move(done)]() mutable { d(); }); },
                    {mutate(y)});
  engine.push([&] { ++b; }, {mutate(y)});
  const bool in_time = engine.wait_for({read(x), read(y)}, patience);
  engine.retire(x);
  engine.retire(y);
  if (!in_time) return false;
  completes.join();
  return a == 20 && b == 211 && engine.wait_all_for(patience);
}

}  // namespace windrow::testing
