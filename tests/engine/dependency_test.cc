// The dependency queues alone: who is granted what, and when.
#include "windrow/engine/dependency.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace windrow {
namespace {

using Dep = Dependency<StdAtomics>;

struct TestOp {
  explicit TestOp(std::vector<std::pair<Dep::Var*, AccessKind>> wanted) : accesses(wanted.size()) {
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      accesses[i].var = wanted[i].first;
      accesses[i].kind = wanted[i].second;
      accesses[i].generation = wanted[i].first->generation;
    }
    accesses.resize(Dep::canonicalise(accesses));
    op = std::make_unique<Dep::Op>(accesses.data(), static_cast<std::uint32_t>(accesses.size()));
    for (auto& access : accesses) access.op = op.get();
  }
  Dep::Join join() { return Dep::join(*op); }
  /// Returns which of the ops became ready.
  std::vector<Dep::Op*> leave() {
    std::vector<Dep::Op*> ready;
    Dep::leave(
        *op, [](Dep::Access&) {}, [&](Dep::Op& next) { ready.push_back(&next); });
    return ready;
  }

  std::vector<Dep::Access> accesses;
  std::unique_ptr<Dep::Op> op;
};

constexpr AccessKind R = AccessKind::read, M = AccessKind::mutate, O = AccessKind::overwrite;

TEST(Dependency, CanonicaliseSortsAndKeepsTheStrongerKind) {
  Dep::Var v[3];
  const TestOp op({{&v[2], R}, {&v[0], O}, {&v[2], O}, {&v[1], R}, {&v[1], R}, {&v[0], O}});
  ASSERT_EQ(op.accesses.size(), 3u);
  EXPECT_EQ(op.accesses[0].var, &v[0]);
  EXPECT_EQ(op.accesses[0].kind, O);
  EXPECT_EQ(op.accesses[1].kind, R);
  EXPECT_EQ(op.accesses[2].kind, M);  // reads the old value and writes
}

TEST(Dependency, ReadersShareAndWritersDoNot) {
  Dep::Var v;
  TestOp r1({{&v, R}}), r2({{&v, R}}), w1({{&v, M}}), r3({{&v, R}}), r4({{&v, R}}), w2({{&v, O}});
  EXPECT_EQ(r1.join(), Dep::Join::ready);
  EXPECT_EQ(r2.join(), Dep::Join::ready);
  EXPECT_EQ(w1.join(), Dep::Join::waiting);
  EXPECT_EQ(r3.join(), Dep::Join::waiting);  // behind the writer
  EXPECT_EQ(r4.join(), Dep::Join::waiting);
  EXPECT_EQ(w2.join(), Dep::Join::waiting);
  EXPECT_TRUE(r1.leave().empty());
  EXPECT_EQ(r2.leave(), (std::vector{w1.op.get()}));
  EXPECT_EQ(w1.leave(), (std::vector{r3.op.get(), r4.op.get()}));
  EXPECT_TRUE(r4.leave().empty());
  EXPECT_EQ(r3.leave(), (std::vector{w2.op.get()}));
  EXPECT_TRUE(w2.leave().empty());
  EXPECT_EQ(v.head, nullptr);
  EXPECT_EQ(v.tail, nullptr);
}

TEST(Dependency, AReaderJoinsReadersThatAlreadyRun) {
  Dep::Var v;
  TestOp r1({{&v, R}}), r2({{&v, R}}), r3({{&v, R}});
  r1.join();
  r2.join();
  EXPECT_TRUE(r1.leave().empty());
  EXPECT_EQ(r3.join(), Dep::Join::ready);
}

TEST(Dependency, AnOpIsReadyWhenItsLastVariableIs) {
  Dep::Var a, b;
  TestOp on_a({{&a, M}}), on_b({{&b, M}}), both({{&b, R}, {&a, R}});
  on_a.join();
  on_b.join();
  EXPECT_EQ(both.join(), Dep::Join::waiting);
  EXPECT_TRUE(on_b.leave().empty());
  EXPECT_EQ(on_a.leave(), (std::vector{both.op.get()}));
}

TEST(Dependency, NothingJoinsAfterARetireOrWithAnOldHandle) {
  Dep::Var a, b;
  TestOp last({{&a, O}}), late({{&a, R}, {&b, M}}), old({{&b, R}});
  last.op->retires = true;
  EXPECT_EQ(last.join(), Dep::Join::ready);
  EXPECT_EQ(late.join(), Dep::Join::refused);
  EXPECT_EQ(b.head, nullptr);  // refused everywhere
  ++b.generation;
  EXPECT_EQ(old.join(), Dep::Join::refused);
}

TEST(Dependency, ManyThreadsJoinAndLeaveInAnyOrder) {
  // Each op increments plain counters under exclusive access: any overlap is a race and a wrong sum.
  constexpr int vars = 5, threads = 4, rounds = 2000;
  std::vector<Dep::Var> v(vars);
  std::vector<int> count(vars);
  std::vector<int> expected(vars);
  std::mutex mutex;
  std::vector<std::unique_ptr<TestOp>> kept;
  std::vector<TestOp*> by_op;
  std::atomic<int> left{threads * rounds};
  std::mutex ready_mutex;
  std::vector<Dep::Op*> ready;
  const auto run_ready = [&] {
    std::unique_lock lock(ready_mutex);
    if (ready.empty()) return false;
    Dep::Op* op = ready.back();
    ready.pop_back();
    lock.unlock();
    for (const Dep::Access& access : op->accesses()) {
      if (access.exclusive()) ++count[static_cast<std::size_t>(access.var - v.data())];
    }
    Dep::leave(
        *op, [](Dep::Access&) {},
        [&](Dep::Op& next) {
          std::lock_guard relock(ready_mutex);
          ready.push_back(&next);
        });
    --left;
    return true;
  };
  {
    std::vector<std::jthread> pushers;
    for (int t = 0; t < threads; ++t) {
      pushers.emplace_back([&, t] {
        std::mt19937 random(7u + static_cast<unsigned>(t));
        for (int i = 0; i < rounds; ++i) {
          std::vector<std::pair<Dep::Var*, AccessKind>> wanted;
          for (int k = 0; k < 3; ++k) wanted.emplace_back(&v[random() % vars], random() % 2 ? R : M);
          auto op = std::make_unique<TestOp>(wanted);
          Dep::Op* raw = op->op.get();
          {
            std::lock_guard lock(mutex);
            for (const auto& access : op->accesses) {
              if (access.exclusive()) ++expected[static_cast<std::size_t>(access.var - v.data())];
            }
            kept.push_back(std::move(op));
          }
          if (Dep::join(*raw) == Dep::Join::ready) {
            std::lock_guard lock(ready_mutex);
            ready.push_back(raw);
          }
          run_ready();
        }
        while (left > 0) {
          if (!run_ready()) std::this_thread::yield();
        }
      });
    }
  }
  EXPECT_EQ(count, expected);
}

/// Atomics of another kind, which count what they are asked for.
struct CountedAtomics {
  static inline int locked_instructions = 0;

  template <class T>
  class Atomic {
   public:
    Atomic(T value) : value_(value) {}
    T exchange(T value, std::memory_order) { return ++locked_instructions, std::exchange(value_, value); }
    T fetch_sub(T less, std::memory_order) { return ++locked_instructions, std::exchange(value_, value_ - less); }
    void store(T value, std::memory_order) { value_ = value; }

   private:
    T value_;
  };

  template <class T>
  class Plain {
   public:
    Plain(T value) : value_(value) {}
    operator T() const { return value_; }
    T operator->() const { return value_; }
    Plain& operator++() { return ++value_, *this; }

   private:
    T value_;
  };

  static void pause(int) { FAIL() << "nobody else is here"; }
};

TEST(Dependency, TakesOneLockedInstructionAnAccessToJoinAndTwoAtMostToLeave) {
  using Counted = Dependency<CountedAtomics>;
  for (std::uint32_t n = 1; n <= 4; ++n) {
    std::vector<Counted::Var> vars(n);
    std::vector<Counted::Access> first(n), second(n);
    Counted::Op a(first.data(), n), b(second.data(), n);
    for (std::uint32_t i = 0; i < n; ++i) {
      first[i].op = &a;
      second[i].op = &b;
      first[i].var = second[i].var = &vars[i];
      first[i].kind = second[i].kind = AccessKind::mutate;
    }
    const int count = static_cast<int>(n);
    CountedAtomics::locked_instructions = 0;
    EXPECT_EQ(Counted::join(a), Counted::Join::ready);
    EXPECT_EQ(CountedAtomics::locked_instructions, count);
    EXPECT_EQ(Counted::join(b), Counted::Join::waiting);
    CountedAtomics::locked_instructions = 0;
    std::vector<Counted::Op*> ready;
    Counted::leave(
        a, [](Counted::Access&) {}, [&](Counted::Op& op) { ready.push_back(&op); });
    EXPECT_EQ(CountedAtomics::locked_instructions, 2 * count);  // a lock bit, and the successor's counter
    EXPECT_EQ(ready, (std::vector{&b}));
  }
}

}  // namespace
}  // namespace windrow
