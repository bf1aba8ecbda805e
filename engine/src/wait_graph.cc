#include "wait_graph.h"

#include <deque>
#include <mutex>
#include <unordered_set>

namespace windrow {
namespace {

OpRecord& record_of(const Dep::Access& access) { return static_cast<OpRecord&>(*access.op); }

std::string label_of(const OpRecord& op) {
  const std::string name = op.is_wait() ? "a wait" : "op '" + std::string(op.info.name) + "'";
  return name + " (" + op.info.pushed_at.file_name() + ":" + std::to_string(op.info.pushed_at.line()) + ")";
}

}  // namespace

WaitGraph::Node WaitGraph::snapshot(OpRecord& op) {
  const auto accesses = op.accesses();
  return {op.id, label_of(op), {accesses.begin(), accesses.end()}};
}

void WaitGraph::enter(const OpRecord& waiting, OpRecord& wait) {
  MutexLock lock(mutex_);
  waits_.insert_or_assign(waiting.id, snapshot(wait));
}

void WaitGraph::leave(const OpRecord& waiting) {
  MutexLock lock(mutex_);
  waits_.erase(waiting.id);
}

std::vector<WaitGraph::Node> WaitGraph::blockers(const Node& node) {
  std::vector<Node> result;
  for (const Dep::Access& wanted : node.accesses) {
    std::lock_guard lock(wanted.var->lock);
    // Ops in a queue are alive as long as its lock bit is held.
    std::vector<Node> ahead;
    for (const Dep::Access* access = wanted.var->head; access != nullptr; access = access->next) {
      if (record_of(*access).id == node.id) {
        result.insert(result.end(), ahead.begin(), ahead.end());
        break;
      }
      if (access->exclusive() || wanted.exclusive()) ahead.push_back(snapshot(record_of(*access)));
    }
  }
  return result;
}

std::string WaitGraph::find_ring(const OpRecord& waiting) const {
  struct Step {
    Node node;
    std::string path;
  };
  std::unordered_set<OpId> seen;
  std::deque<Step> open;
  const auto follow_wait = [&](const Node& node, const std::string& path) {
    MutexLock lock(mutex_);
    const auto wait = waits_.find(node.id);
    if (wait != waits_.end()) open.push_back({wait->second, path + " waits inside"});
  };
  const Node start{waiting.id, label_of(waiting), {}};
  follow_wait(start, start.label);
  while (!open.empty()) {
    const Step step = std::move(open.front());
    open.pop_front();
    for (Node& next : blockers(step.node)) {
      const std::string path = step.path + " for " + next.label;
      if (next.id == waiting.id) return path;
      if (!seen.insert(next.id).second) continue;
      follow_wait(next, path);
      open.push_back({std::move(next), path + " which is queued behind"});
    }
  }
  return {};
}

}  // namespace windrow
