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

TEST(StructureKey, GuardsRecordingsOfDynamicPrograms) {
  Engine engine({.workers = 2});
  const Device host = host_device(engine);
  constexpr Index width = 3;
  Generator draws(engine, 2);
  const Tensor w(host, width, width, "w");
  draws.uniform(w, -1, 1);
  const GraphData* tree = nullptr;
  /// The gradient for w of a sum over the tree, whose vertices squash the sum of their children and a row of words.
  const auto step = [&](const StaticInputs& call) -> std::vector<Tensor> {
    Tape tape(host);
    tape.watch(w);
    std::vector<Tensor> states;
    for (std::size_t v = 0; v + 1 < tree->child_begin.size(); ++v) {
      Tensor sum = call.in[0].row_range(static_cast<Index>(v), static_cast<Index>(v) + 1);
      for (auto e = tree->child_begin[v]; e < tree->child_begin[v + 1]; ++e) {
        const auto child = static_cast<std::size_t>(tree->children[static_cast<std::size_t>(e)]);
        sum = tape.apply(op::add, {.in = {sum, states[child]}});
      }
      states.push_back(tape.apply(op::tanh, {.in = {tape.apply(op::matmul, {.in = {sum, w}})}}));
    }
    tape.backward(states.back());
    return {states.back(), *tape.gradient(w)};
  };
  Static recorded(host, step, {.most_recordings = 1000});
  std::mt19937 random(3);
  std::set<std::uint64_t> keys;
  for (int i = 0; i < 200; ++i) {
    const GraphData drawn = drawn_tree(random);
    tree = &drawn;
    const Tensor words(host, static_cast<Index>(drawn.child_begin.size()) - 1, width, "words");
    draws.uniform(words, -1, 1);
    keys.insert(structure_key(drawn));
    const std::vector<Tensor> fresh = step({.in = {words}});
    const std::vector<Tensor>& replayed = recorded({.in = {words}, .key = structure_key(drawn)});
    for (std::size_t k = 0; k < fresh.size(); ++k) ASSERT_EQ(replayed[k].get(), fresh[k].get()) << i;
  }
  EXPECT_EQ(recorded.stats().recorded, keys.size());
  EXPECT_EQ(recorded.stats().replayed, 200 - keys.size());
}

}  // namespace
}  // namespace windrow
