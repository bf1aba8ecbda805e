// What print_source() prints and refuses, and its names and literals. That printed programs give the bits of the
// library is tested by tests/programs/export_test.cc, which compiles one.
#include "print/names.h"
#include "tests/ops/host_tensors.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/static.h"

namespace windrow::testing {
namespace {

using print::Identifiers, print::identifier, print::literal, print::quoted;

class StaticSource : public HostTensors {
 protected:
  StaticProgram program(Static::Body body) const {
    return {.name = "two layers",
            .body = std::move(body),
            .rows = 4,
            .width = 3,
            .parameters = {{"w", w}},
            .outputs = {"y"}};
  }
  std::string refusal(Static::Body body) const { return refusal(program(std::move(body))); }
  std::string refusal(const StaticProgram& refused) const {
    return error_of<MisuseError>([&] { print_source(host, refused); });
  }

  const Tensor w{host, 3, 3};
};

TEST_F(StaticSource, NamesWeightsAndPlansMemory) {
  const PrintedSource source = print_source(
      host, program([&](const StaticInputs& call) -> std::vector<Tensor> {
        const Tensor x = apply(host, op::relu, {.in = {apply(host, op::matmul, {.in = {call.in.at(0), w}})}});
        return {
            apply(host, op::scale, {.in = {apply(host, op::matmul, {.in = {x, w}})}, .attributes = op::scaled_by(2)})};
      }));
  EXPECT_EQ(source.name, "two_layers_model");
  EXPECT_EQ(source.parameters, std::vector<std::string>{"w"});
  const std::string& text = source.files.at("model.cc");
  EXPECT_NE(text.find("w(3, 3, weights.w)"), std::string::npos) << text;
  EXPECT_NE(text.find("apply(op::matmul, {n.input, n.w}, Matrix{n.memory.data() + "), std::string::npos) << text;
  EXPECT_NE(text.find("{.made_by = \"scaled_by\", .values = {2.0}}"), std::string::npos) << text;
  EXPECT_NE(text.find("memory{1, 32}"), std::string::npos) << "two of four values lie at a time: " << text;
}

TEST_F(StaticSource, RefusesWhatItCannotPrint) {
  const auto relu = [&](const Tensor& x) { return apply(host, op::relu, {.in = {x}}); };
  using Results = std::vector<Tensor>;
  EXPECT_EQ(refusal([&](const StaticInputs& call) -> Results { return {relu(call.in.at(0).column_range(0, 2))}; }),
            "two layers cannot be exported: it uses a view of a part of a tensor");
  const Tensor other(host, 4, 3);
  EXPECT_EQ(refusal([&](const StaticInputs&) -> Results { return {relu(other)}; }),
            "two layers cannot be exported: it reads a tensor from outside that is no parameter");
  EXPECT_EQ(refusal([&](const StaticInputs& call) -> Results {
              apply(host, op::relu, {.in = {call.in.at(0)}}, other);
              return {other};
            }),
            "two layers cannot be exported: it writes a tensor from outside");
  EXPECT_EQ(refusal([&](const StaticInputs& call) -> Results {
              return {relu(call.in.at(0)), relu(call.in.at(0))};
            }),
            "two layers cannot be exported: it has not as many outputs as names");
  EXPECT_EQ(refusal([&](const StaticInputs& call) -> Results {
              const Tensor made(host, 4, 3);
              made.set(std::vector<float>(12, 1));
              return {apply(host, op::add, {.in = {call.in.at(0), made}})};
            }),
            "two layers cannot be exported: it does more than to apply operators");
  EXPECT_EQ(refusal(Static::Body()), "two layers cannot be exported: it has no body");
  StaticProgram twice = program([&](const StaticInputs& call) -> Results { return {relu(call.in.at(0))}; });
  twice.parameters.emplace_back("v", w);
  EXPECT_EQ(refusal(twice), "two layers cannot be exported: parameters 'w' and 'v' are one tensor; expected one name");
  twice = program([](const StaticInputs&) -> Results { return {}; });
  twice.outputs = {};
  EXPECT_EQ(refusal(twice), "two layers cannot be exported: it has no outputs");
}

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
