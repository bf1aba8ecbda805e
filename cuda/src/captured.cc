#include <utility>

#include "lane.h"

namespace windrow::cuda {
namespace {

/// A graph of one lane.
class CapturedGraph final : public CapturedWork {
 public:
  CapturedGraph(CudaLane& lane, const Plugin& cuda, Graph* graph) : lane_(lane), cuda_(cuda), graph_(graph) {}
  ~CapturedGraph() override {
    free_graph();
    if (exec_ != nullptr) cuda_.end_exec(exec_);
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  void issue() override {
    lane_.issue("graph", [&] { return cuda_.launch_graph(lane_.queue(), graph_, &exec_); });
    free_graph();
  }

 private:
  void free_graph() {
    if (graph_ != nullptr) cuda_.free_graph(std::exchange(graph_, nullptr));
  }

  CudaLane& lane_;  // used by its ops alone
  const Plugin& cuda_;
  Graph* graph_;  // null once `exec_` is made of it
  GraphExec* exec_ = nullptr;
};

}  // namespace

std::unique_ptr<CapturedWork> CudaLane::capture_work(const std::function<void()>& work) {
  if (!can_capture()) return nullptr;
  std::size_t calls = 0;
  std::unique_ptr<Graph, void (*)(Graph*)> graph(capture(work, &calls), cuda_.free_graph);
  if (graph == nullptr) return nullptr;
  auto made = std::make_unique<CapturedGraph>(*this, cuda_, graph.get());
  graph.release();
  return made;
}

}  // namespace windrow::cuda
