// Every operator of the list: its host kernel against the reference, its gradient against differences; and rows grouped
// by the row of a table that they belong to.
#include "windrow/ops/operators.h"

#include <iterator>
#include <map>

#include "tests/ops/cases.h"
#include "tests/sanitized.h"
#include "windrow/ops/internal/row_segments.h"
#include "windrow/ops/internal/row_sums.h"

namespace windrow::testing {
namespace {

using Integers = std::vector<std::int32_t>;

constexpr Index row_counts[] = {0, 1, 2, 3, 5, 16, 33, 70, 300};

/// WINDROW_TEST_SEED, or 1.
class EveryOperator : public ::testing::TestWithParam<const Operator*> {
 protected:
  const Operator& op() const { return *GetParam(); }
  Type type_of(const Application& c) const { return infer(op(), c.signature); }

  /// Calls test(case, random) for several shapes of each row count.
  template <class Test>
  void each_case(Numbers numbers, Test test) const {
    for (Index rows : row_counts) {
      for (unsigned repetition = 0; repetition < 4; ++repetition) {
        const unsigned seed = first_seed() + static_cast<unsigned>(rows) * 100 + repetition;
        SCOPED_TRACE("rows " + std::to_string(rows) + ", seed " + std::to_string(seed));
        std::mt19937 random(seed);
        const Application c = random_case(op(), rows, random, numbers);
        test(c, random);
        if (HasFatalFailure()) return;
      }
    }
  }
};

template <class Condition>
auto operators_that(Condition holds) {
  std::vector<const Operator*> list;
  std::copy_if(op::all().begin(), op::all().end(), std::back_inserter(list), [&](auto* o) { return holds(*o); });
  return ::testing::ValuesIn(list);
}

std::string operator_name(const ::testing::TestParamInfo<const Operator*>& about) {
  return std::string(about.param->name.text());
}

class ElementwiseOperator : public EveryOperator {};
class RowwiseOperator : public EveryOperator {};
class SummingOperator : public EveryOperator {};
class DifferentiableOperator : public EveryOperator {};
class ZeroKeepingOperator : public EveryOperator {};

INSTANTIATE_TEST_SUITE_P(All, EveryOperator, operators_that([](auto&) { return true; }), operator_name);
INSTANTIATE_TEST_SUITE_P(All, ElementwiseOperator,
                         operators_that([](auto& o) { return o.locality == Locality::elementwise; }), operator_name);
INSTANTIATE_TEST_SUITE_P(All, RowwiseOperator,
                         operators_that([](auto& o) { return o.locality == Locality::rowwise && !o.updates; }),
                         operator_name);
INSTANTIATE_TEST_SUITE_P(All, SummingOperator,
                         operators_that([](auto& o) { return o.locality == Locality::sums_rows; }), operator_name);
INSTANTIATE_TEST_SUITE_P(All, DifferentiableOperator, operators_that([](auto& o) {
                           const Operator* const others[] = {&op::stop_gradient, &op::reverse_gradient,
                                                             &op::argmax_matmul, &op::arg_top_k, &op::sample};
                           const bool of_the_value = std::ranges::find(others, &o) == std::end(others);
                           return o.gradients != nullptr && of_the_value;
                         }),
                         operator_name);

INSTANTIATE_TEST_SUITE_P(All, ZeroKeepingOperator, operators_that([](auto& o) { return o.zero != 0; }), operator_name);

TEST_P(ZeroKeepingOperator, IsZeroWhereAnOperandIs) {
  each_case(Numbers::real, [&](Application c, std::mt19937&) {
    for (std::size_t k = 0; k < c.in.size(); ++k) {
      if ((op().zero >> k & 1) == 0) continue;
      Application zeroed = c;
      std::fill(zeroed.in[k].begin(), zeroed.in[k].end(), 0);
      for (double value : evaluate(reference_kernels(), op(), zeroed)) ASSERT_EQ(value, 0) << "operand " << k;
    }
  });
}

TEST_P(EveryOperator, GivesOnTheHostWhatTheReferenceGives) {
  for (const Numbers numbers : {Numbers::real, Numbers::whole}) {
    each_case(numbers, [&](const Application& c, std::mt19937& random) {
      const Values before = random_before(op(), c, random);
      expect_close(run_host(op(), c, before, Write::add, random()), evaluate(reference_kernels(), op(), c, before),
                   1e-5);
      if (op().updates) return;
      const Values unread(before.size(), std::numeric_limits<double>::quiet_NaN());
      expect_close(run_host(op(), c, unread, Write::overwrite, random()), evaluate(reference_kernels(), op(), c), 1e-5);
    });
  }
}

/// Rows [begin, end) of the operands and indices that `op` does not take whole.
Application part(const Operator& op, const Application& c, Index begin, Index end) {
  const auto cut = [&](Type& type, auto& values) {
    type.rows = Rows::count(end - begin);
    values = {values.begin() + begin * type.width, values.begin() + end * type.width};
  };
  Application made = c;
  for (std::size_t k = 0; k < c.in.size(); ++k) {
    if ((op.whole >> k & 1) == 0) cut(made.signature.in[k], made.in[k]);
  }
  for (std::size_t k = 0; k < c.indices.size(); ++k) cut(made.signature.indices[k], made.indices[k]);
  return made;
}

/// The rows of the first operand, or index operand, that is not taken whole.
Index rows_of(const Operator& op, const Application& c) {
  for (std::size_t k = 0; k < c.in.size(); ++k) {
    if ((op.whole >> k & 1) == 0) return c.signature.in[k].rows.number();
  }
  return c.signature.indices.empty() ? 0 : c.signature.indices[0].rows.number();
}

TEST_P(RowwiseOperator, GivesOnTheHostEachRowTheBitsThatItHasAlone) {
  if (&op() == &op::matmul || &op() == &op::matmul_nt) return;  // oneDNN takes another path for a single row
  each_case(Numbers::real, [&](const Application& c, std::mt19937& random) {
    Values alone;
    for (Index r = 0; r < rows_of(op(), c); ++r) {
      const Application row = part(op(), c, r, r + 1);
      const Values values = run_host(op(), row, Values(elements(type_of(row))), Write::overwrite, random());
      alone.insert(alone.end(), values.begin(), values.end());
    }
    EXPECT_EQ(alone, run_host(op(), c, Values(elements(type_of(c))), Write::overwrite, random()));
  });
}

TEST_P(SummingOperator, GivesOnTheHostTheBitsOfItsPartsAddedInOrder) {
  each_case(Numbers::real, [&](const Application& c, std::mt19937& random) {
    const Index rows = rows_of(op(), c), cut = static_cast<Index>(random() % static_cast<unsigned>(rows + 1));
    const Values before = random_before(op(), c, random);
    const Values first = run_host(op(), part(op(), c, 0, cut), before, Write::add, random()),
                 both = run_host(op(), part(op(), c, cut, rows), first, Write::add, random()),
                 whole = run_host(op(), c, before, Write::add, random());
    expect_close(both, whole, 1e-5);
    // oneDNN adds in an order of its own, and so do blocks.
    if (&op() != &op::matmul_tn && rows <= rows_of_block) {
      EXPECT_EQ(both, whole);
    }
  });
}

TEST_P(ElementwiseOperator, GivesEachElementWhatItGivesItAlone) {
  each_case(Numbers::real, [&](const Application& c, std::mt19937& random) {
    const Values before = random_before(op(), c, random);
    const Values together = run_host(op(), c, before, Write::add, random());
    const std::size_t step = 1 + together.size() / 64;
    for (std::size_t at = 0; at < together.size(); at += step) {
      Application alone = c;
      alone.signature.in.assign(c.in.size(), counted(1, 1));
      for (std::size_t k = 0; k < c.in.size(); ++k) alone.in[k] = {c.in[k][at]};
      const double value = run_host(op(), alone, {before[at]}, Write::add, 1)[0];
      ASSERT_EQ(value, together[at]) << "element " << at;  // to the bit
    }
  });
}

TEST_P(DifferentiableOperator, HasTheGradientThatDifferencesShow) {
  each_case(Numbers::real, [&](const Application& c, std::mt19937&) {
    std::size_t size = elements(type_of(c));
    for (const Values& values : c.in) size += values.size();
    if (size > (sanitized ? 300 : 1000)) return;  // each element costs two evaluations
    ASSERT_LE(gradient_error(reference_kernels(), op(), c), 1e-6);
  });
}

TEST_P(DifferentiableOperator, GivesEachOperandAGradientOfItsType) {
  each_case(Numbers::real, [&](const Application& c, std::mt19937&) {
    const GradientTerms terms = op().gradients(c.signature);
    ASSERT_EQ(terms.size(), c.in.size());
    for (std::size_t k = 0; k < terms.size(); ++k) {
      ASSERT_TRUE(terms[k].has_value());
      Signature made{.attributes = terms[k]->attributes};
      for (const Ref& ref : terms[k]->in) {
        made.in.push_back(ref.of == Ref::Of::operand ? c.signature.in.at(ref.number) : type_of(c));
      }
      for (std::size_t number : terms[k]->indices) made.indices.push_back(c.signature.indices.at(number));
      ASSERT_EQ(terms[k]->op == nullptr ? made.in.at(0) : infer(*terms[k]->op, made), c.signature.in[k]);
    }
  });
}

TEST(StoredAttributes, AreMadeAnewOrRefused) {
  const op::Window2d window{.channels = 2, .height = 5, .width = 5, .window_height = 3, .window_width = 2};
  const std::pair<const Operator*, Attributes> all[] = {
      {&op::add, {}},
      {&op::scale, op::scaled_by(0.5)},
      {&op::pow, op::to_power(3)},
      {&op::slice, op::columns(1, 3)},
      {&op::conv2d, op::sliding(window)},
      {&op::top_k, op::largest(2, 3, op::Order::by_place)},
      {&op::dropout, op::dropout_by(0.25, ~std::uint64_t{0}, 7)},
      {&op::spread_rows, op::to_rows(Rows::count(4))},
  };
  for (const auto& [op, made] : all) {
    Attributes stored = made;
    stored.made_by = "a file";
    EXPECT_EQ(op::remade(*op, stored), made) << op->name.text();
    stored.sizes[7] = 1;
    EXPECT_THROW(op::remade(*op, stored), MisuseError) << op->name.text();
  }
  Attributes damaged = op::sliding(window);
  damaged.sizes[5] = 0;  // the stride
  EXPECT_THROW(op::remade(op::conv2d, damaged), MisuseError);
  EXPECT_THROW(op::remade(op::sgd, op::at_rate(0.5)), MisuseError);
}

/// By a map.
RowSegments oracle(const Integers& row_of) {
  std::map<std::int32_t, Integers> rows;
  for (std::size_t r = 0; r < row_of.size(); ++r) {
    if (row_of[r] >= 0) rows[row_of[r]].push_back(static_cast<std::int32_t>(r));
  }
  RowSegments result;
  for (const auto& [row, of_row] : rows) {
    const auto begin = static_cast<std::int32_t>(result.order.size());
    result.order.insert(result.order.end(), of_row.begin(), of_row.end());
    result.bounds.insert(result.bounds.end(), {row, begin, static_cast<std::int32_t>(result.order.size())});
  }
  return result;
}

TEST(RowSegments, AreThoseThatAMapFindsWhateverTheTableAndTheRows) {
  const unsigned seed = first_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const std::int32_t table : {1, 2, 200, 256, 257, 2048, 2049, 50'000, std::numeric_limits<std::int32_t>::max()}) {
    for (const std::size_t rows : {0u, 1u, 2u, 100u, 1023u, 1024u, 5000u}) {
      Integers row_of(rows);
      for (auto& row : row_of) row = std::uniform_int_distribution<std::int32_t>(-1, table - 1)(random);
      if (rows > 0) row_of.back() = table - 1;
      const RowSegments segments = row_segments(row_of), expected = oracle(row_of);
      ASSERT_EQ(segments.bounds, expected.bounds) << table << " " << rows;
      ASSERT_EQ(segments.order, expected.order) << table << " " << rows;
    }
  }
}

TEST(RowSegments, MayHaveARowOfTheMatrixSeveralTimes) {
  const RowSegments segments = row_segments(Integers{4, 1, -1, 4, 4, -1}, 2);
  EXPECT_EQ(segments.bounds, (Integers{1, 0, 1, 4, 1, 4}));
  EXPECT_EQ(segments.order, (Integers{0, 0, 1, 2}));
}

TEST(RowSegments, AreNoneWhereNoRowBelongsToTheTable) {
  EXPECT_EQ(row_segments(Integers{-1, -7}).bounds, Integers{});
  EXPECT_EQ(row_segments({}).order, Integers{});
}

}  // namespace
}  // namespace windrow::testing
