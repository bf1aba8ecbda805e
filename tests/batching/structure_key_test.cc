// Keys of structures, and programs over graphs that are recorded once for each of them.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

#include "windrow/batching/graph.h"
#include "windrow/ops/random.h"
#include "windrow/ops/static.h"
#include "windrow/ops/tape.h"

namespace windrow {
namespace {

/// A random tree of up to 5 leaves: the last vertex is the root.
GraphData drawn_tree(std::mt19937& random) {
  GraphData tree;
  std::vector<std::int32_t> roots;
  const std::size_t leaves = 1 + random() % 5;
  const auto add = [&](const std::vector<std::int32_t>& children) {
    tree.children.insert(tree.children.end(), children.begin(), children.end());
    tree.child_begin.push_back(static_cast<std::int32_t>(tree.children.size()));
    roots.push_back(static_cast<std::int32_t>(tree.child_begin.size()) - 2);
  };
  for (std::size_t i = 0; i < leaves; ++i) add({});
  while (roots.size() > 1) {
    const std::size_t k = random() % (roots.size() - 1);
    const std::vector<std::int32_t> pair = {roots[k], roots[k + 1]};
    roots.erase(roots.begin() + static_cast<std::ptrdiff_t>(k), roots.begin() + static_cast<std::ptrdiff_t>(k) + 2);
    add(pair);
  }
  return tree;
}

TEST(StructureKey, DependsOnChildrenAndKindsAlone) {
  std::mt19937 random(1);
  std::map<std::uint64_t, std::tuple<std::vector<std::int32_t>, std::vector<std::int32_t>, std::vector<std::int32_t>>>
      seen;
  for (int i = 0; i < 2000; ++i) {
    GraphData tree = drawn_tree(random);
    if (i % 2 == 0) tree.kinds.assign(tree.child_begin.size() - 1, static_cast<std::int32_t>(random() % 2));
    const std::uint64_t key = structure_key(tree);
    const auto all = std::tuple(tree.child_begin, tree.children, tree.kinds);
    const auto [found, is_new] = seen.emplace(key, all);
    EXPECT_EQ(found->second, all);
    tree.indices["word"] = {i};
    EXPECT_EQ(structure_key(tree), key);
  }
  std::set<decltype(seen)::mapped_type> structures;
  for (const auto& [key, all] : seen) structures.insert(all);
  EXPECT_EQ(structures.size(), seen.size());
  EXPECT_NE(structure_key({.child_begin = {0, 0}}), structure_key({.child_begin = {0, 0, 0}}));
}

}  // namespace
}  // namespace windrow
