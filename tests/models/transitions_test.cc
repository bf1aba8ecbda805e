// The arc-hybrid system against all trees of few words, and all ways to build trees.
#include "tests/models/data.h"
#include "windrow/models/dependency_parser.h"

namespace windrow::testing {
namespace {

using Heads = std::vector<std::int32_t>;

/// One root, to which the heads of all words lead.
bool tree(const Heads& heads) {
  if (std::count(heads.begin(), heads.end(), 0) != 1) return false;
  for (std::int32_t word : heads) {
    for (std::size_t steps = 0; word != 0; word = heads[static_cast<std::size_t>(word) - 1]) {
      if (++steps > heads.size()) return false;
    }
  }
  return true;
}

bool projective_tree(const Heads& heads) {
  return tree(heads) && projective({.forms = {}, .tags = {}, .heads = heads});
}

/// Calls `visit` with each projective tree of so many words.
void each_tree(std::int32_t words, const std::function<void(const Heads&)>& visit) {
  Heads heads(static_cast<std::size_t>(words), 0);
  while (true) {
    if (projective_tree(heads)) visit(heads);
    auto digit = heads.begin();
    while (digit != heads.end() && *digit == words) *digit++ = 0;
    if (digit == heads.end()) return;
    ++*digit;
  }
}

/// The most arcs that can be right in the end, found by trying everything; checks what each step costs on the way.
int most_right(const ArcHybrid& state, const Heads& gold) {
  if (state.final()) {
    int right = 0;
    for (std::size_t i = 0; i < gold.size(); ++i) right += state.heads()[i] == gold[i];
    return right;
  }
  int most = 0, after[3] = {-1, -1, -1};
  for (const Transition transition : all_transitions) {
    if (!state.legal(transition)) continue;
    ArcHybrid next = state;
    next.apply(transition);
    const int right = most_right(next, gold);
    after[static_cast<std::size_t>(transition)] = right;
    most = std::max(most, right);
  }
  for (const Transition transition : all_transitions) {
    const int right = after[static_cast<std::size_t>(transition)];
    if (right >= 0) {
      EXPECT_EQ(state.cost(transition, gold), most - right);
    }
  }
  return most;
}

TEST(Transitions, CostTheArcsThatCanNoLongerBeHad) {
  const int known[] = {1, 2, 7, 30, 143};
  for (std::int32_t words = 1; words <= 5; ++words) {
    int trees = 0;
    each_tree(words, [&](const Heads& gold) {
      ++trees;
      if (::testing::Test::HasFailure()) return;
      EXPECT_EQ(most_right(ArcHybrid(words), gold), words);
    });
    EXPECT_EQ(trees, known[words - 1]);
  }
}

TEST(Transitions, BuildAProjectiveTreeWhateverIsChosen) {
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto words = static_cast<std::int32_t>(1 + random() % 12);
    ArcHybrid state(words);
    for (std::int32_t step = 0; step < 2 * words; ++step) {
      ASSERT_FALSE(state.final());
      Transition transition{};
      do transition = all_transitions[random() % 3];
      while (!state.legal(transition));
      state.apply(transition);
    }
    ASSERT_TRUE(state.final());
    ASSERT_TRUE(projective_tree(state.heads()));
  }
}

}  // namespace
}  // namespace windrow::testing
