// Operators that move rows and columns, and segmented reductions: shapes and gradients.
#include "operators/rules.h"
#include "windrow/ops/operators.h"

namespace windrow::op {
namespace {

Type infer_gather(const Operator& op, const Signature& s) {
  require(s.indices[0].width == 1, op, s, "indices of width 1");
  return {s.indices[0].rows, s.in[0].width};
}
Type infer_embedding(const Operator& op, const Signature& s) {
  require(s.in[0].rows.counted(), op, s, "a parameter as the table");
  return infer_gather(op, s);
}
Type infer_embedding_bag(const Operator& op, const Signature& s) {
  require(s.in[0].rows.counted(), op, s, "a parameter as the table");
  return {s.indices[0].rows, s.in[0].width};
}
Type infer_scatter_bags(const Operator& op, const Signature& s) {
  require(s.indices[0].rows == s.in[0].rows, op, s, "a row of indices for each row");
  return {s.attributes.rows, s.in[0].width};
}
Type infer_gather_where(const Operator& op, const Signature& s) {
  require(s.in[0] == s.in[1], op, s, "operands of one shape");
  require(s.indices[0].width == 2, op, s, "indices of width 2: a row, and what the first operand has there");
  return {s.indices[0].rows, s.in[1].width};
}
Type infer_scatter(const Operator& op, const Signature& s) {
  require_index(1, op, s);
  return {s.attributes.rows, s.in[0].width};
}
Type infer_sum_parts(const Operator& op, const Signature& s) {
  require(!s.in.empty(), op, s, "one operand or more");
  for (const Type& type : s.in) require(type.width == s.in[0].width, op, s, "operands of one width");
  require(s.indices[0].width == 3, op, s, "indices of width 3: row, begin and end of each segment");
  require(s.indices[1].width == 1, op, s, "an order of width 1");
  return {s.indices[0].rows, s.in[0].width};
}
Type infer_sgd_rows(const Operator& op, const Signature& s) {
  return {s.attributes.rows, infer_sum_parts(op, s).width};
}
Type infer_gather_sum(const Operator& op, const Signature& s) {
  require(s.indices[0].width == 2, op, s, "indices of width 2: begin and end of each segment");
  require(s.indices[1].width == 1, op, s, "an order of width 1");
  return {s.indices[0].rows, s.in[0].width};
}
void require_pairs(const Operator& op, const Signature& s) {
  require(s.indices[0].width == 2, op, s, "indices of width 2: begin and end of each segment");
  require(s.indices[1].width == 2, op, s, "pairs of rows");
}
Type infer_gather_weighted_sum(const Operator& op, const Signature& s) {
  require_pairs(op, s);
  require(s.in[1].width == 1, op, s, "factors of width 1");
  return {s.indices[0].rows, s.in[0].width};
}
Type infer_gather_dot(const Operator& op, const Signature& s) {
  require_pairs(op, s);
  require(s.in[0].width == s.in[1].width, op, s, "operands of one width");
  return {s.indices[0].rows, 1};
}
Type infer_concat(const Operator& op, const Signature& s) {
  require(!s.in.empty(), op, s, "one operand or more");
  Type result = {s.in[0].rows, 0};
  for (const Type& type : s.in) {
    require(type.rows == result.rows, op, s, "operands of one number of rows");
    result.width += type.width;
  }
  return result;
}
Type infer_slice(const Operator& op, const Signature& s) {
  const Index begin = s.attributes.sizes[0], end = s.attributes.sizes[1];
  if (begin < 0 || end < begin || s.in[0].width < end) {
    throw shape_error(op, s,
                      "columns [" + std::to_string(begin) + ", " + std::to_string(end) + ") among those there are");
  }
  return {s.in[0].rows, end - begin};
}
Type infer_place(const Operator& op, const Signature& s) {
  const Index begin = s.attributes.sizes[0], width = s.attributes.sizes[1];
  if (begin < 0 || width < begin || width - begin < s.in[0].width) {
    throw shape_error(
        op, s,
        "that it fits into a width of " + std::to_string(width) + " from column " + std::to_string(begin) + " on");
  }
  return {s.in[0].rows, width};
}
Type infer_pick_gradient(const Operator& op, const Signature& s) {
  require_index(1, op, s);
  require(s.in[0].width == 1, op, s, "a width of 1");
  return {s.in[0].rows, s.attributes.sizes[0]};
}
Type infer_segments(const Operator& op, const Signature& s) {
  require(s.indices[0].width == 2, op, s, "indices of width 2: begin and end of each segment");
  return {s.indices[0].rows, s.in[0].width};
}
Type infer_segment_spread(const Operator& op, const Signature& s) {
  require_index(2, op, s);
  return {s.attributes.rows, s.in[0].width};
}
Terms of_gather(const Signature& s) { return {GradientTerm{&scatter_rows, {gradient()}, {0}, to_rows(s.in[0].rows)}}; }
Terms of_embedding_bag(const Signature& s) {
  return {GradientTerm{&scatter_bags, {gradient()}, {0}, to_rows(s.in[0].rows)}};
}
Terms of_concat(const Signature& s) {
  Terms terms;
  Index begin = 0;
  for (const Type& type : s.in) {
    terms.push_back(GradientTerm{&slice, {gradient()}, {}, columns(begin, begin + type.width)});
    begin += type.width;
  }
  return terms;
}
Terms of_slice(const Signature& s) {
  return {GradientTerm{&place, {gradient()}, {}, at_column(s.attributes.sizes[0], s.in[0].width)}};
}
Terms of_place(const Signature& s) {
  const Index begin = s.attributes.sizes[0];
  return {GradientTerm{&slice, {gradient()}, {}, columns(begin, begin + s.in[0].width)}};
}
Terms of_pick(const Signature& s) { return {GradientTerm{&pick_gradient, {gradient()}, {0}, to_width(s.in[0].width)}}; }
Terms of_segment_sum(const Signature& s) {
  return {GradientTerm{&segment_spread, {gradient()}, {0}, to_rows(s.in[0].rows)}};
}
Terms of_segment_mean(const Signature& s) {
  return {GradientTerm{&segment_spread_mean, {gradient()}, {0}, to_rows(s.in[0].rows)}};
}

IndexRange rows_of_table(const Signature& s, std::size_t) { return {0, s.in[0].rows.number() - 1}; }
IndexRange rows_of_table_or_none(const Signature& s, std::size_t) { return {-1, s.in[0].rows.number() - 1}; }
IndexRange columns_or_none(const Signature& s, std::size_t) { return {-1, s.in[0].width - 1}; }

}  // namespace

constinit const Operator gather_rows = rowwise({.name = "gather_rows",
                                                .index_inputs = 1,
                                                .infer = infer_gather,
                                                .gradients = of_gather,
                                                .whole = 0b1,
                                                .zero = 0b1});
constinit const Operator embedding = rowwise({.name = "embedding",
                                              .index_inputs = 1,
                                              .infer = infer_embedding,
                                              .gradients = of_gather,
                                              .whole = 0b1,
                                              .zero = 0b1,
                                              .index_range = rows_of_table});
constinit const Operator embedding_bag = rowwise({.name = "embedding_bag",
                                                  .index_inputs = 1,
                                                  .infer = infer_embedding_bag,
                                                  .gradients = of_embedding_bag,
                                                  .whole = 0b1,
                                                  .zero = 0b1,
                                                  .index_range = rows_of_table_or_none});
constinit const Operator scatter_bags = sum_of_rows({.name = "scatter_bags",
                                                     .index_inputs = 1,
                                                     .infer = infer_scatter_bags,
                                                     .zero = 0b1,
                                                     .columnwise = true,
                                                     .attributes = "to_rows"});
constinit const Operator gather_where = rowwise(
    {.name = "gather_where", .inputs = 2, .index_inputs = 1, .infer = infer_gather_where, .whole = 0b11, .zero = 0b10});
constinit const Operator scatter_rows = sum_of_rows({.name = "scatter_rows",
                                                     .index_inputs = 1,
                                                     .infer = infer_scatter,
                                                     .gradients = term<gather_rows, gradient>,
                                                     .zero = 0b1,
                                                     .columnwise = true,
                                                     .attributes = "to_rows"});
constinit const Operator concat =
    rowwise({.name = "concat", .inputs = Operator::any_number, .infer = infer_concat, .gradients = of_concat});
constinit const Operator slice =
    rowwise({.name = "slice", .infer = infer_slice, .gradients = of_slice, .zero = 0b1, .attributes = "columns"});
constinit const Operator place =
    rowwise({.name = "place", .infer = infer_place, .gradients = of_place, .zero = 0b1, .attributes = "at_column"});

constinit const Operator pick = rowwise({.name = "pick",
                                         .index_inputs = 1,
                                         .infer = one_column_by_index,
                                         .gradients = of_pick,
                                         .zero = 0b1,
                                         .index_range = columns_or_none});
constinit const Operator pick_gradient = rowwise(
    {.name = "pick_gradient", .index_inputs = 1, .infer = infer_pick_gradient, .zero = 0b1, .attributes = "to_width"});
constinit const Operator row_max =
    rowwise({.name = "row_max", .infer = one_column, .gradients = term<row_max_gradient, x, gradient>, .zero = 0b1});
constinit const Operator row_max_gradient =
    rowwise({.name = "row_max_gradient", .inputs = 2, .infer = like_operand<one_column>, .zero = 0b10});

/// A reduction of the rows of each segment.
static consteval Operator reduction(OpName name, Terms (*gradients)(const Signature&)) {
  return {.name = name,
          .index_inputs = 1,
          .infer = infer_segments,
          .gradients = gradients,
          .locality = Locality::rowwise,
          .whole = 0b1,
          .zero = 0b1};
}
constinit const Operator segment_sum = reduction("segment_sum", of_segment_sum);
constinit const Operator segment_mean = reduction("segment_mean", of_segment_mean);
constinit const Operator segment_max = reduction("segment_max", term<segment_max_gradient, x, gradient>);
constinit const Operator segment_argmax = reduction("segment_argmax", nullptr);

constinit const Operator gather_sum{.name = "gather_sum", .index_inputs = 2, .infer = infer_gather_sum, .zero = 0b1};
constinit const Operator gather_weighted_sum{
    .name = "gather_weighted_sum", .inputs = 2, .index_inputs = 2, .infer = infer_gather_weighted_sum, .zero = 0b11};
constinit const Operator gather_dot{
    .name = "gather_dot", .inputs = 2, .index_inputs = 2, .infer = infer_gather_dot, .zero = 0b11};

constinit const Operator segment_spread = sum_of_rows({.name = "segment_spread",
                                                       .index_inputs = 1,
                                                       .infer = infer_segment_spread,
                                                       .gradients = term<segment_sum, gradient>,
                                                       .zero = 0b1,
                                                       .columnwise = true,
                                                       .attributes = "to_rows"});
constinit const Operator segment_spread_mean = sum_of_rows({.name = "segment_spread_mean",
                                                            .index_inputs = 1,
                                                            .infer = infer_segment_spread,
                                                            .gradients = term<segment_mean, gradient>,
                                                            .zero = 0b1,
                                                            .columnwise = true,
                                                            .attributes = "to_rows"});
constinit const Operator segment_max_gradient{
    .name = "segment_max_gradient", .inputs = 2, .index_inputs = 1, .infer = like_operand<infer_segments>};
constinit const Operator sgd_rows{.name = "sgd_rows",
                                  .inputs = Operator::any_number,
                                  .index_inputs = 2,
                                  .infer = infer_sgd_rows,
                                  .attributes = "rows_at_rate",
                                  .updates = true};
constinit const Operator sum_parts{
    .name = "sum_parts", .inputs = Operator::any_number, .index_inputs = 2, .infer = infer_sum_parts};

Attributes columns(Index begin, Index end) { return {.made_by = "columns", .sizes = {begin, end}}; }
Attributes at_column(Index begin, Index width) { return {.made_by = "at_column", .sizes = {begin, width}}; }
Attributes rows_at_rate(Rows rows, double rate, double decay) {
  require_rate("sgd_rows", rate, decay);
  return {.made_by = "rows_at_rate", .rows = rows, .values = {rate, decay}};
}

}  // namespace windrow::op
