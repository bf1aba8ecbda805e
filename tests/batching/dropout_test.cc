// Dropout whose keys nobody passes: in vertex functions and in lazy expressions.
#include "tests/batching/cells.h"

namespace windrow::testing {
namespace {

/// Chains of vertices that push dropped ones. The loss is the sum of dropped x.
struct Chains : OnHost {
  explicit Chains(Dropout how, RunnerOptions options = {}, std::uint64_t seed = 7)
      : OnHost({.workers = 2}, seed),
        function("chain", {.arity = 1},
                 [&](Vertex& v) {
                   const State state = v.state("s", 2);
                   const Expr x = v.pull("x", 40), dropped = dropout(x, how);
                   v.scatter(state, slice(x, 0, 2) + v.gather(0, state));
                   v.push("dropped", dropped);
                   v.push("again", dropout(x, how));
                   v.loss(matmul(dropped, w));
                 }),
        runner(host, function, parameters, options) {}

  static GraphData chain(std::int32_t length) {
    return chain_of(length, Floats(static_cast<std::size_t>(40 * length), 1));
  }
  Minibatch train() { return runner.differentiate(graphs.pointers); }
  /// By vertex of all chains.
  Floats dropped(const Minibatch& minibatch, const char* output = "dropped") { return minibatch.output(output).get(); }

  Parameter w = parameters.add("w", 40, 1, Initial::constant(1));
  VertexFunction function;
  Graphs graphs{function, {chain(3), chain(5), chain(1)}};
  Runner runner;
};

Floats rows_of(const Floats& all, std::size_t begin, std::size_t end) {
  return {all.begin() + static_cast<std::ptrdiff_t>(40 * begin), all.begin() + static_cast<std::ptrdiff_t>(40 * end)};
}

TEST(VertexDropout, DrawsByMinibatchSampleAndVertex) {
  for (const SchedulePolicy schedule : {SchedulePolicy::level, SchedulePolicy::agenda, SchedulePolicy::serial}) {
    Chains chains({.rate = 0.25}, {.groups = 3, .schedule = schedule});
    const std::int32_t minibatch = schedule == SchedulePolicy::level ? 0 : 5;  // as a program that goes on
    chains.parameters.set_minibatches(static_cast<std::uint64_t>(minibatch));
    const Floats dropped = chains.dropped(chains.train());
    std::vector<std::int32_t> keys;
    for (const auto& [graph, vertices] : {std::pair(0, 3), std::pair(1, 5), std::pair(2, 1)}) {
      for (std::int32_t v = 0; v < vertices; ++v) keys.insert(keys.end(), {minibatch, graph, v});
    }
    const Tensor ones = chains.tensor(Floats(360, 1), 40);
    const IntTensor indices(chains.host, 9, 3);
    indices.set(keys);
    const Operands by_hand{.in = {ones}, .indices = {indices}, .attributes = op::dropout_by(0.25, 7, 0)};
    EXPECT_EQ(dropped, apply(chains.host, op::dropout, by_hand).get());
  }
}

TEST(VertexDropout, KeepsAllInInferenceAndGivesEachCallMasksOfItsOwn) {
  Chains chains({.rate = 0.5});
  EXPECT_EQ(chains.dropped(chains.runner.run(chains.graphs.pointers)), Floats(360, 1));
  EXPECT_EQ(chains.parameters.minibatches(), 0u);
  const Minibatch minibatch = chains.train();
  EXPECT_NE(chains.dropped(minibatch), Floats(360, 1));
  EXPECT_NE(chains.dropped(minibatch), chains.dropped(minibatch, "again"));
  Chains other({.rate = 0.5}, {}, 8);
  EXPECT_NE(chains.dropped(minibatch), other.dropped(other.train()));
}

/// The dropped rows of a member that computes some of the graphs.
Floats dropped_by(int rank, const std::vector<std::int32_t>& graphs, bool numbered) {
  Chains member({.rate = 0.5});
  member.parameters.set_member(rank, 2);
  if (numbered) member.parameters.number_samples(graphs);
  std::vector<const InputGraph*> own;
  for (const std::int32_t graph : graphs) own.push_back(member.graphs.pointers[static_cast<std::size_t>(graph)]);
  return member.dropped(member.runner.differentiate(own));
}

TEST(VertexDropout, OfSamplesWithNumbersIsThatOfOneMemberWithAllOfThem) {
  Chains all({.rate = 0.5});
  const Floats expected = all.dropped(all.train());  // of chains of 3, 5 and 1 vertices
  const auto rows = [&](std::size_t begin, std::size_t end) { return rows_of(expected, begin, end); };
  const Floats last_and_first = dropped_by(0, {2, 0}, true);
  EXPECT_EQ(rows_of(last_and_first, 0, 1), rows(8, 9));
  EXPECT_EQ(rows_of(last_and_first, 1, 4), rows(0, 3));
  EXPECT_EQ(dropped_by(1, {1}, true), rows(3, 8));
  EXPECT_NE(dropped_by(1, {1}, false), rows(3, 8));
  EXPECT_NE(dropped_by(1, {0}, false), dropped_by(0, {0}, false)) << "members draw their own";
}

TEST(VertexDropout, NumbersSamplesOfOneMinibatch) {
  Chains chains({.rate = 0.5}), plain({.rate = 0.5});
  chains.parameters.number_samples({0, 1});
  EXPECT_EQ(error_of<MisuseError>([&] { chains.train(); }),
            "a minibatch of 3 graphs; expected 2, as many as Parameters::number_samples() got numbers");
  chains.parameters.number_samples({2, 1, 0});
  EXPECT_NE(chains.dropped(chains.train()), plain.dropped(plain.train()));
  EXPECT_EQ(chains.dropped(chains.train()), plain.dropped(plain.train())) << "numbers are of one minibatch";
}

TEST(VertexDropout, SeedsOfSamplesDifferAndFollowTheirNumbers) {
  Chains chains({.rate = 0.5}), other({.rate = 0.5});
  std::set<std::uint64_t> seeds;
  chains.parameters.set_member(0, 2);
  for (std::size_t sample = 0; sample < 4; ++sample) seeds.insert(chains.parameters.sample_seed(sample));
  other.parameters.set_member(1, 2);
  for (std::size_t sample = 0; sample < 4; ++sample) seeds.insert(other.parameters.sample_seed(sample));
  EXPECT_EQ(seeds.size(), 8u) << "members draw their own";
  other.parameters.number_samples({3});
  EXPECT_EQ(other.parameters.sample_seed(0), chains.parameters.sample_seed(3));
  EXPECT_THROW(other.parameters.sample_seed(1), MisuseError);
  chains.train();
  for (std::size_t sample = 0; sample < 4; ++sample) seeds.insert(chains.parameters.sample_seed(sample));
  EXPECT_EQ(seeds.size(), 12u) << "minibatches draw their own";
}

TEST(VertexDropout, OfRowsKeepsOrDropsThemAsAWhole) {
  Chains chains({.rate = 0.5, .of = Dropout::Of::row});
  std::set<float> seen;
  for (int i = 0; i < 3; ++i) {
    const Floats dropped = chains.dropped(chains.train());
    for (std::size_t v = 0; v < 9; ++v) {
      const Floats row = rows_of(dropped, v, v + 1);
      EXPECT_EQ(row, Floats(40, row[0]));
      seen.insert(row[0]);
    }
  }
  EXPECT_EQ(seen, (std::set<float>{0, 2}));
}

TEST(VertexDropout, BySampleHasOneMaskForAllItsVertices) {
  Chains chains({.rate = 0.5, .mask = Dropout::Mask::sample});
  const Floats dropped = chains.dropped(chains.train());
  const auto row = [&](std::size_t v) { return rows_of(dropped, v, v + 1); };
  EXPECT_EQ(row(0), row(2));
  EXPECT_EQ(row(3), row(7));
  EXPECT_NE(row(0), row(3));
  EXPECT_NE(row(0), row(8));
}

TEST(VertexDropout, RefusesRatesAndOperandsThatItCannotDrop) {
  EXPECT_THROW(Chains({.rate = 1}), MisuseError);
  EXPECT_THROW(Chains({.rate = -0.5}), MisuseError);
  EXPECT_THROW(
      VertexFunction("sum", {.arity = any_arity},
                     [](Vertex& v) { v.push("x", sum_children(dropout(v.pull_edge("e", 3), {.rate = 0.5}))); }),
      MisuseError);
}

/// Also if a mask is that of a whole sample, whose vertices are of two kinds.
TEST(VertexDropout, DiffersBetweenFunctionsOfOneProgram) {
  OnHost s({.workers = 2}, 7);
  const Parameter w = s.parameters.add("w", 40, 1, Initial::constant(1));
  const auto kind = [&](const std::string& name, Dropout::Mask mask) {
    return VertexFunction(name, {}, [&](Vertex& v) {
      const Expr dropped = dropout(v.pull("x", 40), {.rate = 0.5, .mask = mask});
      v.push(name, dropped);
      v.loss(matmul(dropped, w));
    });
  };
  const VertexFunction first = kind("first", Dropout::Mask::vertex), second = kind("second", Dropout::Mask::vertex),
                       both("both", {kind("one", Dropout::Mask::sample), kind("other", Dropout::Mask::sample)});
  GraphData two = leaves(2, Floats(80, 1));
  two.kinds = {0, 1};
  EXPECT_NE(s.differentiated(first, {leaves(1, Floats(40, 1))}).output("first").get(),
            s.differentiated(second, {leaves(1, Floats(40, 1))}).output("second").get());
  const Minibatch minibatch = s.differentiated(both, {two});
  const Floats one = minibatch.output("one").get(), other = minibatch.output("other").get();
  EXPECT_NE(rows_of(one, 0, 1), rows_of(other, 1, 2));
}

struct LazyOnes : OnHost {
  explicit LazyOnes(const LazyOptions& options = {}) : OnHost({.workers = 2}, 7), graph(host, parameters, options) {}
  LazyExpr ones() { return graph.input(Floats(50, 1)); }

  Parameter w = parameters.add("w", 50, 1, Initial::constant(1));
  LazyGraph graph;
};

TEST(LazyDropout, DropsInTrainingOnlyAndBySampleNever) {
  LazyOnes training, inference({.use = LazyOptions::For::inference});
  EXPECT_EQ(dropout(inference.ones(), {.rate = 0.5}).value(), Floats(50, 1));
  const LazyExpr one = dropout(training.ones(), {.rate = 0.5}), other = dropout(training.ones(), {.rate = 0.5});
  EXPECT_NE(one.value(), Floats(50, 1));
  EXPECT_NE(one.value(), other.value());
  for (const float value : one.value()) EXPECT_TRUE(value == 0 || value == 2);
  const Floats row = dropout(training.ones(), {.rate = 0.5, .of = Dropout::Of::row}).value();
  EXPECT_TRUE(row == Floats(50, 0) || row == Floats(50, 2));
  EXPECT_EQ(error_of<MisuseError>([&] { dropout(training.ones(), {.rate = 0.5, .mask = Dropout::Mask::sample}); }),
            "dropout: a mask of a sample; expected a mask of its own in lazy expressions, which know no samples");
}

/// However many flushes compute for training; the masks of all of them differ, and those of the next minibatch, too.
TEST(LazyDropout, CountsAMinibatchFromClearToClearAndGoesOnFromANumber) {
  LazyOnes lazy({.recompute_below = 0}), later({.recompute_below = 0});
  const auto train = [](LazyOnes& on) {
    std::vector<LazyExpr> losses;
    std::vector<Floats> masks;
    Floats sum(50, 0);
    for (int flush = 0; flush < 3; ++flush) {
      const LazyExpr dropped = dropout(on.ones(), {.rate = 0.5});
      losses.push_back(matmul(dropped, on.w));
      masks.push_back(dropped.value());
      std::ranges::transform(sum, masks.back(), sum.begin(), std::plus());
    }
    on.graph.backward(losses);
    EXPECT_EQ(on.parameters.dense_gradient(on.w).get(), sum);
    on.graph.clear();
    return masks;
  };
  std::set<Floats> all;
  std::vector<Floats> last;
  for (std::uint64_t minibatch = 1; minibatch <= 3; ++minibatch) {
    last = train(lazy);
    all.insert(last.begin(), last.end());
    EXPECT_EQ(lazy.parameters.minibatches(), minibatch);
  }
  EXPECT_EQ(all.size(), 9u);
  later.parameters.set_minibatches(2);
  EXPECT_EQ(train(later), last);
}

/// As in Monte Carlo dropout.
TEST(LazyDropout, DrawsAnewAfterClearAlsoWithoutGradients) {
  LazyOnes lazy;
  std::set<Floats> masks;
  for (std::uint64_t minibatch = 0; minibatch < 4; ++minibatch) {
    EXPECT_EQ(lazy.parameters.minibatches(), minibatch);
    masks.insert(dropout(lazy.ones(), {.rate = 0.5}).value());
    lazy.graph.clear();
  }
  EXPECT_EQ(masks.size(), 4u);
  lazy.ones().value();
  lazy.graph.clear();
  EXPECT_EQ(lazy.parameters.minibatches(), 4u) << "no mask was drawn";
}

TEST(LazyDropout, DiffersBetweenTwoGraphsOfOneProgram) {
  LazyOnes lazy;
  const auto mask = [&](LazyGraph& graph) { return dropout(graph.input(Floats(50, 1)), {.rate = 0.5}); };
  {
    LazyGraph second(lazy.host, lazy.parameters),
        inference(lazy.host, lazy.parameters, {.use = LazyOptions::For::inference});
    const LazyExpr one = mask(lazy.graph), other = mask(second);
    EXPECT_NE(one.value(), other.value());
  }
  // A program that makes a graph for each minibatch goes on from a checkpoint as it would have without.
  LazyOnes one, other;
  const auto of_new = [&](LazyOnes& on) {
    LazyGraph graph(on.host, on.parameters);
    return mask(graph).value();
  };
  LazyGraph(one.host, one.parameters);
  EXPECT_EQ(of_new(one), of_new(other));
}

/// A cell with two masks of elements and one of rows, whose keys follow its indices.
TEST(LazyDropout, OfACellDrawsForEachCall) {
  for (const auto use : {LazyOptions::For::training, LazyOptions::For::inference}) {
    LazyOnes lazy({.use = use});
    const Parameter words = lazy.parameters.add("words", 3, 100, Initial::constant(4));
    const LazyCell drops = lazy.graph.cell("drops", [&](CellBody& cell) {
      const Expr x = cell.operand(50) + sum_children(cell.each(50));
      const Expr both = concat(dropout(x, {.rate = 0.5}), dropout(x, {.rate = 0.5}));
      cell.result(both + embedding(words, cell.index(Presence::sometimes)));
      cell.result(dropout(x, {.rate = 0.5, .of = Dropout::Of::row}));
    });
    std::set<Floats> masks, rows;
    for (int call = 0; call < 20; ++call) {
      const bool word = call % 2 == 1;
      const auto [both, row] = drops.call<2>({lazy.ones()}, {lazy.graph.index(word ? call % 3 : -1)});
      Floats mask = both.value();
      for (float& value : mask) value -= word ? 4 : 0;
      masks.insert(Floats(mask.begin(), mask.begin() + 50));
      masks.insert(Floats(mask.begin() + 50, mask.end()));
      rows.insert(row.value());
    }
    if (use == LazyOptions::For::inference) {
      EXPECT_EQ(masks, std::set{Floats(50, 1)});
      EXPECT_EQ(rows, std::set{Floats(50, 1)});
      continue;
    }
    EXPECT_EQ(masks.size(), 40u);
    for (const Floats& mask : masks) {
      for (const float value : mask) ASSERT_TRUE(value == 0 || value == 2) << value;
    }
    EXPECT_EQ(rows, (std::set{Floats(50, 0), Floats(50, 2)}));
  }
}

/// Also if the flush is recomputed for gradients, and if other calls share its batches then.
TEST(LazyDropout, OfACellHasTheMaskOfItsValueInGradients) {
  for (const std::int64_t recompute_below : {std::int64_t{0}, LazyOptions().recompute_below}) {
    LazyOnes lazy({.recompute_below = recompute_below});
    LazyGraph& graph = lazy.graph;
    const LazyCell drops =
        graph.cell("drops", [](CellBody& cell) { cell.result(dropout(cell.operand(50), {.rate = 0.5})); });
    std::set<Floats> masks;
    for (int minibatch = 0; minibatch < 2; ++minibatch) {
      Floats sum(50, 0);
      std::vector<LazyExpr> losses;
      for (int call = 0; call < 3; ++call) {
        const LazyExpr dropped = drops({lazy.ones()}), again = drops({dropped});
        losses.push_back(matmul(again, lazy.w));
        const Floats mask = again.value();
        masks.insert(mask);
        std::ranges::transform(sum, mask, sum.begin(), std::plus());
      }
      graph.backward(losses);
      EXPECT_EQ(lazy.parameters.dense_gradient(lazy.w).get(), sum);
      graph.clear();
    }
    EXPECT_EQ(masks.size(), 6u);
  }
}

/// The masks are those of the same call with a Dropout, in all kinds of expressions.
TEST(Dropout, ByARateAloneDropsElements) {
  Chains chains({.rate = 0.25});
  OnHost s({.workers = 2}, 7);
  const VertexFunction function("by rate", {.arity = 1}, [](Vertex& v) {
    const Expr dropped = dropout(v.pull("x", 40), 0.25);
    v.push("dropped", dropped);
    v.loss(row_sum(dropped));
  });
  const std::vector<GraphData> data = {Chains::chain(3), Chains::chain(5), Chains::chain(1)};
  EXPECT_EQ(s.differentiated(function, data).output("dropped").get(), chains.dropped(chains.train()));
  EXPECT_EQ(s.computed(function, data).output("dropped").get(), Floats(360, 1)) << "in inference";

  LazyOnes lazy, other;
  EXPECT_EQ(dropout(lazy.ones(), 0.25).value(), dropout(other.ones(), {.rate = 0.25}).value());
  const auto cell_of = [](LazyOnes& on, auto how) {
    const LazyCell cell =
        on.graph.cell("drops", [how](CellBody& body) { body.result(dropout(body.operand(50), how)); });
    return cell({on.ones()}).value();
  };
  const Floats dropped = cell_of(lazy, 0.25);
  EXPECT_EQ(dropped, cell_of(other, Dropout{.rate = 0.25}));
  EXPECT_NE(dropped, Floats(50, 1));
  EXPECT_EQ(error_of<MisuseError>([&] { dropout(lazy.ones(), 1.0); }),
            error_of<MisuseError>([&] { dropout(lazy.ones(), {.rate = 1}); }));
}

}  // namespace
}  // namespace windrow::testing
