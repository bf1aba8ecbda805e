// Schedules: each vertex once, after what it waits for, in batches of one type; and how few of them there are.
#include "windrow/batching/schedule.h"

#include <bit>

#include "tests/batching/support.h"

namespace windrow::testing {
namespace {

constexpr SchedulePolicy all_policies[] = {SchedulePolicy::level, SchedulePolicy::depth, SchedulePolicy::agenda,
                                           SchedulePolicy::complete, SchedulePolicy::serial};

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

struct GraphMaker {
  TypedGraph graph;

  explicit GraphMaker(std::int32_t types) { graph.types = types; }
  std::int32_t add(std::int32_t type, const std::vector<std::int32_t>& children = {}) {
    graph.type.push_back(type);
    graph.children.insert(graph.children.end(), children.begin(), children.end());
    graph.child_begin.push_back(static_cast<std::int32_t>(graph.children.size()));
    return graph.vertices() - 1;
  }
};

TypedGraph random_graph(std::mt19937& random, int most_vertices) {
  const auto below = [&](int n) { return static_cast<std::int32_t>(random() % static_cast<unsigned>(n)); };
  GraphMaker maker(1 + below(4));
  for (int n = below(most_vertices + 1); n > 0; --n) {
    std::vector<std::int32_t> children;
    for (int k = maker.graph.vertices() == 0 ? 0 : below(4); k > 0; --k) {
      children.push_back(below(6) == 0 ? no_child : below(maker.graph.vertices()));
    }
    maker.add(below(maker.graph.types), children);
  }
  return std::move(maker.graph);
}

std::vector<std::int32_t> children_of(const TypedGraph& graph, std::int32_t v) {
  std::vector<std::int32_t> children;
  for (auto e = graph.child_begin[at(v)]; e < graph.child_begin[at(v) + 1]; ++e) {
    if (graph.children[at(e)] != no_child) children.push_back(graph.children[at(e)]);
  }
  return children;
}

void expect_valid(const TypedGraph& graph, const Schedule& schedule) {
  std::vector<int> batch_of(graph.type.size(), -1);
  std::int32_t end = 0;
  for (std::size_t b = 0; b < schedule.batches.size(); ++b) {
    const Schedule::Batch& batch = schedule.batches[b];
    ASSERT_EQ(batch.begin, end);
    ASSERT_LT(batch.begin, batch.end);
    end = batch.end;
    for (std::int32_t i = batch.begin; i < batch.end; ++i) {
      const std::int32_t v = schedule.order[at(i)];
      ASSERT_EQ(batch_of[at(v)], -1) << "vertex " << v << " comes twice";
      ASSERT_EQ(graph.type[at(v)], batch.type);
      batch_of[at(v)] = static_cast<int>(b);
    }
  }
  ASSERT_EQ(at(end), graph.type.size());
  for (std::int32_t v = 0; v < graph.vertices(); ++v) {
    for (const std::int32_t child : children_of(graph, v)) ASSERT_LT(batch_of[at(child)], batch_of[at(v)]);
  }
}

/// By trying all choices of a type: a batch may as well take all that is ready of it.
std::int64_t least_by_search(const TypedGraph& graph) {
  std::map<std::uint32_t, std::int64_t> least;  // by the set of vertices that are done
  const std::uint32_t all = (std::uint32_t{1} << graph.vertices()) - 1;
  const std::function<std::int64_t(std::uint32_t)> from = [&](std::uint32_t done) -> std::int64_t {
    if (done == all) return 0;
    if (const auto found = least.find(done); found != least.end()) return found->second;
    std::int64_t best = graph.vertices();
    for (std::int32_t type = 0; type < graph.types; ++type) {
      std::uint32_t batch = 0;
      for (std::int32_t v = 0; v < graph.vertices(); ++v) {
        const std::vector<std::int32_t> children = children_of(graph, v);
        const bool ready = std::all_of(children.begin(), children.end(), [&](auto c) { return done >> c & 1; });
        if (ready && graph.type[at(v)] == type && !(done >> v & 1)) batch |= std::uint32_t{1} << v;
      }
      if (batch != 0) best = std::min(best, 1 + from(done | batch));
    }
    return least[done] = best;
  };
  return from(0);
}

/// Trees of two kinds of inner vertices that take turns on some paths only, so that averages mislead.
TypedGraph mixed_chains() {
  GraphMaker maker(3);
  for (const char* types : {"aababab", "ababaab", "abab", "bab", "ccab", "acb"}) {
    std::int32_t below = no_child;
    for (; *types != 0; ++types) below = maker.add(*types - 'a', {below});
  }
  return std::move(maker.graph);
}

/// Complete types have fewer batches than the agenda in the mean.
TEST(Schedule, OfEveryPolicyIsValidAndSmallOnesAreComparedWithTheBest) {
  std::mt19937 random(5);
  std::map<SchedulePolicy, std::size_t> batches;
  for (int repetition = 0; repetition < 300; ++repetition) {
    SCOPED_TRACE(repetition);
    const bool small = repetition % 2 == 0;
    const TypedGraph graph = random_graph(random, small ? 9 : 200);
    const std::int64_t bound = fewest_batches(graph);
    const std::int64_t least = small ? least_by_search(graph) : bound;
    EXPECT_LE(bound, least);
    for (const SchedulePolicy policy : all_policies) {
      const Schedule schedule = make_schedule(graph, policy);
      expect_valid(graph, schedule);
      EXPECT_GE(static_cast<std::int64_t>(schedule.batches.size()), least) << to_string(policy);
      batches[policy] += schedule.batches.size();
    }
  }
  EXPECT_LT(batches[SchedulePolicy::complete], batches[SchedulePolicy::agenda]);
  EXPECT_EQ(static_cast<std::int64_t>(make_schedule(mixed_chains(), SchedulePolicy::complete).batches.size()),
            least_by_search(mixed_chains()));
}

TEST(Schedule, ByLevelTakesAVertexAsSoonAsItCan) {
  std::mt19937 random(6);
  for (int repetition = 0; repetition < 50; ++repetition) {
    const TypedGraph graph = random_graph(random, 40);
    std::vector<std::int32_t> level(graph.type.size(), 0);
    std::set<std::pair<std::int32_t, std::int32_t>> cells;
    for (std::int32_t v = 0; v < graph.vertices(); ++v) {  // children come before
      for (const std::int32_t child : children_of(graph, v))
        level[at(v)] = std::max(level[at(v)], level[at(child)] + 1);
      cells.emplace(level[at(v)], graph.type[at(v)]);
    }
    const Schedule schedule = make_schedule(graph, SchedulePolicy::level);
    EXPECT_EQ(schedule.batches.size(), cells.size());
    EXPECT_TRUE(std::is_sorted(schedule.order.begin(), schedule.order.end(),
                               [&](std::int32_t a, std::int32_t b) { return level[at(a)] < level[at(b)]; }));
    EXPECT_EQ(schedule, make_schedule(graph, SchedulePolicy::depth));
  }
}

/// Of chains of recurrent steps, each with an output that nobody waits for: figure 2 of Neubig et al. (2017).
TEST(Schedule, TheAgendaPutsOffOutputsUntilAllAreThere) {
  GraphMaker maker(2);
  for (const int length : {3, 5, 8}) {
    std::int32_t step = no_child;
    for (int i = 0; i < length; ++i) {
      step = maker.add(0, {step});
      maker.add(1, {step});
    }
  }
  const TypedGraph& graph = maker.graph;
  EXPECT_EQ(make_schedule(graph, SchedulePolicy::level).batches.size(), 16u);
  EXPECT_EQ(make_schedule(graph, SchedulePolicy::serial).batches.size(), 32u);
  EXPECT_EQ(fewest_batches(graph), 9);
  EXPECT_LT(make_schedule(graph, SchedulePolicy::agenda).batches.size(), 16u);
}

TEST(Schedule, TheAgendaTakesWhatIsCheapFirstWhereNothingElseTells) {
  GraphMaker maker(2);
  maker.add(0);
  maker.add(1);
  const auto first = [&] { return make_schedule(maker.graph, SchedulePolicy::agenda).batches.front().type; };
  EXPECT_EQ(first(), 0);
  maker.graph.costs = {100, 1};
  EXPECT_EQ(first(), 1);
  maker.graph.costs = {1, 100};
  EXPECT_EQ(first(), 0);
  maker.graph.costs = {1};
  EXPECT_EQ(error_of<MisuseError>(first), "schedule: costs of 1 types; expected 2, or none");
}

TEST(Schedule, OfNothingIsEmptyAndALongChainNeedsNoStack) {
  for (const SchedulePolicy policy : {SchedulePolicy::level, SchedulePolicy::agenda, SchedulePolicy::serial}) {
    EXPECT_TRUE(make_schedule({}, policy).batches.empty());
    EXPECT_EQ(make_schedule({}, policy).mean_width(), 0);
    GraphMaker maker(1);
    for (std::int32_t i = 0; i < 1'000'000; ++i) maker.add(0, {i == 0 ? no_child : i - 1});
    EXPECT_EQ(make_schedule(maker.graph, policy).batches.size(), 1'000'000u);
  }
  EXPECT_EQ(fewest_batches({}), 0);
}

TEST(Schedule, RefusesWhatIsNoGraph) {
  const auto refusal = [](const TypedGraph& graph) {
    return error_of<MisuseError>([&] { make_schedule(graph, SchedulePolicy::agenda); });
  };
  EXPECT_EQ(refusal({2, {0, 2}, {0, 0, 0}, {}}), "schedule: vertex 1 is of type 2; expected 0 to 1");
  EXPECT_EQ(refusal({1, {0}, {0, 1}, {1}}), "schedule: there is no vertex 1; expected 0 to 0, or -1 for none");
  EXPECT_EQ(refusal({1, {0}, {0}, {}}),
            "schedule: child_begin does not span the children of 1 vertices; expected to ascend from 0 to 0");
  EXPECT_EQ(refusal({1, {0, 0, 0}, {0, 0, 1, 2}, {2, 1}}),
            "schedule: vertex 2 is its own descendant; expected no cycles");
  EXPECT_EQ(error_of<MisuseError>([] { parse_schedule_policy("best"); }),
            "schedule policy 'best'; expected level, depth, agenda, complete or serial");
  for (const SchedulePolicy policy : all_policies) EXPECT_EQ(parse_schedule_policy(to_string(policy)), policy);
}

}  // namespace
}  // namespace windrow::testing
