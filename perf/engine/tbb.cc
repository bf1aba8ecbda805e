// oneTBB's task_group. It has no dependencies, so the caller tracks hazards, and a finished task starts the tasks that
// were waiting only for it.
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/spin_mutex.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include <atomic>

#include "hazards.h"
#include "systems.h"

namespace windrow::perf {
namespace {

struct Node;

struct Edge {
  Node* to;
  Edge* next;
};

struct Node {
  Work work;
  /// The number of unfinished predecessors, plus one until the caller has added all of them.
  std::atomic<int> pending{1};
  tbb::spin_mutex mutex;  // guards the members below
  Edge* successors = nullptr;
  bool done = false;
};

class TbbSystem : public System {
 public:
  TbbSystem(const Pattern& pattern, const SystemOptions& options)
      : limit_(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(options.workers) + 1),
        arena_(options.workers + 1),
        hazards_(pattern) {}
  ~TbbSystem() noexcept override {}  // ~task_group might throw, but the group was waited for

  Times run(const Job& job) override {
    std::vector<Node> nodes(static_cast<std::size_t>(job.ops));
    // An op has up to 7 edges: from the writer of each of the 3 cells that it reads, to the next writer of each of
    // these cells, and from the last writer of its own cell.
    const auto edges = std::make_unique_for_overwrite<Edge[]>(7 * static_cast<std::size_t>(job.ops));
    Node* node = nodes.data();
    edge_ = edges.get();
    hazards_.forget();
    Node gate{.work = {job.counters, 0}};
    if (job.held) hazards_.enter_everywhere(&gate);
    Times times;
    arena_.execute([&] {
      times = time_pushes(
          job, [&](std::size_t, const Task& task) { push(*node++, job.work(task), task); },
          [&] {
            if (Node* first = job.held ? finish(gate) : nullptr) start(*first);
            group_.wait();
          });
    });
    return times;
  }

 private:
  void push(Node& node, Work work, const Task& task) {
    node.work = work;
    hazards_.precede(task, [&](Node* before) { add_edge(*before, node); });
    hazards_.enter(task, &node);
    if (node.pending.fetch_sub(1) == 1) start(node);
  }

  void add_edge(Node& from, Node& to) {
    const tbb::spin_mutex::scoped_lock lock(from.mutex);
    if (from.done) return;
    to.pending.fetch_add(1, std::memory_order_relaxed);
    *edge_ = {&to, from.successors};
    from.successors = edge_++;
  }

  void start(Node& node) {
    group_.run([this, &node] { run_on(node); });
  }

  /// Runs the node, then one of the nodes that it makes ready, and so on. Starts the other ready nodes.
  void run_on(Node& first) {
    for (Node* node = &first; node != nullptr;) {
      node->work();
      node = finish(*node);
    }
  }

  /// Marks the node as done. Returns one of the nodes that this makes ready, or null, and starts the others.
  Node* finish(Node& node) {
    Edge* edge = nullptr;
    {
      const tbb::spin_mutex::scoped_lock lock(node.mutex);
      node.done = true;
      edge = node.successors;
    }
    Node* next = nullptr;
    for (; edge != nullptr; edge = edge->next) {
      if (edge->to->pending.fetch_sub(1) != 1) continue;
      if (next != nullptr) start(*next);
      next = edge->to;
    }
    return next;
  }

  tbb::global_control limit_;
  tbb::task_arena arena_;
  tbb::task_group group_;
  Hazards<Node*> hazards_;
  Edge* edge_ = nullptr;  // the next free edge
};

}  // namespace

const SystemKind tbb_system = {.name = "tbb", .make = make<TbbSystem>, .holds = SystemKind::Holds::a_backlog};

}  // namespace windrow::perf
