#include <algorithm>
#include <map>

#include "ir/passes.h"

namespace windrow::ir {
namespace {

/// Finds the nodes that outputs, losses and gradients depend on.
class Needs {
 public:
  explicit Needs(const Program& program) : needed_(program.nodes.size(), 0) {
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      if (node.code == Code::scatter || node.code == Code::send || node.code == Code::send_product) {
        links_[{node.code, node.number}].push_back(static_cast<Value>(i));
      }
      if (node.code == Code::gradient) need(static_cast<Value>(i));
    }
    for (const auto& values : program.losses) need(values);
    for (const auto& values : program.pushes) need(values);
    for (const Program::Rows& rows : program.rows) need(rows.rows);
    while (!open_.empty()) {
      const Node& node = program.nodes[at(open_.back())];
      open_.pop_back();
      need(node.in);
      // A gathered state must be scattered by another vertex; an incoming gradient must be sent by a consumer.
      if (node.code == Code::gather || node.reads_in_place()) need(links_[{Code::scatter, node.number}]);
      if (node.code == Code::incoming) need(links_[{Code::send, node.number}]);
      if (node.code == Code::incoming_products) need(links_[{Code::send_product, node.number}]);
    }
  }
  bool operator()(Value value) const { return needed_[at(value)] != 0; }

 private:
  void need(const std::vector<Value>& values) {
    for (Value value : values) need(value);
  }
  void need(Value value) {
    if (value == no_value || needed_[at(value)]) return;
    needed_[at(value)] = 1;
    open_.push_back(value);
  }

  std::vector<char> needed_;
  std::vector<Value> open_;
  std::map<std::pair<Code, std::size_t>, std::vector<Value>> links_;
};

}  // namespace

void drop_unneeded(Program& program) {
  const Needs needed(program);
  std::vector<Value> moved(program.nodes.size(), no_value);
  std::vector<Node> kept;
  const auto move = [&](Value& value) { value = value == no_value ? no_value : moved[at(value)]; };
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    if (!needed(static_cast<Value>(i))) continue;
    Node& node = kept.emplace_back(std::move(program.nodes[i]));
    std::for_each(node.in.begin(), node.in.end(), move);
    moved[i] = static_cast<Value>(kept.size()) - 1;
  }
  program.nodes = std::move(kept);
  for (auto& values : program.losses) std::for_each(values.begin(), values.end(), move);
  for (auto& values : program.pushes) std::for_each(values.begin(), values.end(), move);
  for (Program::Rows& rows : program.rows) move(rows.rows);
}

}  // namespace windrow::ir
