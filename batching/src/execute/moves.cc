// Steps that move values between vertices, or read values of other vertices where these lie.
#include <algorithm>
#include <cstring>

#include "windrow/batching/backend/execution.h"
#include "windrow/ops/operators.h"
#include "windrow/ops/row_sums.h"

namespace windrow {
namespace {

template <class T>
Matrix<T> columns_of(const Matrix<T>& matrix, Index begin, Index width) {
  return {matrix.data + begin, matrix.rows, width, matrix.stride};
}

}  // namespace

// --- By slots, side by side

template <class Visit, class VisitMore>
void Execution::each_slot(SlotsOf slots_of, std::size_t state, const At& at, Visit visit, VisitMore visit_more) const {
  const TypeRows& here = layout_.types[at.type];
  std::size_t type = plan_->types.size();  // of the last consumer; neighbours usually have consumers of one type
  Rate of_rate = Rate::vertices;
  const ChildSlots* slots = nullptr;
  float* memory = nullptr;
  Index stride = 0;
  const auto look = [&](Index row, Slot slot, auto& visit_slot) {
    const Rate rate = plan_->types[slot.type].rate_of_child(slot.child);
    if (slot.type != type || rate != of_rate) {
      type = slot.type;
      of_rate = rate;
      const TypePlan& consumer = plan_->types[type];
      slots = &(consumer.*slots_of)[consumer.link(state, rate)];
      if (slots->any()) memory = region(type, slots->region, at);
      stride = slots->any() ? consumer.regions[slots->region].stride : 0;
    }
    if (!slots->any() || slots->column[slot.child] < 0) return;
    visit_slot(row - at.rows.begin, memory + slot.row * stride + slots->column[slot.child]);
  };
  for (Index r = at.rows.begin; r < at.rows.end; ++r) {
    const Slot slot = layout_.slot(at.type, r);
    if (slot.row >= 0) look(r, slot, visit);
  }
  const TypeRows::Further first{static_cast<std::int32_t>(at.rows.begin)};
  auto more = std::lower_bound(here.further.begin(), here.further.end(), first);
  for (; more != here.further.end() && more->row < at.rows.end; ++more) look(more->row, more->slot, visit_more);
}

void Execution::scatter(const Step& step, const At& at) const {
  if (in_order()) throw Error("states are not scattered in order; expected a plan of options_for()");
  const Matrix<const float> from = operand(step.in[0], at);
  const auto bytes = static_cast<std::size_t>(from.width) * sizeof(float);
  if (bytes == 0) return;  // the pointers may be null, which memcpy does not allow
  const auto copy = [&](Index row, float* to) { std::memcpy(to, from.row(row), bytes); };
  each_slot(&TypePlan::states, step.state, at, copy, copy);
}

void Execution::add_incoming(const Step& step, const At& at) const {
  const Matrix<float> to = place(step.out, at);
  if (step.write == Write::overwrite) fill(to, 0, Write::overwrite, at.lane);
  const auto add = [](const float* gradient, float* sum, Index n) {
    for (Index c = 0; c < n; ++c) sum[c] += gradient[c];
  };
  std::vector<const float*> more;  // gradients of one row, which may have very many consumers
  Index row_of_more = 0;
  const auto add_more = [&] {
    if (more.empty()) return;
    add_rows(
        to.row(row_of_more), to.width, static_cast<Index>(more.size()),
        [&](Index i, Index begin, float* sum, Index n) { add(more[static_cast<std::size_t>(i)] + begin, sum, n); });
    more.clear();
  };
  each_slot(
      &TypePlan::gradients, step.state, at,
      [&](Index row, const float* gradient) { add(gradient, to.row(row), to.width); },
      [&](Index row, const float* gradient) {
        if (row != row_of_more) add_more();
        row_of_more = row;
        more.push_back(gradient);
      });
  add_more();
}

// --- By packed indices

void Execution::call(const Operator& op, KernelCall<float> call, Lane* lane) const {
  call.op = &op;
  call.lane = lane;
  device_.kernels.find(op)(call, *device_.memory);
}

/// Adds the rows that `gather` names to rows of `out`.
void Execution::gather_sum(Matrix<const float> from, const std::int32_t* words, const PackedGather& gather, Range rows,
                           Matrix<float> out, Lane* lane) const {
  const Matrix<const std::int32_t> indices[] = {
      {words + gather.bounds + 2 * static_cast<std::size_t>(rows.begin), rows.end - rows.begin, 2, 2},
      {words + gather.order, gather.length, 1, 1}};
  call(op::gather_sum, {.in = {&from, 1}, .indices = indices, .out = out, .write = Write::add}, lane);
}

/// Missing children have zeros.
void Execution::gather(const Step& step, const At& at) const {
  const Matrix<float> to = place(step.out, at);
  fill(to, 0, Write::overwrite, at.lane);
  const TypePlan& here = plan_->types[at.type];
  const std::vector<Index>& column = here.states[here.link(step.state, at.rate)].column;
  for (const PackedLayout::Source& child : packed_.children[at.type]) {
    if (column[child.child] < 0) continue;
    const Place& stored = plan_->types[child.type].stored[step.state];
    if (stored.in == Place::In::nowhere) continue;
    const Matrix<const float> from = operand(stored, all_rows(child.type, Rate::vertices, at));
    gather_sum(from, words_, child.gather, at.rows, columns_of(to, column[child.child], from.width), at.lane);
  }
}

void Execution::gather_incoming(const Step& step, const At& at) const {
  const Matrix<float> to = place(step.out, at);
  if (step.write == Write::overwrite) fill(to, 0, Write::overwrite, at.lane);
  for (const PackedLayout::Source& consumer : packed_.consumers[at.type]) {
    const TypePlan& type = plan_->types[consumer.type];
    const Rate rate = type.rate_of_child(consumer.child);
    const ChildSlots& slots = type.gradients[type.link(step.state, rate)];
    if (!slots.any() || slots.column[consumer.child] < 0) continue;
    const Matrix<const float> from{region(consumer.type, slots.region, at) + slots.column[consumer.child],
                                   layout_.count(consumer.type, rate), to.width, type.regions[slots.region].stride};
    gather_sum(from, words_, consumer.gather, at.rows, to, at.lane);
  }
}

/// Adds what the pairs of rows of x and y make to the rows of `out`.
void Execution::gather_pairs(const Step& step, Matrix<const float> x, Matrix<const float> y, const PackedGather& gather,
                             const At& at, Matrix<float> out) const {
  const Matrix<const float> in[] = {x, y};
  const Matrix<const std::int32_t> indices[] = {
      {word(gather.bounds + 2 * static_cast<std::size_t>(at.rows.begin)), at.rows.end - at.rows.begin, 2, 2},
      {word(gather.order), gather.length, 2, 2}};
  kernel_of(step)({in, indices, out, step.attributes, Write::add, step.op, at.lane}, *device_.memory);
}

/// Attention without copies.
void Execution::read_in_place(const Step& step, const At& at) const {
  const Matrix<float> to = place(step.out, at);
  if (step.write == Write::overwrite) fill(to, 0, Write::overwrite, at.lane);
  const bool dot = step.does == Step::Does::gather_dot, of_edges = at.rate == Rate::edges;
  const Matrix<const float> operands = operand(step.in[0], at);  // of the other rate, so all rows
  const PackedLayout::Pairs& pairs = packed_.pairs[at.type];
  for (const PackedLayout::Source& child : of_edges ? pairs.of_edges : pairs.of_vertices) {
    const Place& stored = plan_->types[child.type].stored[step.state];
    if (child.child != step.child || stored.in == Place::In::nowhere) continue;
    const Index width = dot ? operands.width : to.width;
    const Matrix<const float> states = operand(stored, all_rows(child.type, Rate::vertices, at));
    gather_pairs(step, columns_of(states, step.first_column, width), operands, child.gather, at, to);
  }
}

/// The consumers that send products are visited type by type and product by product.
void Execution::take_incoming_products(const Step& step, const At& at) const {
  const Matrix<float> to = place(step.out, at);
  if (step.write == Write::overwrite) fill(to, 0, Write::overwrite, at.lane);
  for (const PackedLayout::Source& consumer : packed_.pairs[at.type].of_children) {
    for (const TypePlan::Product& product : plan_->types[consumer.type].products) {
      if (product.state != step.state || product.child != consumer.child) continue;
      const auto all = [&](Rate rate) { return all_rows(consumer.type, rate, at); };
      gather_pairs(step, operand(product.row, all(Rate::vertices)), operand(product.factor, all(Rate::edges)),
                   consumer.gather, at, columns_of(to, product.first_column, product.row.width));
    }
  }
}

}  // namespace windrow
