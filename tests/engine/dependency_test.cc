// The dependency queues alone: who is granted what, and when.
#include "engine/src/record/dependency.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

namespace windrow {
namespace {

struct Record;
using Dep = Dependency<StdAtomics, Record>;
struct Record : Dep::Op {};

/// An op, its accesses behind it, and who has been told of its end.
class TestOp {
 public:
  explicit TestOp(std::vector<std::pair<Dep::Var*, AccessKind>> wanted, bool retires = false)
      : memory_(sizeof(Record) + wanted.size() * sizeof(Dep::Access)), op_(::new (memory_.data()) Record) {
    const auto access_of = [&](std::size_t i) {
      Dep::Var& var = *wanted[i].first;
      return Dep::Access(var, Dep::generation(var, Dep::Joiners::one), wanted[i].second);
    };
    Dep::place(*op_, wanted.size(), access_of, retires);
  }
  TestOp(const TestOp&) = delete;

  Record& operator*() { return *op_; }
  Record* get() { return op_; }
  Dep::Join join() {
    return Dep::join(
        *op_, op_->count(), Dep::Joiners::many, [] {}, [&](Record& op) { dropped.push_back(&op); },
        [&](Dep::Var& var) -> Record& {
          fences.push_back(
              std::make_unique<TestOp>(std::vector<std::pair<Dep::Var*, AccessKind>>{{&var, AccessKind::mutate}}));
          return **fences.back();
        });
  }
  /// Returns which of the ops became ready.
  std::vector<Record*> leave() {
    std::vector<Record*> ready;
    Dep::leave(
        *op_, [](Dep::Access&) {}, [&](Record& next) { ready.push_back(&next); },
        [&](Record& op) { dropped.push_back(&op); });
    return ready;
  }

  std::vector<Record*> dropped;                 // by this op's join and leave
  std::vector<std::unique_ptr<TestOp>> fences;  // entered before it

 private:
  std::vector<std::max_align_t> memory_;  // more than enough
  Record* op_;
};

constexpr AccessKind R = AccessKind::read, M = AccessKind::mutate, O = AccessKind::overwrite, C = AccessKind::commute;

/// For ops that do not commute.
Record& no_fence(Dep::Var&) { throw std::logic_error("a fence where none is needed"); }

TEST(Dependency, ThoseThatCommuteShareAVersionWithEachOtherOnly) {
  Dep::Var v;
  TestOp w1({{&v, M}}), c1({{&v, C}}), c2({{&v, C}}), w2({{&v, M}});
  EXPECT_EQ(w1.join(), Dep::Join::ready);
  EXPECT_EQ(c1.join(), Dep::Join::waiting);
  EXPECT_EQ(c2.join(), Dep::Join::waiting);
  EXPECT_EQ(w2.join(), Dep::Join::waiting);
  EXPECT_TRUE(c1.fences.empty() && c2.fences.empty() && w2.fences.empty());
  EXPECT_EQ(w1.leave(), (std::vector{c1.get(), c2.get()}));
  EXPECT_TRUE(c2.leave().empty());
  EXPECT_EQ(c1.leave(), std::vector{w2.get()});
}

TEST(Dependency, AFenceKeepsReadsFromThoseThatCommute) {
  Dep::Var v;
  TestOp r1({{&v, R}}), c1({{&v, C}}), c2({{&v, C}}), r2({{&v, R}}), r3({{&v, R}});
  EXPECT_EQ(r1.join(), Dep::Join::ready);
  EXPECT_EQ(c1.join(), Dep::Join::waiting);
  EXPECT_EQ(c2.join(), Dep::Join::waiting);
  EXPECT_EQ(r2.join(), Dep::Join::waiting);
  EXPECT_EQ(r3.join(), Dep::Join::waiting);
  ASSERT_EQ(c1.fences.size(), 1u);
  ASSERT_EQ(r2.fences.size(), 1u);
  EXPECT_TRUE(c2.fences.empty() && r3.fences.empty());
  EXPECT_EQ(r1.leave(), std::vector{c1.fences[0]->get()});
  EXPECT_EQ(c1.fences[0]->leave(), (std::vector{c1.get(), c2.get()}));
  EXPECT_TRUE(c1.leave().empty());
  EXPECT_EQ(c2.leave(), std::vector{r2.fences[0]->get()});
  EXPECT_EQ(r2.fences[0]->leave(), (std::vector{r2.get(), r3.get()}));
}

TEST(Dependency, AFenceThatNobodyHoldsUpHoldsUpNobody) {
  Dep::Var v;
  TestOp r1({{&v, R}}), c1({{&v, C}}), r2({{&v, R}});
  EXPECT_EQ(r1.join(), Dep::Join::ready);
  r1.leave();
  EXPECT_EQ(c1.join(), Dep::Join::ready);
  EXPECT_EQ(c1.fences.size(), 1u);
  c1.leave();
  EXPECT_EQ(r2.join(), Dep::Join::ready);
}

TEST(Dependency, CanonicaliseSortsAndKeepsTheStrongerKind) {
  Dep::Var v[3];
  TestOp op({{&v[2], R}, {&v[0], O}, {&v[2], O}, {&v[1], R}, {&v[1], R}, {&v[0], O}});
  const auto accesses = (*op).accesses();
  ASSERT_EQ(accesses.size(), 3u);
  EXPECT_EQ(&accesses[0].var(), &v[0]);
  EXPECT_EQ(accesses[0].kind(), O);
  EXPECT_EQ(accesses[1].kind(), R);
  EXPECT_EQ(accesses[2].kind(), M);  // reads the old value and writes
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
  EXPECT_EQ(r2.leave(), (std::vector{w1.get()}));
  EXPECT_EQ(w1.leave(), (std::vector{r3.get(), r4.get()}));
  EXPECT_TRUE(r4.leave().empty());
  EXPECT_EQ(r3.leave(), (std::vector{w2.get()}));
  EXPECT_TRUE(w2.leave().empty());
}

TEST(Dependency, ARecordIsFreeOnceItsVersionsAreReadAndReplaced) {
  Dep::Var v;
  TestOp w1({{&v, M}}), r1({{&v, R}}), w2({{&v, M}}), r2({{&v, R}}), w3({{&v, O}});
  w1.join();
  r1.join();
  EXPECT_EQ(w1.leave(), (std::vector{r1.get()}));
  EXPECT_TRUE(w1.dropped.empty());  // it is read
  r1.leave();
  EXPECT_EQ(r1.dropped, (std::vector{r1.get()}));  // a read makes no version
  EXPECT_EQ(w2.join(), Dep::Join::ready);
  EXPECT_EQ(w2.dropped, (std::vector{w1.get()}));
  w3.join();
  EXPECT_EQ(w2.leave(), (std::vector{w3.get()}));
  EXPECT_EQ(w2.dropped, (std::vector{w1.get(), w2.get()}));
  EXPECT_EQ(r2.join(), Dep::Join::waiting);
  w3.leave();
  TestOp w4({{&v, M}});
  EXPECT_EQ(w4.join(), Dep::Join::waiting);
  EXPECT_EQ(r2.leave(), (std::vector{w4.get()}));
  EXPECT_EQ(r2.dropped, (std::vector{w3.get(), r2.get()}));
}

TEST(Dependency, ARecordOfSeveralVersionsIsFreeWithTheLast) {
  Dep::Var a, b;
  TestOp both({{&a, M}, {&b, M}}), on_a({{&a, M}}), on_b({{&b, M}});
  EXPECT_EQ(both.join(), Dep::Join::ready);
  EXPECT_TRUE(both.leave().empty());
  on_b.join();
  EXPECT_TRUE(on_b.dropped.empty());
  on_a.join();
  EXPECT_EQ(on_a.dropped, (std::vector{both.get()}));
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
  EXPECT_EQ(on_a.leave(), (std::vector{both.get()}));
}

TEST(Dependency, NothingJoinsAfterARetireAndTheNextLifeStartsAfresh) {
  Dep::Var a, b;
  TestOp writer({{&a, M}}), last({{&a, O}}, true), late({{&a, R}, {&b, M}}), old({{&a, R}});
  writer.join();
  EXPECT_EQ(last.join(), Dep::Join::waiting);
  EXPECT_EQ(late.join(), Dep::Join::refused);
  TestOp on_b({{&b, M}});
  EXPECT_EQ(on_b.join(), Dep::Join::ready);  // the other one was refused everywhere
  EXPECT_EQ(writer.leave(), (std::vector{last.get()}));
  EXPECT_TRUE(last.leave().empty());
  EXPECT_EQ(last.dropped, (std::vector{last.get()}));
  EXPECT_EQ(old.join(), Dep::Join::refused);
  Dep::revive(a, Dep::Joiners::many);
  EXPECT_EQ(old.join(), Dep::Join::refused);
  TestOp fresh({{&a, R}});
  EXPECT_EQ(fresh.join(), Dep::Join::ready);
}

TEST(Dependency, ManyThreadsJoinAndLeaveInAnyOrder) {
  // Each op increments plain counters under exclusive access: any overlap is a race and a wrong sum.
  constexpr int vars = 5, threads = 4, rounds = 2000;
  std::vector<Dep::Var> v(vars);
  std::vector<int> count(vars);
  std::vector<int> expected(vars);
  std::mutex mutex;
  std::vector<std::unique_ptr<TestOp>> kept;
  std::atomic<int> left{threads * rounds};
  std::mutex ready_mutex;
  std::vector<Record*> ready;
  std::atomic<int> dropped{0};
  const auto run_ready = [&] {
    std::unique_lock lock(ready_mutex);
    if (ready.empty()) return false;
    Record* op = ready.back();
    ready.pop_back();
    lock.unlock();
    for (const Dep::Access& access : op->accesses()) {
      if (access.exclusive()) ++count[static_cast<std::size_t>(&access.var() - v.data())];
    }
    Dep::leave(
        *op, [](Dep::Access&) {},
        [&](Record& next) {
          std::lock_guard relock(ready_mutex);
          ready.push_back(&next);
        },
        [&](Record&) { ++dropped; });
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
          Record* raw = op->get();
          {
            std::lock_guard lock(mutex);
            for (const auto& access : raw->accesses()) {
              if (access.exclusive()) ++expected[static_cast<std::size_t>(&access.var() - v.data())];
            }
            kept.push_back(std::move(op));
          }
          if (Dep::join(
                  *raw, raw->count(), Dep::Joiners::many, [] {}, [&](Record&) { ++dropped; }, no_fence) ==
              Dep::Join::ready) {
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
  EXPECT_LE(dropped, threads * rounds);
  EXPECT_GE(dropped, threads * rounds - vars);  // the last version of each variable stays
}

/// Atomics of another kind, which count what they are asked for.
struct CountedAtomics {
  static inline int locked_instructions = 0;

  template <class T>
  class Atomic {
   public:
    Atomic(T value) : value_(value) {}
    T load(std::memory_order) const { return value_; }
    void store(T value, std::memory_order) { value_ = value; }
    T exchange(T value, std::memory_order) { return ++locked_instructions, std::exchange(value_, value); }
    T fetch_add(T more, std::memory_order) { return ++locked_instructions, std::exchange(value_, value_ + more); }
    T fetch_sub(T less, std::memory_order) { return ++locked_instructions, std::exchange(value_, value_ - less); }
    bool compare_exchange_strong(T& expected, T value, std::memory_order, std::memory_order) {
      ++locked_instructions;
      if (value_ != expected) return expected = value_, false;
      return value_ = value, true;
    }

   private:
    T value_;
  };

  template <class T>
  using Plain = T;
  template <class T>
  using Seen = T;

  static void pause(int) { FAIL() << "nobody else is here"; }
  static void prefetch_to_write(const void*) {}
};

struct CountedRecord;
using Counted = Dependency<CountedAtomics, CountedRecord>;
struct CountedRecord : Counted::Op {};

/// Locked instructions to join, and to leave, for the second op of two with these accesses.
struct Costs {
  int join = 0, leave = 0;
};
Costs costs(std::uint32_t reads, std::uint32_t writes, Counted::Joiners joiners) {
  struct Made {
    CountedRecord op;
    Counted::Access room[8];
  };
  std::vector<Counted::Var> vars(reads + writes);
  const auto made = std::make_unique<std::array<Made, 3>>();
  const auto drop = [](CountedRecord&) {};
  Costs cost;
  for (Made& each : *made) {
    Counted::place(each.op, vars.size(), [&](std::size_t i) {
      return Counted::Access(vars[i], 0, i < reads ? AccessKind::read : AccessKind::mutate);
    });
    CountedAtomics::locked_instructions = 0;
    Counted::join(
        each.op, vars.size(), joiners, [] {}, drop,
        [](Counted::Var&) -> CountedRecord& { throw std::logic_error("no fence is needed"); });
    cost.join = CountedAtomics::locked_instructions;
  }
  for (Made& each : *made) {
    CountedAtomics::locked_instructions = 0;
    Counted::leave(
        each.op, [](Counted::Access&) {}, [](CountedRecord&) {}, drop);
    if (&each == &(*made)[1]) cost.leave = CountedAtomics::locked_instructions;
  }
  return cost;
}

TEST(Dependency, TakesFewLockedInstructions) {
  constexpr auto one = Counted::Joiners::one, many = Counted::Joiners::many;
  // A chain of exclusive accesses hands over without any; to enter takes one an access, and a lock bit if need be.
  EXPECT_EQ(costs(0, 1, one).join, 1);
  EXPECT_EQ(costs(0, 1, one).leave, 0);
  EXPECT_EQ(costs(0, 1, many).join, 2);
  // Of several accesses the op's counter takes one more, to join and for each grant.
  EXPECT_EQ(costs(0, 2, one).join, 3);
  EXPECT_EQ(costs(0, 2, one).leave, 4);  // two grants, two versions ended
  // Reads that are granted at once join for nothing, and are counted when they leave.
  EXPECT_EQ(costs(3, 0, one).join, 0);
  EXPECT_EQ(costs(3, 0, one).leave, 3);
}

}  // namespace
}  // namespace windrow
