#include "backend/graphs.h"

#include <algorithm>
#include <iterator>
#include <memory>

namespace windrow::cuda {

Graphs::~Graphs() {
  for (const Made& one : made_) cuda_.end_exec(one.exec);
}

void Graphs::run(CudaLane& lane, std::size_t shape, const std::function<void()>& issue) {
  if (!lane.can_capture()) return issue();
  std::size_t calls = 0;
  const std::unique_ptr<Graph, void (*)(Graph*)> graph(lane.capture(issue, &calls), cuda_.free_graph);
  if (graph == nullptr) return;
  std::lock_guard lock(mutex_);
  auto found = std::ranges::find_if(made_, [&](const Made& one) { return one.shape == shape && one.calls == calls; });
  if (found == made_.end()) found = made_.insert(made_.begin(), {shape, calls, nullptr});
  made_.splice(made_.begin(), made_, found);
  const auto drop = [&](std::list<Made>::iterator one) {
    if (one->exec != nullptr) cuda_.end_exec(one->exec);
    made_.erase(one);
  };
  if (made_.size() > most) drop(std::prev(made_.end()));
  try {
    lane.issue("graph", [&] { return cuda_.launch_graph(lane.queue(), graph.get(), &found->exec); });
  } catch (...) {
    drop(found);
    throw;
  }
}

}  // namespace windrow::cuda
