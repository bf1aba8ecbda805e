#include "plan/steps.h"

#include <algorithm>
#include <utility>

#include "windrow/ops/operators.h"

namespace windrow {
namespace {

using ir::at, ir::Code, ir::Node, ir::Program, ir::Value, ir::no_value;

/// Whether a kernel should run on more rows than a tile has: a product, or another kernel that reads a whole parameter.
/// Excludes products with one number per edge, such as the score of additive attention: they would gain little, but
/// their operand would need memory for all edges.
bool heavy(const Program& program, const Node& node) {
  if (node.code != Code::apply || node.op->locality != Locality::rowwise) return false;
  if (node.is(op::matmul) && node.of_edges() && node.type.width == 1) return false;
  for (std::size_t k = 0; k < node.in.size(); ++k) {
    const Type& type = program.at(node.in[k]).type;
    if (type.rows.counted() && type.rows != Rows::count(1)) return true;
  }
  return false;
}

/// Whether the node only moves values, and adds values that move to the same place.
bool moves(const Node& node) {
  const Operator* const those[] = {&op::gather_rows,    &op::gather_where, &op::embedding,   &op::scatter_rows,
                                   &op::concat,         &op::slice,        &op::place,       &op::segment_sum,
                                   &op::segment_spread, &op::transpose,    &op::spread_rows, &op::spread_columns};
  return std::any_of(std::begin(those), std::end(those), [&](const Operator* one) { return node.is(*one); });
}

/// Whether a step computes the node into a place that the plan can choose.
bool has_own_step(const Node& node) {
  return (node.code == Code::apply && !node.is_view()) || node.code == Code::fill || node.code == Code::incoming ||
         node.code == Code::incoming_products || node.reads_in_place() || node.code == Code::sum;
}

}  // namespace

Roots::Roots(const ir::Program& program) : joins_(program.nodes.size(), 0) {
  std::vector<int> uses(program.nodes.size(), 0);
  const auto use = [&](Value value) {
    if (value != no_value) ++uses[at(value)];
  };
  for (const Node& node : program.nodes) std::for_each(node.in.begin(), node.in.end(), use);
  for (const auto& losses : program.losses) std::for_each(losses.begin(), losses.end(), use);
  for (const auto& pushes : program.pushes) std::for_each(pushes.begin(), pushes.end(), use);
  for (const auto& rows : program.rows) use(rows.rows);

  parts_.resize(program.nodes.size(), {no_value, 0});
  for (std::size_t i = program.nodes.size(); i-- > 0;) {
    const Node& node = program.nodes[i];
    if (parts_[i].root == no_value) parts_[i] = {static_cast<Value>(i), 0};
    if (!node.is_sum()) continue;
    for (std::size_t k = 0; k < node.in.size(); ++k) {
      const Value in = node.in[k];
      if (uses[at(in)] != 1 || !has_own_step(program.at(in))) continue;
      parts_[at(in)] = {parts_[i].root, parts_[i].column + node.at[k]};
      joins_[at(in)] = 1;
    }
  }
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {  // operands of views already have their roots
    const Node& node = program.nodes[i];
    if (!node.is_view()) continue;
    const Position of = parts_[at(node.in[0])];
    parts_[i] = {of.root, of.column + node.attributes.sizes[0]};
  }
}

Steps::Steps(const ir::Program& program, const Roots& roots, const PlanOptions& options)
    : program_(program), roots_(roots), options_(options), gathered_(program.function->states.size(), 0) {
  for (const Node& node : program.nodes) {
    if (node.code == Code::gather) gathered_[node.number] = 1;
  }
}

Place Steps::provisional(Value value) const {
  const Roots::Position part = roots_.of(value);
  return {Place::In::arena, at(part.root), part.column, node(value).type.width, rate_of(node(value))};
}

std::vector<Step> Steps::of(Value value) const {
  std::vector<Step> steps = unrated(value);
  for (Step& step : steps) step.rate = rate_of(node(value));
  return steps;
}

std::vector<Step> Steps::unrated(Value value) const {
  const Node& n = node(value);
  if (n.is_view()) return {};
  switch (n.code) {
    case Code::apply:
      return {kernel_step(value)};
    case Code::fill:
      return {{.does = Step::Does::fill,
               .node = value,
               .out = provisional(value),
               .constant = static_cast<float>(n.constant)}};
    case Code::incoming:
      return {{.does = Step::Does::incoming, .node = value, .out = provisional(value), .state = n.number}};
    case Code::incoming_products:
      return {{.does = Step::Does::incoming_products,
               .node = value,
               .op = &op::gather_weighted_sum,
               .out = provisional(value),
               .state = n.number,
               .counts = Step::Counts::arithmetic}};
    case Code::gather_dot:
    case Code::gather_weighted_sum:
      return {step_in_place(value)};
    case Code::scatter:
      return scatter_steps(value);
    case Code::gather:
      return gather_steps(value);
    case Code::sum:
    case Code::send:
    case Code::gradient:
      return copies_into(value);
    default:
      return {};
  }
}

std::vector<Step> Steps::scatter_steps(Value value) const {
  const Node& n = node(value);
  if (!options_.slots || gathered_[n.number] == 0) return {};
  return {{.does = Step::Does::scatter, .node = value, .in = {provisional(n.in[0])}, .state = n.number}};
}

std::vector<Step> Steps::gather_steps(Value value) const {
  if (options_.slots) return {};
  return {{.does = Step::Does::gather, .node = value, .out = provisional(value), .state = node(value).number}};
}

Step Steps::step_in_place(Value value) const {
  const Node& n = node(value);
  const bool dot = n.code == Code::gather_dot;
  return {.does = dot ? Step::Does::gather_dot : Step::Does::gather_weighted_sum,
          .node = value,
          .op = dot ? &op::gather_dot : &op::gather_weighted_sum,
          .in = {provisional(n.in[0])},
          .out = provisional(value),
          .state = n.number,
          .child = static_cast<std::size_t>(n.child),
          .first_column = n.at[0],
          .counts = Step::Counts::arithmetic};
}

Step Steps::kernel_step(Value value) const {
  const Node& n = node(value);
  if (n.of_vertices() && !ir::by_rows(*n.op)) {
    throw MisuseError(program_.function->name + ": " + std::string(n.op->name.text()) +
                      " mixes the rows of a batch; expected gradients that are elementwise or rowwise");
  }
  Step step{.does = Step::Does::kernel,
            .node = value,
            .op = n.op,
            .attributes = n.attributes,
            .indices = n.indices,
            .out = provisional(value)};
  int type = n.vertex_type;
  for (Value in : n.in) {
    step.in.push_back(provisional(in));
    type = std::max(type, node(in).vertex_type);  // the type whose rows are summed
  }
  for (std::size_t pull : n.indices) step.may_lack |= program_.lacks_index(type, pull);
  if (n.is(op::matmul) || n.is(op::matmul_nt)) step.flops_a_row = 2 * node(n.in[0]).type.width * n.type.width;
  if (n.is(op::matmul_tn)) step.flops_a_row = 2 * node(n.in[0]).type.width * node(n.in[1]).type.width;
  const bool product = step.flops_a_row > 0 || heavy(program_, n);
  step.counts = moves(n) ? Step::Counts::move : product ? Step::Counts::product : Step::Counts::arithmetic;
  return step;
}

/// The steps that copy those parts of a sum that are not computed in its place.
std::vector<Step> Steps::copies_into(Value sum) const {
  const Node& n = node(sum);
  const Place whole = provisional(sum);
  std::vector<Step> steps;
  for (std::size_t k = 0; k < n.in.size(); ++k) {
    if (roots_.joins(n.in[k])) continue;
    const Place from = provisional(n.in[k]);
    steps.push_back({.does = Step::Does::kernel,
                     .node = sum,
                     .op = &op::scale,
                     .attributes = op::scaled_by(1),
                     .in = {from},
                     .out = {whole.in, whole.number, whole.column + n.at[k], from.width, whole.rate}});
  }
  if (n.in.empty()) steps.push_back({.does = Step::Does::fill, .node = sum, .out = whole});
  return steps;
}

/// Begins with the states of children, which lie in slots or are copied. Then cycles through the four kinds of segments
/// and adds all ready tasks of each kind, until no task is left.
std::vector<Segment> Steps::segments(std::vector<Value> tasks) const {
  static constexpr struct {
    bool fused;
    Rate rate;
  } kinds[] = {{true, Rate::edges}, {true, Rate::vertices}, {false, Rate::edges}, {false, Rate::vertices}};
  std::vector<Segment> segments;
  for (const Rate rate : {Rate::edges, Rate::vertices}) {
    Segment segment{.fused = options_.fusion, .rate = rate};
    for (Value task : tasks) {
      if (node(task).code != Code::gather || rate_of(node(task)) != rate) continue;
      for (Step& step : of(task)) segment.steps.push_back(std::move(step));
    }
    if (!segment.steps.empty()) segments.push_back(std::move(segment));
  }
  std::erase_if(tasks, [&](Value task) { return node(task).code == Code::gather; });
  for (std::size_t turn = 0; !tasks.empty(); ++turn) {
    const auto [fused, rate] = kinds[turn % std::size(kinds)];
    Segment segment{.fused = fused && options_.fusion, .rate = rate};
    std::vector<Value> left;  // ascending, as the tasks are
    for (Value task : tasks) {
      const Node& n = node(task);
      const bool ready = std::none_of(n.in.begin(), n.in.end(),
                                      [&](Value value) { return std::binary_search(left.begin(), left.end(), value); });
      if (!ready || heavy(program_, n) == fused || rate_of(n) != rate) {
        left.push_back(task);
        continue;
      }
      if (!options_.fusion && !segment.steps.empty()) {
        segments.push_back(std::exchange(segment, {.fused = false, .rate = rate}));
      }
      for (Step& step : of(task)) segment.steps.push_back(std::move(step));
    }
    tasks = std::move(left);
    if (!segment.steps.empty()) segments.push_back(std::move(segment));
  }
  return segments;
}

Writes::Cover* Writes::cover_of(const Step& step) {
  if (step.does == Step::Does::scatter || !program_.nodes[step.out.number].is_sum()) return nullptr;
  Cover& cover = covers_[step.out.number];
  cover.columns.resize(static_cast<std::size_t>(program_.nodes[step.out.number].type.width));
  return &cover;
}

void Writes::announce(const Step& step) {
  Cover* cover = cover_of(step);
  if (cover == nullptr) return;
  const auto begin = cover->columns.begin() + step.out.column, end = begin + step.out.width;
  const auto written = std::count(begin, end, 1);
  if (written != 0 && written != step.out.width) cover->clear_first = true;
  std::fill(begin, end, 1);
}

void Writes::all_announced() {
  for (auto& [root, cover] : covers_) {
    cover.clear_first |= std::count(cover.columns.begin(), cover.columns.end(), 0) != 0;
    std::fill(cover.columns.begin(), cover.columns.end(), 0);
  }
}

std::vector<Step> Writes::decide(Step step) {
  Cover* cover = cover_of(step);
  if (cover == nullptr) return {std::move(step)};
  std::vector<Step> steps;
  if (cover->clear_first && !cover->begun) {
    const Index width = program_.nodes[step.out.number].type.width;
    steps.push_back({.does = Step::Does::fill,
                     .node = step.node,
                     .out = {step.out.in, step.out.number, 0, width, step.out.rate},
                     .rate = step.rate});
    std::fill(cover->columns.begin(), cover->columns.end(), 1);
  }
  cover->begun = true;
  const auto begin = cover->columns.begin() + step.out.column, end = begin + step.out.width;
  step.write = std::count(begin, end, 1) != 0 ? Write::add : Write::overwrite;
  std::fill(begin, end, 1);
  steps.push_back(std::move(step));
  return steps;
}

}  // namespace windrow
