// oneTBB's flow graph of continue_nodes, built once and run repeatedly.
#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>

#include <deque>

#include "graph.h"
#include "systems.h"

namespace windrow::perf {
namespace {

namespace flow = tbb::flow;
using Node = flow::continue_node<flow::continue_msg>;

class FlowGraph {
 public:
  FlowGraph(const Pattern& pattern, std::int64_t length, const Work* work) {
    Hazards<Node*> hazards(pattern);
    for (std::int64_t i = 0; i < length; ++i) {
      const std::size_t number = static_cast<std::size_t>(i) % pattern.tasks.size();
      const Task& task = pattern.tasks[number];
      Node& node = nodes_.emplace_back(graph_, [one = work + number](const flow::continue_msg&) { (*one)(); });
      bool first = true;
      hazards.precede(task, [&](Node* before) {
        flow::make_edge(*before, node);
        first = false;
      });
      if (first) firsts_.push_back(&node);
      hazards.enter(task, &node);
    }
  }

  void run(std::int64_t times) {
    for (; times > 0; --times) {
      for (Node* first : firsts_) first->try_put({});
      graph_.wait_for_all();
    }
  }

 private:
  flow::graph graph_;
  std::deque<Node> nodes_;  // a deque, because nodes must not move
  std::vector<Node*> firsts_;
};

class TbbGraphSystem : public System {
 public:
  TbbGraphSystem(const Pattern& pattern, const SystemOptions& options)
      : limit_(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(options.workers) + 1),
        arena_(options.workers + 1),
        replayed_(pattern) {}

  Times run(const Job& job) override {
    Times times;
    arena_.execute([&] {
      times = replayed_.run(
          job, [&](std::int64_t length) { return std::make_unique<FlowGraph>(job.pattern, length, replayed_.work()); });
    });
    return times;
  }

 private:
  tbb::global_control limit_;
  tbb::task_arena arena_;
  Replayed<FlowGraph> replayed_;
};

}  // namespace

const SystemKind tbb_graph_system = {
    .name = "tbb-graph", .make = make<TbbGraphSystem>, .takes = SystemKind::Takes::replayed_patterns};

}  // namespace windrow::perf
