#include "parameters/gradient.h"

#include <memory>
#include <utility>

#include "windrow/ops/internal/row_segments.h"

namespace windrow {
namespace {

/// The segments of all lookups, whose rows op::sgd_rows counts through.
RowSegments segments_of(const std::vector<LookedUp>& lookups) {
  if (lookups.size() == 1) return row_segments(lookups.front().row_of, lookups.front().each());
  std::vector<std::int32_t> row_of, place;  // of each number in row_of, the row that it belongs to
  std::int32_t row = 0;
  for (const LookedUp& lookup : lookups) {
    row_of.insert(row_of.end(), lookup.row_of.begin(), lookup.row_of.end());
    for (std::size_t i = 0; i < lookup.row_of.size(); ++i) {
      place.push_back(row + static_cast<std::int32_t>(i / lookup.each()));
    }
    row += static_cast<std::int32_t>(lookup.rows.rows());
  }
  RowSegments segments = row_segments(row_of);
  for (std::int32_t& number : segments.order) number = place[static_cast<std::size_t>(number)];
  return segments;
}

/// Puts both lists into one buffer, which one op writes.
std::vector<IntTensor> to_tensors(const Device& device, const RowSegments& segments, std::source_location from) {
  const auto bounds = static_cast<Index>(segments.bounds.size()), order = static_cast<Index>(segments.order.size());
  const auto buffer = std::make_shared<Buffer>(device.engine, device.memory,
                                               static_cast<std::size_t>(bounds + order) * sizeof(std::int32_t),
                                               OpName("rows"), device.memory_lane());
  std::vector<std::int32_t> both = segments.bounds;
  both.insert(both.end(), segments.order.begin(), segments.order.end());
  IntTensor(buffer, bounds + order, 1).set(std::move(both), from);
  return {IntTensor(buffer, bounds / 3, 3), IntTensor(buffer, order, 1, bounds)};
}

}  // namespace

std::vector<IntTensor> by_table_row(const Device& device, const std::vector<LookedUp>& lookups,
                                    std::source_location from) {
  if (lookups.size() == 1 && !lookups.front().segments.empty()) return lookups.front().segments;
  return to_tensors(device, segments_of(lookups), from);
}

Operands by_table_row(const Device& device, const std::vector<LookedUp>& lookups, const Type& table, double rate,
                      double decay, std::source_location from) {
  Operands operands{.indices = by_table_row(device, lookups, from),
                    .attributes = op::rows_at_rate(table.rows, rate, decay),
                    .write = Write::add};
  for (const LookedUp& lookup : lookups) operands.in.push_back(lookup.rows);
  if (operands.in.empty()) operands.in.push_back(Tensor(device, 0, table.width));
  return operands;
}

Tensor dense(const Device& device, const std::optional<Tensor>& all, const std::vector<LookedUp>& lookups,
             const Type& shape, std::source_location from) {
  const Index rows = shape.rows.number();
  const Tensor sum(device, rows, shape.width, "gradient");
  if (all) {
    apply(device, op::scale, {.in = {*all}, .attributes = op::scaled_by(1)}, sum, from);
  } else {
    sum.set(std::vector<float>(static_cast<std::size_t>(rows * shape.width), 0), from);
  }
  if (!lookups.empty()) apply(device, op::sgd_rows, by_table_row(device, lookups, shape, -1, 0, from), sum, from);
  return sum;
}

}  // namespace windrow
