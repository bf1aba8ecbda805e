// The shipped dependency header under every interleaving of small programs, by Relacy.
//
//   interleavings                         all programs: 0 if the checker finds nothing
//   interleavings --longest               the one that takes many minutes
//   interleavings --broken WHAT           0 if the checker objects. WHAT is acquire: loads and locks do not acquire;
//                                         order: ops that lock in opposite orders; early: a version that is let go
//                                         while one of its reads has not left
#include <cstddef>
#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

#include "engine/src/record/dependency.h"

namespace {
constexpr std::memory_order acquire = std::memory_order_acquire, release = std::memory_order_release,
                            acq_rel = std::memory_order_acq_rel, relaxed = std::memory_order_relaxed;
}  // namespace

// Relacy makes macros of new, delete and the names of the memory orders, so it comes last.
#include <relacy/relacy.hpp>

namespace {

using windrow::AccessKind;

enum class Broken { nothing, acquire, order, early };

template <Broken broken>
struct CheckedAtomics {
  static rl::memory_order order(std::memory_order order) {
    if (order == acquire) return broken == Broken::acquire ? rl::mo_relaxed : rl::mo_acquire;
    if (order == release) return rl::mo_release;
    if (order == acq_rel) return rl::mo_acq_rel;
    return order == relaxed ? rl::mo_relaxed : rl::mo_seq_cst;
  }

  template <class T>
  class Atomic {
   public:
    Atomic(T value) : value_(value) {}
    T load(std::memory_order o) const { return value_($).load(order(o)); }
    T exchange(T value, std::memory_order o) { return value_($).exchange(value, order(o)); }
    T fetch_add(T more, std::memory_order o) { return value_($).fetch_add(more, order(o)); }
    T fetch_sub(T less, std::memory_order o) {
      if (broken == Broken::early && sizeof(T) == sizeof(void*)) less -= 2;  // one read too few to wait for
      return value_($).fetch_sub(less, order(o));
    }
    bool compare_exchange_strong(T& expected, T value, std::memory_order o, std::memory_order failed) {
      return value_($).compare_exchange_strong(expected, value, order(o), order(failed));
    }
    void store(T value, std::memory_order o) { value_($).store(value, order(o)); }

   private:
    mutable rl::atomic<T> value_;
  };

  template <class T>
  class Plain {
   public:
    Plain(T value) : value_(value) {}
    operator T() const { return value_($).load(); }
    T operator->() const { return value_($).load(); }
    Plain& operator=(T value) { return value_($).store(value), *this; }

   private:
    mutable rl::var<T> value_;
  };

  template <class T>
  using Seen = Plain<T>;

  static void pause(int) { rl::yield(1, $); }
  static void prefetch_to_write(const void*) {}
};

/// One access of an op of the program.
struct Wanted {
  int var;
  AccessKind kind;
};
struct Pushed {
  std::vector<Wanted> accesses;  // each variable at most once, in address order
  bool retires = false;
  /// The thread's ops, of one access each, enter at one instant and leave one by one.
  bool at_once = false;
  /// Before the threads begin, an op has commuted at its first variable.
  bool behind_commuting = false;
};
/// For each thread what it pushes.
using Program = std::vector<std::vector<Pushed>>;

/// Each thread pushes its ops and runs what becomes ready by its hand. An op with exclusive access writes its
/// variables' data and a reader reads it: the checker reports a race, and `after` whatever neither ran nor was refused,
/// and reads that entered at one instant but saw different numbers of writes.
/// Relacy takes over new and delete, so nothing here allocates.
template <Broken broken, int threads, int vars, const Program& program>
struct Check : rl::test_suite<Check<broken, threads, vars, program>, threads> {
  /// What place() would mend: one of the ops, as it was sorted, the other one not.
  static constexpr bool opposite = broken == Broken::order;
  struct Record;
  using Dep = windrow::Dependency<CheckedAtomics<broken>, Record>;
  static constexpr int most_ops = 2, most_accesses = 2, most_fences = 2;

  struct Record : Dep::Op {};
  struct Op {
    Record record;
    alignas(typename Dep::Access) std::byte room[most_accesses * sizeof(typename Dep::Access)];  // for the accesses
    bool pushed = false, is_fence = false;
    int drops = 0;
    int seen = 0;  // of its last variable's data
  };
  static_assert(offsetof(Op, room) == sizeof(Record));

  typename Dep::Var queue[vars];
  rl::var<int> data[vars];
  rl::atomic<int> ran{0}, refused{0};
  Op ops[threads][most_ops];
  Op fences[threads][most_fences];
  Op commuted[threads];

  void before() {
    for (int v = 0; v < vars; ++v) data[v]($) = 0;
    for (int t = 0; t < threads; ++t) {
      for (std::size_t i = 0; i < program[t].size(); ++i) {
        const std::vector<Wanted>& wanted = program[t][i].accesses;
        Op& made = ops[t][i];
        made.pushed = true;
        Dep::place(
            made.record, wanted.size(),
            [&](std::size_t k) { return typename Dep::Access(queue[wanted[k].var], 0, wanted[k].kind); },
            program[t][i].retires);
        if (program[t][i].behind_commuting) commute_at(queue[wanted[0].var], commuted[t]);
        if (opposite && t == 1) std::swap(made.record.accesses()[0], made.record.accesses()[1]);
      }
    }
  }

  static void commute_at(typename Dep::Var& var, Op& op) {
    op.pushed = true;
    Dep::place(op.record, std::size_t{1},
               [&](std::size_t) { return typename Dep::Access(var, 0, AccessKind::commute); });
    const auto nobody = [](Record&) {};
    const auto no_fence = [&](typename Dep::Var&) -> Record& { return op.record; };
    Dep::join(
        op.record, std::size_t{1}, Dep::Joiners::many, [] {}, nobody, no_fence);
    Dep::leave(
        op.record, [](auto&) {}, nobody, nobody);
  }

  void thread(unsigned index) {
    Op* fence = fences[index];
    const auto make_fence = [&](typename Dep::Var& var) -> Record& {
      fence->pushed = fence->is_fence = true;
      Dep::place(fence->record, std::size_t{1},
                 [&](std::size_t) { return typename Dep::Access(var, 0, AccessKind::mutate); });
      return (fence++)->record;
    };
    if (program[index][0].at_once) return enter_at_once(ops[index], make_fence);
    for (Op& op : ops[index]) {
      if (!op.pushed) continue;
      const auto joined = Dep::join(
          op.record, op.record.count(), Dep::Joiners::many, [] {}, drop, make_fence);
      if (joined == Dep::Join::ready) run(op.record);
      if (joined == Dep::Join::refused) {
        ran($).fetch_add(1, rl::mo_relaxed);
        refused($).fetch_add(1, rl::mo_relaxed);
      }
    }
  }

  template <class MakeFence>
  void enter_at_once(Op (&of_thread)[most_ops], const MakeFence& make_fence) {
    Record* const entering[] = {&of_thread[0].record, &of_thread[1].record};
    Record* ready[most_ops];
    int count = 0;
    const auto keep = [&](Record& op) { ready[count++] = &op; };
    const bool joined = Dep::join_each(
        std::span<Record* const>(entering), Dep::Joiners::many, [](Record&, std::uint32_t) {}, keep, drop, make_fence);
    RL_ASSERT(joined);
    for (int i = 0; i < count; ++i) run(*ready[i]);
  }

  void run(Record& first) {
    Record* ready[threads * (most_ops + most_fences)] = {&first};
    int count = 1;
    while (count > 0) {
      Record& op = *ready[--count];
      if (!reinterpret_cast<Op&>(op).is_fence) touch(op);
      Dep::leave(
          op, [](auto&) {}, [&](Record& next) { ready[count++] = &next; }, drop);
    }
  }

  void touch(Record& op) {
    for (auto& access : op.accesses()) {
      rl::var<int>& cell = data[&access.var() - queue];
      const int seen = cell($);
      reinterpret_cast<Op&>(op).seen = seen;
      if (access.writes()) cell($) = seen + 1;
    }
    ran($).fetch_add(1, rl::mo_relaxed);
  }

  /// The record may be used again: whoever still looks at it races with this.
  static void drop(Record& record) {
    for (auto& access : record.accesses()) access = typename Dep::Access();
    ++reinterpret_cast<Op&>(record).drops;
  }

  void after() {
    int pushed = 0, dropped = 0;
    for (const auto& of_thread : program) pushed += static_cast<int>(of_thread.size());
    RL_ASSERT(ran($).load(rl::mo_relaxed) == pushed);
    for (auto& of_thread : ops) {
      for (Op& op : of_thread) {
        RL_ASSERT(op.drops <= 1);
        dropped += op.drops;
        end(op);
      }
    }
    for (int t = 0; t < threads; ++t) {
      const bool both_read = program[t][0].at_once && program[t][0].accesses[0].kind == AccessKind::read;
      RL_ASSERT(!both_read || ops[t][0].seen == ops[t][1].seen);
    }
    for (auto& of_thread : fences) {
      for (Op& fence : of_thread) {
        RL_ASSERT(fence.drops <= 1);
        end(fence);
      }
    }
    for (Op& op : commuted) end(op);
    RL_ASSERT(dropped + refused($).load(rl::mo_relaxed) >= pushed - vars);
  }

  static void end(Op& op) {
    if (op.pushed) std::destroy(op.record.accesses().begin(), op.record.accesses().end());
  }
};

constexpr AccessKind R = AccessKind::read, M = AccessKind::mutate, O = AccessKind::overwrite, C = AccessKind::commute;

const Program two_writers = {{{{{0, M}, {1, M}}}}, {{{{0, M}, {1, M}}}}};
const Program pair = {{{{{0, M}, {1, M}}}}, {{{{0, M}}}, {{{1, M}}}}};
const Program crossed = {{{{{0, R}, {1, M}}}}, {{{{0, M}, {1, R}}}}};
const Program shared_reads = {{{{{0, R}}}, {{{0, M}}}}, {{{{0, R}}}}};
const Program retire = {{{{{0, M}}}}, {{{{0, O}}, true}, {{{0, R}}}}};
const Program ring = {{{{{0, M}, {1, R}}}}, {{{{1, M}, {2, R}}}}, {{{{0, R}, {2, M}}}}};
const Program readers_first = {{{{{0, R}}}}, {{{{0, R}}}}, {{{{0, M}}}}};
const Program fenced = {{{{{0, C}}}, {{{0, R}}}}, {{{{0, R}}}}};
const Program commute_and_write = {{{{{0, R}}}, {{{0, C}}}}, {{{{0, M}}}}};

const Program wait_and_write = {{{{{0, R}}, false, true}, {{{1, R}}}}, {{{{0, M}, {1, M}}}}};
const Program gates_and_write = {{{{{0, R}}, false, true}, {{{0, M}}}}, {{{{0, M}}}}};
const Program gates_and_commute = {{{{{0, M}}, false, true}, {{{0, R}}}}, {{{{0, C}}, false, false, true}}};
const Program wait_and_commute = {{{{{0, R}}, false, true}, {{{1, R}}}}, {{{{0, C}, {1, C}}}}};

/// Of a broken program the history is of no interest.
enum class Expect { holds, breaks };

template <class Suite>
bool holds(const char* name, rl::scheduler_type_e type, Expect expect = Expect::holds, int switches = 3) {
  std::ostream nowhere(nullptr);
  rl::test_params params;
  params.search_type = type;
  params.context_bound = static_cast<rl::iteration_t>(switches);
  params.execution_depth_limit = 2000;
  params.progress_stream = &nowhere;
  if (expect == Expect::breaks) params.output_stream = &nowhere;
  const bool held = rl::simulate<Suite>(params);
  std::printf("%s: %s after %llu runs\n", name, held ? "holds" : rl::test_result_str(params.test_result),
              static_cast<unsigned long long>(params.stop_iteration));
  return held;
}

/// In all interleavings, or in those of so many switches between threads.
template <int threads, int vars, const Program& program>
bool holds_in(const char* name, int switches = 0) {
  const std::string of = name + (switches == 0 ? std::string() : ", " + std::to_string(switches) + " switches");
  return holds<Check<Broken::nothing, threads, vars, program>>(
      of.c_str(), switches == 0 ? rl::sched_full : rl::sched_bound, Expect::holds, switches);
}

/// Longer than tests should take.
bool check_longest() {
  return holds_in<2, 2, crossed>("two that read what the other writes") &&
         holds_in<2, 2, two_writers>("two writers of two variables") &&
         holds_in<2, 1, gates_and_commute>("a write and a read at one instant, and one that commutes");
}

bool check_all() {
  return holds_in<2, 2, crossed>("two that read what the other writes", 8) &&
         holds_in<2, 1, shared_reads>("two readers and a writer") && holds_in<2, 1, retire>("a retire among pushes") &&
         holds_in<2, 1, gates_and_write>("a read and a write at one instant, and a writer") &&
         holds_in<2, 2, wait_and_write>("two reads at one instant, and a writer of both", 6) &&
         holds_in<2, 2, wait_and_commute>("two reads at one instant, and one that commutes at both", 6) &&
         holds_in<2, 1, gates_and_commute>("a write and a read at one instant, and one that commutes", 4) &&
         holds_in<2, 1, fenced>("one that commutes between readers", 6) &&
         holds_in<2, 1, commute_and_write>("one that commutes behind a reader, and a writer", 6) &&
         holds_in<2, 2, two_writers>("two writers of two variables", 5) &&
         holds_in<2, 2, pair>("one of two variables, two of one", 5) &&
         holds_in<3, 1, readers_first>("two readers and a writer", 3) &&
         holds_in<3, 3, ring>("three threads around three variables", 3);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string broken = argc == 3 && std::string(argv[1]) == "--broken" ? argv[2] : "";
  if (argc == 1) return check_all() ? 0 : 1;
  if (argc == 2 && std::string(argv[1]) == "--longest") return check_longest() ? 0 : 1;
  if (broken == "acquire")
    return holds<Check<Broken::acquire, 2, 2, two_writers>>("no acquire", rl::sched_full, Expect::breaks) ? 1 : 0;
  if (broken == "order")
    return holds<Check<Broken::order, 2, 2, two_writers>>("opposite orders", rl::sched_bound, Expect::breaks) ? 1 : 0;
  if (broken == "early")
    return holds<Check<Broken::early, 3, 1, readers_first>>("early release", rl::sched_bound, Expect::breaks) ? 1 : 0;
  std::fprintf(stderr,
               "interleavings: expected no argument, --longest, --broken acquire, --broken order or --broken early\n");
  return 2;
}
