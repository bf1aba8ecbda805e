// Names and literals of printed programs.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <random>

#include "print/names.h"
#include "tests/seed.h"
#include "windrow/ops/operators.h"

namespace windrow::testing {
namespace {

using print::Identifiers, print::identifier, print::literal, print::quoted;

TEST(Printing, MakesIdentifiersOfAnyName) {
  EXPECT_EQ(identifier("forget_bias"), "forget_bias");
  EXPECT_EQ(identifier("forward 1/in"), "forward_1_in");
  EXPECT_EQ(identifier("7th"), "x7th");
  EXPECT_EQ(identifier("_a__b"), "x_a_b");
  EXPECT_EQ(identifier(""), "x");
  EXPECT_EQ(identifier("for"), "for_");
  EXPECT_EQ(identifier("W\xc3\xb6rter"), "W_rter");
  Identifiers names;
  EXPECT_EQ(names.add("a b"), "a_b");
  EXPECT_EQ(names.add("a-b"), "a_b_2");
  EXPECT_EQ(names.add("a/b"), "a_b_3");
}

TEST(Printing, QuotesText) {
  EXPECT_EQ(quoted("a \"b\" \\ c"), R"("a \"b\" \\ c")");
  EXPECT_EQ(quoted("a\n1"), "\"a\\0121\"");
}

TEST(Printing, KeepsTheBitsOfNumbers) {
  std::mt19937 random(first_seed());
  std::normal_distribution<double> normal(0, 1e5);
  for (int i = 0; i < 1000; ++i) {
    const double number = normal(random);
    EXPECT_EQ(std::strtod(literal(number).c_str(), nullptr), number) << literal(number);
  }
  EXPECT_EQ(literal(2.0), "2.0");
  EXPECT_EQ(literal(-std::numeric_limits<double>::infinity()), "-std::numeric_limits<double>::infinity()");
}

TEST(Printing, InitialisesAttributes) {
  EXPECT_EQ(literal(op::columns(3, 7)), R"({.made_by = "columns", .sizes = {3, 7}})");
  EXPECT_EQ(literal(op::scaled_by(0.5)), R"({.made_by = "scaled_by", .values = {0.5}})");
  EXPECT_EQ(literal(op::scaled_by(-0.0)), R"({.made_by = "scaled_by", .values = {-0.0}})");
  EXPECT_EQ(literal(op::to_rows(Rows::count(4))), R"({.made_by = "to_rows", .rows = windrow::Rows::count(4)})");
}

/// Printed code names operators as the namespace op does.
TEST(Printing, OperatorsAreNamedAsIdentifiers) {
  for (const Operator* op : op::all()) EXPECT_EQ(identifier(std::string(op->name.text())), op->name.text());
}

}  // namespace
}  // namespace windrow::testing
