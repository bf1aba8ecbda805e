// oneTBB's task_group. It knows no dependencies: the caller tracks, for each cell, the last writer and the readers
// since, and a finished task starts those that waited for it only.
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/spin_mutex.h>
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include <atomic>

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
  /// Predecessors that are not done, and one for the caller until it has named them all.
  std::atomic<int> pending{1};
  tbb::spin_mutex mutex;  // guards what follows
  Edge* successors = nullptr;
  bool done = false;
};

/// What the caller knows of a cell.
struct Cell {
  Node* writer = nullptr;
  std::vector<Node*> readers;
};

class TbbSystem : public System {
 public:
  TbbSystem(const Pattern& pattern, int workers)
      : limit_(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(workers) + 1),
        arena_(workers + 1),
        cells_(static_cast<std::size_t>(pattern.cells)) {}
  ~TbbSystem() noexcept override {}  // the group's might throw, but it was waited for

  Times run(const Job& job) override {
    std::vector<Node> nodes(static_cast<std::size_t>(job.ops));
    // From each writer of 3 cells that it reads, to each next writer of these, and from the last writer of its own.
    std::vector<Edge> edges(7 * static_cast<std::size_t>(job.ops));
    Node* node = nodes.data();
    edge_ = edges.data();
    for (Cell& cell : cells_) cell = {};
    Times times;
    arena_.execute([&] {
      times = time_pushes(
          job, [&](std::size_t, const Task& task) { push(*node++, job.work(task), task); }, [&] { group_.wait(); });
    });
    return times;
  }

 private:
  void push(Node& node, Work work, const Task& task) {
    node.work = work;
    for (int k = 0; k < task.read_count; ++k) {
      Cell& cell = cells_[static_cast<std::size_t>(task.reads[static_cast<std::size_t>(k)])];
      if (cell.writer != nullptr) add_edge(*cell.writer, node);
      cell.readers.push_back(&node);
    }
    if (task.mutates != Task::none) {
      Cell& cell = cells_[static_cast<std::size_t>(task.mutates)];
      for (Node* reader : cell.readers) add_edge(*reader, node);
      if (cell.readers.empty() && cell.writer != nullptr) add_edge(*cell.writer, node);
      cell.readers.clear();
      cell.writer = &node;
    }
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

  /// Runs the node, and one of those that it makes ready, and so on; starts the others.
  void run_on(Node& first) {
    for (Node* node = &first; node != nullptr;) {
      node->work();
      Edge* edge = nullptr;
      {
        const tbb::spin_mutex::scoped_lock lock(node->mutex);
        node->done = true;
        edge = node->successors;
      }
      node = nullptr;
      for (; edge != nullptr; edge = edge->next) {
        if (edge->to->pending.fetch_sub(1) != 1) continue;
        if (node != nullptr) start(*node);
        node = edge->to;
      }
    }
  }

  tbb::global_control limit_;
  tbb::task_arena arena_;
  tbb::task_group group_;
  std::vector<Cell> cells_;
  Edge* edge_ = nullptr;  // the next free one
};

}  // namespace

std::unique_ptr<System> make_tbb(const Pattern& pattern, int workers) {
  return std::make_unique<TbbSystem>(pattern, workers);
}

}  // namespace windrow::perf
