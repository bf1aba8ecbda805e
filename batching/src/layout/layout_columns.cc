// Fills in what follows from the layout alone, without the graphs: producers of states, and columns.
#include <algorithm>
#include <iterator>
#include <limits>

#include "layout/layout_maker.h"

namespace windrow {

bool Layout::Maker::any_producers() const {
  return !plan_.slots || std::ranges::any_of(plan_.types, [](const TypePlan& type) { return type.in_place; });
}

/// Inverts the map from producers to slots, for types that read it.
void Layout::Maker::find_producers() {
  for (std::size_t t = 0; t < layout_.types.size(); ++t) {
    TypeRows& type = layout_.types[t];
    const TypePlan& plan = plan_.types[t];
    if (!plan_.slots) type.producers[0].assign(static_cast<std::size_t>(type.rows) * plan.by_number, {});
    if (plan_.slots && !plan.in_place) continue;
    type.producers[1].assign(static_cast<std::size_t>(type.edges) * plan.per_edge, {});
  }
  for (std::size_t t = 0; t < layout_.types.size(); ++t) {
    const auto note = [&](Index row, Slot slot) {
      if (slot.row < 0) return;
      const TypePlan& type = plan_.types[slot.type];
      const Rate rate = type.rate_of_child(slot.child);
      auto& producers = layout_.types[slot.type].producers[static_cast<std::size_t>(rate)];
      if (producers.empty()) return;
      const std::size_t children = rate == Rate::vertices ? type.by_number : type.per_edge;
      const std::size_t child = rate == Rate::vertices ? slot.child : slot.child - type.by_number;
      producers[static_cast<std::size_t>(slot.row) * children + child] = {static_cast<std::int32_t>(row),
                                                                          static_cast<std::uint16_t>(t)};
    };
    for (Index row = 0; row < layout_.types[t].rows; ++row) note(row, layout_.slot(t, row));
    for (const TypeRows::Further& more : layout_.types[t].further) note(more.row, more.slot);
  }
}

void Layout::Maker::fill_columns() {
  const ir::Function& function = *plan_.program.function;
  for (TypeRows& type : layout_.types) {
    for (std::size_t i = 0; i < type.indices.size(); ++i) {
      if (type.indices[i].width > 0) fill(function.index_pulls[i], type, type.indices[i].elements);
    }
    for (std::size_t i = 0; i < type.values.size(); ++i) {
      const bool shares = function.pulls[i].holds == ir::Field::Holds::share_of_child;
      if (type.values[i].width > 0 && shares) fill_shares(type, type.values[i].elements);
    }
  }
}

/// Fills in rows of a given tensor, or of an output's gradient, which is given later.
void Layout::Maker::fill_rows(const ir::IndexField& field, const TypeRows& type, std::vector<std::int32_t>& to) const {
  static const std::vector<std::int32_t> by_vertex;
  const bool is_given = field.holds == ir::IndexField::Holds::row;
  const auto& of_gradients = options_.gradient_row_of;
  const std::vector<std::int32_t>& row_of = is_given                             ? *options_.given[field.tensor].row_of
                                            : field.tensor < of_gradients.size() ? of_gradients[field.tensor]
                                                                                 : by_vertex;
  const Index rows = is_given ? options_.given[field.tensor].count : std::numeric_limits<std::int32_t>::max();
  Index used = 0;
  for (std::size_t r = 0; r < to.size(); ++r) {
    const std::int32_t vertex = type.vertex[r];
    to[r] = row_of.empty() ? vertex : row_of[static_cast<std::size_t>(vertex)];
    used = std::max(used, Index{to[r]} + 1);
    if (0 <= to[r] && to[r] < rows) continue;
    const ir::Function& function = *plan_.program.function;
    const auto graph = std::prev(std::ranges::upper_bound(layout_.first_vertex, vertex));
    throw MisuseError(function.name + ": sample " + std::to_string(graph - layout_.first_vertex.begin()) + ", vertex " +
                      std::to_string(vertex - *graph) + ": row " + std::to_string(to[r]) +
                      (is_given ? " of tensor '" + function.tensors[field.tensor].name + "'; expected one of its " +
                                      std::to_string(rows) + " rows"
                                : " of output '" + function.outputs[field.tensor].name + "'; expected 0 or more"));
  }
  if (!is_given) layout_.gradient_rows[field.tensor] = std::max(layout_.gradient_rows[field.tensor], used);
}

void Layout::Maker::fill(const ir::IndexField& field, const TypeRows& type, std::vector<std::int32_t>& to) const {
  using Holds = ir::IndexField::Holds;
  if (field.holds == Holds::row || field.holds == Holds::gradient_row) return fill_rows(field, type, to);
  if (field.holds_dropout()) return fill_dropout(field, type, to);
  const auto& begin = type.edge_begin;
  for (std::size_t r = 0; r + 1 < begin.size(); ++r) {
    if (field.holds == Holds::edges) {
      to[2 * r] = begin[r];
      to[2 * r + 1] = begin[r + 1];
    } else if (field.holds == Holds::consumer) {
      std::fill(to.begin() + begin[r], to.begin() + begin[r + 1], static_cast<std::int32_t>(r));
    } else if (field.holds == Holds::sibling) {
      for (std::int32_t edge = begin[r]; edge < begin[r + 1]; ++edge) {
        to[2 * static_cast<std::size_t>(edge)] = static_cast<std::int32_t>(r);
        to[2 * static_cast<std::size_t>(edge) + 1] = edge - begin[r];
      }
    }
  }
}

void Layout::Maker::fill_dropout(const ir::IndexField& field, const TypeRows& type,
                                 std::vector<std::int32_t>& to) const {
  const auto low = [](std::uint64_t word) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(word)); };
  const auto& [seed, minibatch, samples] = options_.dropout;
  const bool by_vertex = field.holds == ir::IndexField::Holds::dropout;
  auto* row = to.data();
  for (const std::int32_t vertex : type.vertex) {
    const auto graph = std::prev(std::ranges::upper_bound(layout_.first_vertex, vertex));
    *row++ = low(minibatch);
    const auto place = graph - layout_.first_vertex.begin();
    *row++ = samples.empty() ? static_cast<std::int32_t>(place) : samples[static_cast<std::size_t>(place)];
    *row++ = by_vertex ? vertex - *graph : -1;
    *row++ = low(seed);
    *row++ = low(seed >> 32);
  }
}

void Layout::Maker::fill_shares(const TypeRows& type, std::vector<float>& to) {
  for (std::size_t r = 0; r < to.size(); ++r) {
    const std::int32_t children = type.edge_begin[r + 1] - type.edge_begin[r];
    to[r] = children > 0 ? 1.0f / static_cast<float>(children) : 0;
  }
}

}  // namespace windrow
