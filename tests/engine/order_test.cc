// In which order ready ops run where the contract says it exactly: policy serial.
#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

#include "tests/engine/support.h"

namespace windrow::testing {
namespace {

/// Ops without accesses, each of which may push others when it runs.
struct OpTree {
  std::vector<int> priorities;
  std::vector<std::vector<std::size_t>> pushes;
};

OpTree random_tree(std::uint64_t seed, std::size_t ops) {
  std::mt19937_64 random(seed);
  OpTree tree{std::vector<int>(ops), std::vector<std::vector<std::size_t>>(ops)};
  for (std::size_t op = 1; op < ops; ++op) {
    tree.priorities[op] = static_cast<int>(random() % 9) - 4;
    tree.pushes[random() % 4 == 0 ? random() % op : 0].push_back(op);
  }
  return tree;
}

/// Looks through all that is ready each time. Where so many takes have passed over ops of lower priority, what was
/// pushed first is next.
std::vector<std::size_t> expected_order(const OpTree& tree) {
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

void push(Engine& engine, const OpTree& tree, std::size_t op, std::vector<std::size_t>& order) {
  engine.push(
      [&, op] {
        order.push_back(op);
        for (const std::size_t next : tree.pushes[op]) push(engine, tree, next, order);
      },
      {}, {.priority = tree.priorities[op]});
}

void expect_order(const OpTree& tree) {
  std::vector<std::size_t> order;
  Engine engine({.policy = Policy::serial});
  push(engine, tree, 0, order);
  ASSERT_TRUE(engine.wait_all_for(patience));
  ASSERT_EQ(order, expected_order(tree));
}

TEST(Order, ReadyOpsRunByPriorityThenInTheOrderPushedButForTheOldestNowAndThen) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    expect_order(random_tree(seed, 50 * seed));
  }
}

TEST(Order, NoneIsLostWhereTheOldestIsTheLowest) {
  // Of 64 ops the first is the last of one sorted run. When its turn has come it pushes as many again, whose run is
  // put behind what is left of the first.
  constexpr std::size_t ops = 64;
  OpTree tree{std::vector<int>(1 + 2 * ops, 1), std::vector<std::vector<std::size_t>>(1 + 2 * ops)};
  tree.priorities[1] = 0;
  for (std::size_t i = 1; i <= ops; ++i) {
    tree.pushes[0].push_back(i);
    tree.pushes[1].push_back(ops + i);
    tree.priorities[ops + i] = -1;
  }
  expect_order(tree);
}

}  // namespace
}  // namespace windrow::testing
