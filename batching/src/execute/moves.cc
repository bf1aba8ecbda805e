// Steps that move values between vertices, or read values of other vertices in place.
#include <algorithm>
#include <cstring>

#include "execute/step_kernels.h"
#include "windrow/ops/internal/row_sums.h"
#include "windrow/ops/operators.h"

namespace windrow {
namespace {

template <class T>
Matrix<T> columns_of(const Matrix<T>& matrix, Index begin, Index width) {
  return {matrix.data + begin, matrix.rows, width, matrix.stride};
}

}  // namespace

// --- By slots, side by side

template <class Visit, class VisitMore, class VisitNone>
void StepKernels::each_slot(SlotsOf slots_of, std::size_t state, const At& at, Visit visit, VisitMore visit_more,
                            VisitNone visit_none) const {
  const TypeRows& here = of_.layout_.types[at.type];
  std::size_t type = of_.plan_->types.size();  // of the last consumer; adjacent rows usually have consumers of one type
  Rate of_rate = Rate::vertices;
  const ChildSlots* slots = nullptr;
  float* memory = nullptr;
  Index stride = 0;
  const auto look = [&](Index row, Slot slot, auto& visit_slot) {
    const Rate rate = of_.plan_->types[slot.type].rate_of_child(slot.child);
    if (slot.type != type || rate != of_rate) {
      type = slot.type;
      of_rate = rate;
      const TypePlan& consumer = of_.plan_->types[type];
      slots = &(consumer.*slots_of)[consumer.link(state, rate)];
      if (slots->any()) memory = of_.region(type, slots->region);
      stride = slots->any() ? consumer.regions[slots->region].stride : 0;
    }
    if (!slots->any() || slots->column[slot.child] < 0) return false;
    visit_slot(row - at.rows.begin, memory + slot.row * stride + slots->column[slot.child]);
    return true;
  };
  for (Index r = at.rows.begin; r < at.rows.end; ++r) {
    const Slot slot = of_.layout_.slot(at.type, r);
    if (slot.row < 0 || !look(r, slot, visit)) visit_none(r - at.rows.begin);
  }
  const TypeRows::Further first{static_cast<std::int32_t>(at.rows.begin)};
  auto more = std::lower_bound(here.further.begin(), here.further.end(), first);
  for (; more != here.further.end() && more->row < at.rows.end; ++more) look(more->row, more->slot, visit_more);
}

void StepKernels::scatter(const Step& step, const At& at) const {
  if (of_.in_order()) throw Error("states are not scattered in order; expected a plan of options_for()");
  const Matrix<const float> from = of_.operand(step.in[0], at);
  const auto bytes = static_cast<std::size_t>(from.width) * sizeof(float);
  if (bytes == 0) return;  // the pointers may be null, which memcpy does not allow
  const auto copy = [&](Index row, float* to) { std::memcpy(to, from.row(row), bytes); };
  each_slot(&TypePlan::states, step.state, at, copy, copy, [](Index) {});
}

void StepKernels::add_incoming(const Step& step, const At& at) const {
  const Matrix<float> to = of_.place(step.out, at);
  const bool overwrites = step.write == Write::overwrite;
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
      [&](Index row, const float* gradient) {
        if (!overwrites) return add(gradient, to.row(row), to.width);
        float* const sum = to.row(row);
        for (Index c = 0; c < to.width; ++c) sum[c] = 0.0f + gradient[c];  // -0 becomes 0, as in a sum of more
      },
      [&](Index row, const float* gradient) {
        if (row != row_of_more) add_more();
        row_of_more = row;
        more.push_back(gradient);
      },
      [&](Index row) {
        if (overwrites) std::fill_n(to.row(row), to.width, 0.0f);
      });
  add_more();
}

// --- By packed indices

void StepKernels::call(const Operator& op, KernelCall<float> call, Lane* lane) const {
  call.op = &op;
  call.lane = lane;
  of_.device_.kernels.find(op)(call, *of_.device_.memory);
}

/// Adds the rows that `gather` names to rows of `out`.
void StepKernels::gather_sum(Matrix<const float> from, const std::int32_t* words, const PackedGather& gather,
                             Range rows, Matrix<float> out, Lane* lane) const {
  const Matrix<const std::int32_t> indices[] = {
      {words + gather.bounds + 2 * static_cast<std::size_t>(rows.begin), rows.end - rows.begin, 2, 2},
      {words + gather.order, gather.length, 1, 1}};
  call(op::gather_sum, {.in = {&from, 1}, .indices = indices, .out = out, .write = Write::add}, lane);
}

/// Missing children give zeros.
void StepKernels::gather(const Step& step, const At& at) const {
  const Matrix<float> to = of_.place(step.out, at);
  fill(to, 0, Write::overwrite, at.lane);
  const TypePlan& here = of_.plan_->types[at.type];
  const std::vector<Index>& column = here.states[here.link(step.state, at.rate)].column;
  for (const PackedLayout::Source& child : of_.placed_.packed.children[at.type]) {
    if (column[child.child] < 0) continue;
    const Place& stored = of_.plan_->types[child.type].stored[step.state];
    if (stored.in == Place::In::nowhere) continue;
    const Matrix<const float> from = of_.operand(stored, of_.all_rows(child.type, Rate::vertices, at.lane));
    gather_sum(from, of_.words_, child.gather, at.rows, columns_of(to, column[child.child], from.width), at.lane);
  }
}

void StepKernels::gather_incoming(const Step& step, const At& at) const {
  const Matrix<float> to = of_.place(step.out, at);
  if (step.write == Write::overwrite) fill(to, 0, Write::overwrite, at.lane);
  for (const PackedLayout::Source& consumer : of_.placed_.packed.consumers[at.type]) {
    const TypePlan& type = of_.plan_->types[consumer.type];
    const Rate rate = type.rate_of_child(consumer.child);
    const ChildSlots& slots = type.gradients[type.link(step.state, rate)];
    if (!slots.any() || slots.column[consumer.child] < 0) continue;
    const Matrix<const float> from{of_.region(consumer.type, slots.region) + slots.column[consumer.child],
                                   of_.layout_.count(consumer.type, rate), to.width, type.regions[slots.region].stride};
    gather_sum(from, of_.words_, consumer.gather, at.rows, to, at.lane);
  }
}

/// Adds the results of pairs of rows of x and y to the rows of `out`.
void StepKernels::gather_pairs(const Step& step, Matrix<const float> x, Matrix<const float> y,
                               const PackedGather& gather, const At& at, Matrix<float> out) const {
  const Matrix<const float> in[] = {x, y};
  const Matrix<const std::int32_t> indices[] = {
      {of_.word(gather.bounds + 2 * static_cast<std::size_t>(at.rows.begin)), at.rows.end - at.rows.begin, 2, 2},
      {of_.word(gather.order), gather.length, 2, 2}};
  kernel_of(step)({in, indices, out, step.attributes, Write::add, step.op, at.lane}, *of_.device_.memory);
}

/// Attention without copies.
void StepKernels::read_in_place(const Step& step, const At& at) const {
  const Matrix<float> to = of_.place(step.out, at);
  if (step.write == Write::overwrite) fill(to, 0, Write::overwrite, at.lane);
  const bool dot = step.does == Step::Does::gather_dot, of_edges = at.rate == Rate::edges;
  const Matrix<const float> operands = of_.operand(step.in[0], at);  // of the other rate, so all rows
  const PackedLayout::Pairs& pairs = of_.placed_.packed.pairs[at.type];
  for (const PackedLayout::Source& child : of_edges ? pairs.of_edges : pairs.of_vertices) {
    const Place& stored = of_.plan_->types[child.type].stored[step.state];
    if (child.child != step.child || stored.in == Place::In::nowhere) continue;
    const Index width = dot ? operands.width : to.width;
    const Matrix<const float> states = of_.operand(stored, of_.all_rows(child.type, Rate::vertices, at.lane));
    gather_pairs(step, columns_of(states, step.first_column, width), operands, child.gather, at, to);
  }
}

/// Visits the consumers that send products type by type and product by product.
void StepKernels::take_incoming_products(const Step& step, const At& at) const {
  const Matrix<float> to = of_.place(step.out, at);
  if (step.write == Write::overwrite) fill(to, 0, Write::overwrite, at.lane);
  for (const PackedLayout::Source& consumer : of_.placed_.packed.pairs[at.type].of_children) {
    for (const TypePlan::Product& product : of_.plan_->types[consumer.type].products) {
      if (product.state != step.state || product.child != consumer.child) continue;
      const auto all = [&](Rate rate) { return of_.all_rows(consumer.type, rate, at.lane); };
      gather_pairs(step, of_.operand(product.row, all(Rate::vertices)), of_.operand(product.factor, all(Rate::edges)),
                   consumer.gather, at, columns_of(to, product.first_column, product.row.width));
    }
  }
}

}  // namespace windrow
