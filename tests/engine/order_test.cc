// In which order ready ops run where the contract says it exactly: policy serial.
#include <algorithm>
#include <cstdio>
#include <random>
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

/// Looks through all that is ready each time. Where so many takes have passed over ops of lower priority, what was
/// pushed first is next.
std::vector<std::size_t> expected_order(const Tree& tree) {
  std::vector<std::size_t> ready = {0};  // in the order pushed
  std::vector<std::size_t> order;
  const auto lower = [&](std::size_t a, std::size_t b) { return tree.priorities[a] < tree.priorities[b]; };
  for (std::size_t passed_over = 0; !ready.empty();) {
    auto next = std::max_element(ready.begin(), ready.end(), lower);
    passed_over += lower(*std::min_element(ready.begin(), ready.end(), lower), *next) ? 1 : 0;
    if (passed_over >= 32 + ready.size() / 4) {
      next = ready.begin();
      passed_over = 0;
    }
    const std::size_t op = *next;
    ready.erase(next);
    order.push_back(op);
    ready.insert(ready.end(), tree.pushes[op].begin(), tree.pushes[op].end());
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

TEST(Order, ReadyOpsRunByPriorityThenInTheOrderPushedButForTheOldestNowAndThen) {
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
