// What fork() makes of an engine. Each test forks; the child works and ends with a status.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "sim_device.h"
#include "support.h"

#if defined(__SANITIZE_THREAD__)
/// A child may start threads: ours starts with none of them in the middle of anything.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace windrow::testing {
namespace {

/// Ends the child with the number of its source line where the condition does not hold.
#define CHILD_EXPECT(condition) \
  if (!(condition)) child_failed(__LINE__, #condition)

[[noreturn]] void child_failed(int line, const char* what) {
  std::fprintf(stderr, "fork_test.cc:%d: in the child: %s\n", line, what);
  _exit(1);
}

/// A child process. Its end is awaited, but not for ever: one that hangs is killed.
class Child {
 public:
  /// The body runs in the child, which then ends at once, without destructors.
  explicit Child(const std::function<void()>& body) : id_(fork()) {
    if (id_ != 0) return;
    run(body);
    _exit(0);
  }
  /// Of a fork that was made elsewhere.
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

  /// The thread sanitizer ends a process in which a thread gets the stack of one that a fork has left behind; larger
  /// ones are others.
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

  /// As waitpid gives it.
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

void count_up(Engine& engine, Var v, int& value, int times) {
  for (int i = 0; i < times; ++i) engine.push([&value] { ++value; }, {mutate(v)});
}

template <class Call>
bool refuses(Call&& call) {
  try {
    call();
  } catch (const MisuseError&) {
    return true;
  }
  return false;
}

/// Whether the engine takes ops and runs them.
bool works(Engine& engine) {
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

class ForkTest : public EveryPolicy {};
WINDROW_EVERY_POLICY(ForkTest);

class ThreadedForkTest : public EveryPolicy {};
WINDROW_THREADED_POLICIES(ThreadedForkTest);

TEST_P(ForkTest, AnEngineThatNeverPushedWorksInTheChild) {
  Engine engine(options());
  const Child child([&] { CHILD_EXPECT(works(engine)); });
  EXPECT_TRUE(works(engine));
}

TEST_P(ForkTest, TheChildHasTheValuesAndGoesOn) {
  auto engine = std::make_unique<Engine>(options());
  const Var v = engine->new_var("v");
  int value = 0;
  count_up(*engine, v, value, 300);
  {
    const Child child([&] {
      CHILD_EXPECT(value == 300);
      CHILD_EXPECT(engine->version(v) == 300);
      CHILD_EXPECT(engine->stats().pending == 0);
      count_up(*engine, v, value, 100);
      CHILD_EXPECT(engine->wait_for({read(v)}, patience));
      CHILD_EXPECT(value == 400);
      CHILD_EXPECT(works(*engine));
      engine.reset();
    });
    count_up(*engine, v, value, 1);
    engine->wait(v);
    EXPECT_EQ(value, 301);
  }
  EXPECT_TRUE(works(*engine));
}

TEST_P(ForkTest, AChildMayForkAgain) {
  Engine engine(options());
  EXPECT_TRUE(works(engine));
  const Child child([&] {
    CHILD_EXPECT(works(engine));
    const pid_t id = fork();
    if (id == 0) {
      Child::run([&] { CHILD_EXPECT(works(engine)); });
      _exit(0);
    }
    CHILD_EXPECT(Child(id).status() == 0);
    CHILD_EXPECT(works(engine));
  });
}

TEST_P(ForkTest, PoisonIsCopied) {
  Engine engine(options());
  const Var v = engine.new_var("v");
  engine.push([] { throw std::runtime_error("broken"); }, {mutate(v)}, {.name = "breaks"});
  const Child child([&] {
    CHILD_EXPECT(error_of<OpError>([&] { engine.wait(v); }).find("broken") != std::string::npos);
    engine.heal(v);
    engine.wait(v);
  });
  error_of<OpError>([&] { engine.wait(v); });
}

TEST_P(ForkTest, AChildMayEndByExit) {
  static std::unique_ptr<Engine> engine;  // ends with the process
  engine = std::make_unique<Engine>(options());
  EXPECT_TRUE(works(*engine));
  const Child child([&] {
    CHILD_EXPECT(works(*engine));
    engine.reset();
    std::quick_exit(0);
  });
  engine.reset();
}

TEST_P(ForkTest, EveryEngineOfTheProcessIsCopied) {
  Engine one(options()), two({.policy = Policy::pool, .workers = 2}), three({.policy = Policy::serial});
  const Var a = one.new_var(), b = two.new_var(), c = three.new_var();
  int in_a = 0, in_b = 0, in_c = 0;
  for (int i = 0; i < 50; ++i) {
    one.push([&] { two.push([&] { three.push([&] { ++in_c; }, {mutate(c)}), ++in_b; }, {mutate(b)}), ++in_a; },
             {mutate(a)});
  }
  const Child child([&] {
    CHILD_EXPECT(in_a == 50 && in_b == 50 && in_c == 50);
    CHILD_EXPECT(works(one) && works(two) && works(three));
  });
  one.wait_all();
  two.wait_all();
  three.wait_all();
}

TEST_P(ForkTest, ThreadsThatPushAndWaitGoOn) {
  EngineOptions limited = options();
  limited.max_pending_ops = 64;
  Engine engine(limited);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::vector<std::uint64_t> counts(3);
  for (std::uint64_t& count : counts) {
    threads.emplace_back([&engine, &stop, &count, pauses = !threads.empty()] {
      const Var v = engine.new_var();
      std::uint64_t pushed = 0;
      while (!stop) {
        engine.push([&count] { ++count; }, {mutate(v)});
        ++pushed;
        if (!pauses) continue;  // so there always is something pending
        if (pushed % 7 == 0) engine.retire(engine.new_var("short-lived"));
        if (pushed % 16 == 0) engine.wait(v);
        if (pushed % 50 == 0) engine.stats();
        if (pushed % 64 == 0) engine.wait_all();
      }
      engine.wait(v);
      EXPECT_EQ(engine.version(v), pushed);
      EXPECT_EQ(count, pushed);
    });
  }
  for (int i = 0; i < 20; ++i) {
    const Child child([&] {
      CHILD_EXPECT(works(engine));
      engine.shutdown();
    });
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

TEST_P(ForkTest, SoDoThreadsWhoseOpsOthersComplete) {
  EngineOptions limited = options();
  limited.max_pending_ops = 20;
  Engine engine(limited);
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::vector<OnComplete> tokens;
  const auto complete_all = [&] {
    std::vector<OnComplete> now;
    std::unique_lock lock(mutex);
    now.swap(tokens);
    lock.unlock();
    for (OnComplete& done : now) done();
  };
  std::thread completes([&] {
    while (!stop) complete_all(), std::this_thread::yield();
  });
  const Var v = engine.new_var();
  int ends = 0;
  std::thread pushes([&] {
    while (!stop) {
      const auto keep = [&](OnComplete done) {
        std::lock_guard lock(mutex);
        tokens.push_back(std::move(done));
      };
      engine.push_async(keep, {mutate(v)});
      engine.push([&] { ++ends; }, {mutate(v)});
    }
  });
  for (int i = 0; i < 10; ++i) {
    const Child child([&] { CHILD_EXPECT(works(engine)); });
  }
  stop = true;
  pushes.join();
  completes.join();
  while (!engine.wait_for({read(v)}, 1ms)) complete_all();
}

TEST_P(ForkTest, AGraphIsLaunchedInTheChild) {
  Engine engine(options());
  const Var v = engine.new_var();
  int value = 0;
  const Graph graph = engine.capture([&] {
    for (int i = 0; i < 10; ++i) engine.push([&] { ++value; }, {mutate(v)});
  });
  for (int i = 0; i < 10; ++i) graph.launch();
  const Child child([&] {
    CHILD_EXPECT(value == 100);
    graph.launch();
    CHILD_EXPECT(engine.wait_for({read(v)}, patience));
    CHILD_EXPECT(value == 110);
  });
  graph.launch();
  engine.wait(v);
  EXPECT_EQ(value, 110);
}

TEST_P(ForkTest, ACaptureMayFork) {
  Engine engine(options());
  const Var v = engine.new_var();
  int value = 0;
  pid_t id = -1;
  const Graph graph = engine.capture([&] {
    engine.push([&] { ++value; }, {mutate(v)});
    id = fork();
    if (id == 0) Child::use_fresh_stacks();
    engine.push([&] { ++value; }, {mutate(v)});
  });
  graph.launch();
  EXPECT_TRUE(engine.wait_for({read(v)}, patience));
  if (id == 0) _exit(value == 2 ? 0 : 1);
  const Child child(id);
  EXPECT_EQ(value, 2);
}

TEST_P(ForkTest, AnEngineThatHasEndedStaysSo) {
  Engine engine(options());
  EXPECT_TRUE(works(engine));
  const Var v = engine.new_var();
  engine.shutdown();
  const Child child([&] {
    CHILD_EXPECT(refuses([&] { engine.push([] {}, {mutate(v)}); }));
    engine.shutdown();
  });
}

TEST_P(ForkTest, BackPressureBeginsAnew) {
  EngineOptions limited = options();
  limited.max_pending_ops = 20;
  limited.max_pending_bytes = 1000;
  Engine engine(limited);
  const auto fill = [&] {
    for (int i = 0; i < 2000; ++i) engine.push([] {}, {}, {.bytes = 100});
    return engine.wait_all_for(patience) && engine.stats().pending_bytes == 0;
  };
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) engine.push([] {}, {}, {.bytes = 300});
  });
  for (int i = 0; i < 5; ++i) {
    const Child child([&] { CHILD_EXPECT(fill()); });
  }
  stop = true;
  other.join();
  EXPECT_TRUE(fill());
}

TEST_P(ForkTest, TheWatchdogLooksAgain) {
  EngineOptions watched = options();
  std::atomic<int> told{0};
  watched.watchdog = 5ms;
  watched.on_silence = [&](const std::string&) { ++told; };
  Engine engine(watched);
  EXPECT_TRUE(works(engine));
  const Child child([&] {
    const int before = told;
    std::optional<OnComplete> kept;
    const Var v = engine.new_var();
    engine.push_async([&](OnComplete done) { kept = std::move(done); }, {mutate(v)});
    const auto until = std::chrono::steady_clock::now() + patience;
    while (told == before && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    CHILD_EXPECT(told > before);
    (*kept)();
    engine.wait(v);
  });
}

TEST_P(ForkTest, ATracedEngineIsCopied) {
  Engine engine(options());
  engine.trace().start();
  EXPECT_TRUE(works(engine));
  const Child child([&] {
    CHILD_EXPECT(works(engine));
    engine.trace().stop();
    CHILD_EXPECT(!engine.trace().summary().ops.empty());
  });
}

// ---- ops that are pending ----

/// Everything that is asked of an engine whose ops were lost.
void expect_torn(Engine& engine, Var v, const Graph& graph) {
  CHILD_EXPECT(refuses([&] { engine.push([] {}, {mutate(v)}); }));
  CHILD_EXPECT(refuses([&] { engine.push_async([](OnComplete) {}, {mutate(v)}); }));
  CHILD_EXPECT(refuses([&] { engine.wait(v); }));
  CHILD_EXPECT(refuses([&] { engine.wait_for({read(v)}, 1ms); }));
  CHILD_EXPECT(refuses([&] { engine.wait_all(); }));
  CHILD_EXPECT(refuses([&] { engine.new_var(); }));
  CHILD_EXPECT(refuses([&] { engine.heal(v); }));
  CHILD_EXPECT(refuses([&] { engine.version(v); }));
  CHILD_EXPECT(refuses([&] { engine.describe_pending(); }));
  CHILD_EXPECT(refuses([&] { engine.capture([] {}); }));
  CHILD_EXPECT(refuses([&] { graph.launch(); }));
  engine.retire(v);
  engine.stats();
  engine.shutdown();
}

TEST_P(ForkTest, OpsThatCannotFinishDoNotRunInTheChild) {
  EngineOptions hasty = options();
  hasty.fork_patience = 20ms;
  auto engine = std::make_unique<Engine>(hasty);
  const Var v = engine->new_var();
  const Graph graph = engine->capture([&] { engine->push([] {}, {mutate(v)}); });
  std::optional<OnComplete> kept;
  Gate called;
  int ran = 0;
  engine->push_async([&](OnComplete done) { kept = std::move(done), called.open(); }, {mutate(v)});
  engine->push([&] { ++ran; }, {mutate(v)});
  ASSERT_TRUE(called.pass());
  {
    const Child child([&] {
      expect_torn(*engine, v, graph);
      Engine fresh(options());
      CHILD_EXPECT(works(fresh));
      (*kept)();
      CHILD_EXPECT(works(fresh));
      engine.reset();
      CHILD_EXPECT(ran == 0);
    });
  }
  (*kept)();
  engine->wait(v);
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(works(*engine));
}

TEST_P(ForkTest, AForkInsideAnOpDoesNotWait) {
  EngineOptions patient = options();
  patient.fork_patience = 1h;
  Engine engine(patient), idle(options());
  EXPECT_TRUE(works(idle));
  const Var v = engine.new_var();
  const Graph graph = engine.capture([&] { engine.push([] {}, {mutate(v)}); });
  pid_t id = -1;
  bool later = false;
  engine.push(
      [&] {
        id = fork();
        if (id != 0) return;
        Child::run([&] {
          expect_torn(engine, v, graph);
          if (GetParam().policy != Policy::serial) CHILD_EXPECT(works(idle));
        });
        _exit(0);
      },
      {mutate(v)});
  engine.push([&] { later = true; }, {mutate(v)});
  EXPECT_TRUE(engine.wait_for({read(v)}, patience));
  EXPECT_TRUE(later);
  const Child child(id);
}

TEST_P(ForkTest, AnOpMayForkAndExec) {
  Engine engine(options());
  const Var v = engine.new_var();
  pid_t id = -1;
  int by_system = -1;
  engine.push(
      [&] {
        id = fork();
        if (id == 0) execl("/bin/sh", "sh", "-c", "exit 0", nullptr), _exit(1);
        by_system = std::system("exit 0");
      },
      {mutate(v)});
  EXPECT_TRUE(engine.wait_for({read(v)}, patience));
  EXPECT_EQ(by_system, 0);
  const Child child(id);
}

TEST_P(ThreadedForkTest, AnOpThatReturnsInTheChildEndsIt) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer does not survive that the last thread, which is not main's, ends";
#elif defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "what main holds, which does not exist in such a child, counts as leaked at its end";
#endif
  Engine engine(options());
  const Var v = engine.new_var();
  std::atomic<pid_t> id{-1};
  engine.push([&] { id = fork(); }, {mutate(v)});
  for (int i = 0; i < 10; ++i) {
    engine.push(
        [&] {
          if (id == 0) _exit(1);
        },
        {mutate(v)});
  }
  const Graph graph = engine.capture([&] {
    engine.push([&] { id = fork(); }, {mutate(v)});
    for (int i = 0; i < 10; ++i)
      engine.push(
          [&] {
            if (id == 0) _exit(1);
          },
          {mutate(v)});
  });
  EXPECT_TRUE(engine.wait_for({read(v)}, patience));
  EXPECT_EQ(Child(id).status(), 0);
  graph.launch();
  EXPECT_TRUE(engine.wait_for({read(v)}, patience));
  const Child child(id);
}

TEST(SerialForkTest, AnOpThatReturnsInTheChildReturnsFromThePush) {
  Engine engine({.policy = Policy::serial});
  const Var v = engine.new_var();
  pid_t id = -1;
  engine.push(
      [&] {
        engine.push(
            [&] {
              if (id == 0) _exit(1);
            },
            {mutate(v)});
        id = fork();
      },
      {mutate(v)});
  if (id == 0) _exit(refuses([&] { engine.push([] {}, {mutate(v)}); }) ? 0 : 1);
  const Child child(id);
  engine.wait(v);
}

// ---- devices ----

TEST_P(ForkTest, LanesOfTheParentAreRefusedInTheChild) {
  auto device = std::make_shared<SimLane>("device");
  auto engine = std::make_unique<Engine>(options());
  const LaneId lane = engine->add_lane(device);
  const Var v = engine->new_var();
  int value = 0;
  engine->push([&] { device->launch([&] { value = 7; }); }, {mutate(v)}, {.lane = lane});
  {
    const Child child([&] {
      CHILD_EXPECT(engine->wait_for({read(v)}, patience));
      CHILD_EXPECT(value == 7);
      const std::string text = error_of<MisuseError>([&] { engine->push([] {}, {mutate(v)}, {.lane = lane}); });
      CHILD_EXPECT(text.find("'device'") != std::string::npos && text.find("fork") != std::string::npos);
      engine->push([&] { ++value; }, {mutate(v)});
      CHILD_EXPECT(engine->wait_all_for(patience));
      CHILD_EXPECT(value == 8);
      const auto fresh = std::make_shared<SimLane>("fresh");
      const LaneId on_fresh = engine->add_lane(fresh);
      engine->push([&] { fresh->launch([&] { ++value; }); }, {mutate(v)}, {.lane = on_fresh});
      CHILD_EXPECT(engine->wait_for({read(v)}, patience));
      CHILD_EXPECT(value == 9);
      engine.reset();
      device.reset();
    });
  }
  engine->push([&] { device->launch([&] { ++value; }); }, {mutate(v)}, {.lane = lane});
  engine->wait(v);
  EXPECT_EQ(value, 8);
}

TEST_P(ThreadedForkTest, ALaneThatIsBehindIsAwaited) {
  EngineOptions hasty = options();
  hasty.fork_patience = 20ms;
  const auto device = std::make_shared<SimLane>("device");
  Engine engine(hasty);
  const LaneId lane = engine.add_lane(device);
  const Var v = engine.new_var();
  device->hold();
  engine.push([&] { device->launch([] {}); }, {mutate(v)}, {.lane = lane});
  {
    const Child child([&] { CHILD_EXPECT(refuses([&] { engine.wait(v); })); });
  }
  device->let_go();
  engine.wait(v);
  const Child child([&] { CHILD_EXPECT(engine.wait_for({read(v)}, patience)); });
}

}  // namespace
}  // namespace windrow::testing
