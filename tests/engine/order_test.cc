// In which order ready ops run where the contract says it exactly: policy serial.
#include <cstdio>
#include <queue>
#include <random>
#include <tuple>
#include <vector>

#include "tests/engine/support.h"

namespace windrow::testing {
namespace {

/// Ops without accesses, each of which may push others when it runs.
struct Tree {
  std::vector<int> priorities;
  std::vector<std::vector<std::size_t>> pushes;
};

Tree random_tree(std::uint64_t seed, std::size_t ops) {
  std::mt19937_64 random(seed);
  Tree tree{std::vector<int>(ops), std::vector<std::vector<std::size_t>>(ops)};
  for (std::size_t op = 1; op < ops; ++op) {
    tree.priorities[op] = static_cast<int>(random() % 9) - 4;
    tree.pushes[random() % 4 == 0 ? random() % op : 0].push_back(op);
  }
  return tree;
}

std::vector<std::size_t> expected_order(const Tree& tree) {
  using Entry = std::tuple<int, std::int64_t, std::size_t>;  // priority, then the earlier push, then which op
  std::priority_queue<Entry> ready;
  std::vector<std::size_t> order;
  std::int64_t pushed = 0;
  for (ready.emplace(0, pushed, 0); !ready.empty();) {
    const std::size_t op = std::get<2>(ready.top());
    ready.pop();
    order.push_back(op);
    for (const std::size_t next : tree.pushes[op]) ready.emplace(tree.priorities[next], -++pushed, next);
  }
  return order;
}

void push(Engine& engine, const Tree& tree, std::size_t op, std::vector<std::size_t>& order) {
  engine.push(
      [&, op] {
        order.push_back(op);
        for (const std::size_t next : tree.pushes[op]) push(engine, tree, next, order);
      },
      {}, {.priority = tree.priorities[op]});
}

TEST(Order, ReadyOpsRunByPriorityThenInTheOrderPushed) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    const Tree tree = random_tree(seed, 50 * seed);
    std::vector<std::size_t> order;
    Engine engine({.policy = Policy::serial});
    push(engine, tree, 0, order);
    engine.wait_all();
    ASSERT_EQ(order, expected_order(tree));
  }
}

}  // namespace
}  // namespace windrow::testing
