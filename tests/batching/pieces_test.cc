// Which ops a group's work becomes, of made-up plans and layouts: what each row needs has run before, in any order that
// the pieces allow.
#include "batching/src/execute/pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>

#include "tests/seed.h"

namespace windrow {
namespace {

using testing::first_seed;

constexpr std::array<Phase, phase_count> phases = {Phase::eager,      Phase::level,      Phase::lazy,
                                                   Phase::back_eager, Phase::back_level, Phase::back_lazy};

std::size_t at(Phase phase) { return static_cast<std::size_t>(phase); }

/// One group: batches of types, with what each phase takes for a row; of the last type, for an edge.
struct Work {
  Plan plan;
  Layout layout;

  Work(const std::vector<std::array<Index, phase_count>>& costs, const std::vector<Layout::BatchRows>& batches) {
    plan.types.resize(costs.size());
    for (std::size_t t = 0; t < costs.size(); ++t) {
      for (Phase phase : phases) plan.types[t].costs[at(phase)][0].work = costs[t][at(phase)];
    }
    layout.groups = 1;
    layout.types.resize(costs.size());
    layout.batches = {batches};
    for (TypeRows& type : layout.types) type.begin = {0, 0};
    for (Layout::BatchRows& batch : layout.batches.front()) {
      Index& rows = layout.types[batch.type].begin[1];
      batch = {batch.type, rows, rows + batch.end};  // `end` was how many
      rows = batch.end;
      layout.types[batch.type].rows = rows;
    }
  }

  static Work random(std::mt19937& random) {
    const auto draw = [&](Index most) { return static_cast<Index>(random() % static_cast<unsigned>(most + 1)); };
    std::vector<std::array<Index, phase_count>> costs(1 + random() % 3);
    for (auto& of_type : costs) {
      for (Index& cost : of_type) cost = draw(2) == 0 ? 0 : draw(50);
    }
    std::vector<Layout::BatchRows> batches(random() % 12);
    for (Layout::BatchRows& batch : batches) {
      batch = {static_cast<std::uint32_t>(random() % costs.size()), 0, 1 + draw(draw(1) == 0 ? 3 : 40)};
    }
    return Work(costs, batches);
  }
};

/// Pieces with all that must have run before each.
class Order {
 public:
  Order(const Work& work, const Pieces& pieces) : work_(work), pieces_(pieces.all()) {
    before_.resize(pieces_.size());
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      for (std::size_t other : pieces_[i].after) {
        EXPECT_LT(other, i);
        before_[i].insert(other);
        before_[i].insert(before_[other].begin(), before_[other].end());
      }
      for (const PhaseRows& part : pieces_[i].parts) {
        for (Index row = part.begin; row < part.end; ++row) {
          EXPECT_TRUE(by_row_.emplace(Row{part.phase, part.type, row}, i).second) << "a row is taken twice";
        }
      }
    }
  }

  /// All rows of a batch, or none where the phase is no work.
  std::set<std::size_t> of(Phase phase, std::size_t batch) const {
    const Layout::BatchRows& rows = work_.layout.batches.front()[batch];
    std::set<std::size_t> pieces;
    if (work_.plan.types[rows.type].costs[at(phase)][0].work == 0) return pieces;
    for (Index row = rows.begin; row < rows.end; ++row) {
      const auto found = by_row_.find({phase, rows.type, row});
      EXPECT_NE(found, by_row_.end()) << "a row is left out";
      if (found != by_row_.end()) pieces.insert(found->second);
    }
    return pieces;
  }

  /// The ends of a phase of a type are pieces of it, none of which waits for another, and all others run before one.
  void expect_ends(const Pieces& pieces, std::size_t type, Phase phase) const {
    std::set<std::size_t> before, all;
    for (const auto& [row, piece] : by_row_) {
      if (std::get<0>(row) == phase && std::get<1>(row) == type) all.insert(piece);
    }
    const std::vector<std::size_t> ends = pieces.ends_of(type, phase);
    for (std::size_t end : ends) {
      EXPECT_TRUE(all.contains(end));
      before.insert(before_[end].begin(), before_[end].end());
    }
    for (std::size_t end : ends) EXPECT_FALSE(before.contains(end));
    before.insert(ends.begin(), ends.end());
    EXPECT_TRUE(std::ranges::includes(before, all));
  }

  /// In one piece the first phase comes first, and of batches the one that stands first.
  void expect(const std::set<std::size_t>& first, const std::set<std::size_t>& then, const std::string& what) const {
    for (std::size_t later : then) {
      for (std::size_t sooner : first) {
        EXPECT_TRUE(sooner == later || before_[later].contains(sooner)) << what;
      }
    }
  }

 private:
  using Row = std::tuple<Phase, std::size_t, Index>;
  const Work& work_;
  const std::vector<Piece>& pieces_;
  std::vector<std::set<std::size_t>> before_;
  std::map<Row, std::size_t> by_row_;
};

void check(const Work& work, const PieceOptions& options) {
  Pieces pieces(work.plan, work.layout, 0, options);
  pieces.forward();
  pieces.backward();
  const Order order(work, pieces);
  const std::size_t batches = work.layout.batches.front().size();
  for (std::size_t b = 0; b < batches; ++b) {
    for (std::size_t below = 0; below <= b; ++below) {
      order.expect(order.of(Phase::eager, below), order.of(Phase::level, b), "eager before level");
      order.expect(order.of(Phase::eager, below), order.of(Phase::lazy, b), "eager before lazy");
      if (below < b) order.expect(order.of(Phase::level, below), order.of(Phase::level, b), "upwards");
      order.expect(order.of(Phase::level, below), order.of(Phase::lazy, b), "level before lazy");
    }
    for (Phase forward : {Phase::eager, Phase::level, Phase::lazy}) {
      for (Phase backward : {Phase::back_eager, Phase::back_level, Phase::back_lazy}) {
        order.expect(order.of(forward, b), order.of(backward, b), "forward before backward");
      }
    }
    for (std::size_t above = b; above < batches; ++above) {
      if (above > b) order.expect(order.of(Phase::back_level, above), order.of(Phase::back_level, b), "downwards");
      order.expect(order.of(Phase::back_level, above), order.of(Phase::back_lazy, b), "back_level before back_lazy");
      order.expect(order.of(Phase::back_eager, above), order.of(Phase::back_level, b), "back_eager before back_level");
      order.expect(order.of(Phase::back_eager, above), order.of(Phase::back_lazy, b), "back_eager before back_lazy");
      order.expect(order.of(Phase::lazy, above), order.of(Phase::back_level, b), "lazy before back_level");
      order.expect(order.of(Phase::lazy, above), order.of(Phase::back_lazy, b), "lazy before back_lazy");
    }
  }
  for (std::size_t type = 0; type < work.plan.types.size(); ++type) {
    for (Phase phase : phases) order.expect_ends(pieces, type, phase);
  }
  std::set<std::size_t> all;
  for (std::size_t i = 0; i < pieces.all().size(); ++i) all.insert(i);
  for (const Piece& piece : pieces.all()) {
    EXPECT_FALSE(piece.parts.empty());
    for (std::size_t other : piece.after) all.erase(other);
  }
  const std::vector<std::size_t> last = pieces.last();
  EXPECT_EQ(all, std::set<std::size_t>(last.begin(), last.end()));
}

TEST(Pieces, RunRowsOnceAndAfterWhatTheyNeed) {
  const unsigned seed = first_seed();
  for (unsigned i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) {
    std::mt19937 random(seed + i);
    SCOPED_TRACE("seed " + std::to_string(seed + i));
    const Work work = Work::random(random);
    for (Index op_flops : {1, 100, 1000, 1'000'000}) {
      for (int switches = 0; switches < 4; ++switches) {
        check(work, {.op_flops = op_flops,
                     .split_rows = 1 + static_cast<Index>(random() % 5),
                     .streaming = (switches & 1) != 0,
                     .splitting = (switches & 2) != 0});
      }
    }
  }
}

/// A chain of ten batches of four vertices, each with work in every phase.
Work sequences() { return Work({{10, 10, 10, 10, 10}}, std::vector<Layout::BatchRows>(10, {0, 0, 4})); }

TEST(Pieces, AreTwoWhereNothingIsWorthAnOp) {
  const Work work = sequences();
  Pieces pieces(work.plan, work.layout, 0, {.op_flops = 1'000'000});
  pieces.forward();
  pieces.backward();
  EXPECT_EQ(pieces.all().size(), 2u) << "forward and backward";
}

TEST(Pieces, StreamBesideTheChain) {
  const Work work = sequences();
  Pieces pieces(work.plan, work.layout, 0, {.op_flops = 100, .split_rows = 4});
  pieces.forward();
  const std::vector<Piece>& all = pieces.all();
  ASSERT_GT(all.size(), 4u);
  EXPECT_FALSE(all[0].chain);
  EXPECT_FALSE(all[1].chain);
  const auto first = std::find_if(all.begin(), all.end(), [](const Piece& piece) { return piece.chain; });
  EXPECT_EQ(first->after, std::vector<std::size_t>{0}) << "the first batches need the first block";
  EXPECT_FALSE(all.back().chain);
}

TEST(Pieces, WaitForAllOfAPhaseWhereNothingStreams) {
  const Work work = sequences();
  Pieces pieces(work.plan, work.layout, 0, {.op_flops = 100, .split_rows = 4, .streaming = false});
  pieces.forward();
  const auto level = std::find_if(pieces.all().begin(), pieces.all().end(),
                                  [](const Piece& piece) { return piece.parts.front().phase == Phase::level; });
  EXPECT_EQ(level->after.size(), 4u);
}

TEST(Pieces, EndAtBatchesWhereNothingIsSplit) {
  const Work work({{10, 10, 10, 0, 0}}, {{0, 0, 100}, {0, 0, 100}});
  Pieces pieces(work.plan, work.layout, 0, {.op_flops = 100, .split_rows = 4, .splitting = false});
  pieces.forward();
  EXPECT_EQ(pieces.all().size(), 6u) << "each phase of each batch";
}

TEST(Pieces, CutBatchesByRowsIfTheyAreWorthSeveralOps) {
  const Work work({{0, 10, 0, 0, 0}}, {{0, 0, 8}, {0, 0, 4}, {0, 0, 1}});
  const auto pieces_of = [&](const PieceOptions& options) {
    Pieces pieces(work.plan, work.layout, 0, options);
    pieces.forward();
    return pieces.all().size();
  };
  EXPECT_EQ(pieces_of({.op_flops = 10, .split_rows = 2}), 4u + 2u + 1u);
  EXPECT_EQ(pieces_of({.op_flops = 10, .split_rows = 4}), 2u + 1u + 1u);
  EXPECT_EQ(pieces_of({.op_flops = 10, .split_rows = 2, .splitting = false}), 3u);
}

}  // namespace
}  // namespace windrow
