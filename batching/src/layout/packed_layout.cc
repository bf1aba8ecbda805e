#include "windrow/batching/backend/packed_layout.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "windrow/ops/row_segments.h"

namespace windrow {

PackedLayout::PackedLayout(const Plan& plan, const Layout& layout, const Contents& contents)
    : indices(plan.types.size()),
      values(plan.types.size()),
      children(plan.types.size()),
      consumers(plan.types.size()),
      pairs(plan.types.size()) {
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    if (contents.columns) pack_columns(layout.types[t], t);
    if (contents.gathers && layout.types[t].rows > 0) pack_sources(plan, layout, t);
  }
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    if (plan.types[t].in_place && layout.types[t].edges > 0) pack_pairs(plan, layout, t);
  }
  if (!contents.columns) return;
  pack_segments(plan, layout);
  pack_constants(plan);
}

void PackedLayout::pack_segments(const Plan& plan, const Layout& layout) {
  for (const Plan::Rows& rows : plan.rows) {
    const TypeRows& type = layout.types[static_cast<std::size_t>(rows.vertex_type)];
    const auto& looked_up = type.indices[rows.index_pull];
    const RowSegments made = row_segments(looked_up.elements, static_cast<std::size_t>(looked_up.width));
    segments.push_back({.bounds = words.size(),
                        .order = words.size() + made.bounds.size(),
                        .count = static_cast<Index>(made.bounds.size() / 3),
                        .length = static_cast<Index>(made.order.size())});
    words.insert(words.end(), made.bounds.begin(), made.bounds.end());
    words.insert(words.end(), made.order.begin(), made.order.end());
  }
}

void PackedLayout::pack_columns(const TypeRows& type, std::size_t number) {
  for (const auto& column : type.indices) {
    indices[number].push_back(words.size());
    words.insert(words.end(), column.elements.begin(), column.elements.end());
  }
  for (const auto& column : type.values) {
    const std::size_t at = words.size();
    values[number].push_back(at);
    words.resize(at + column.elements.size());
    if (!column.elements.empty()) {
      std::memcpy(&words[at], column.elements.data(), column.elements.size() * sizeof(float));
    }
  }
}

/// Appends begin and end of each row's elements, which ascend by row.
template <class Element, class RowOf>
static PackedGather append_bounds(PackedLayout::Words& words, Index rows, const std::vector<Element>& from,
                                  RowOf row_of) {
  PackedGather gather{.bounds = words.size(), .rows = rows, .length = static_cast<Index>(from.size())};
  words.resize(words.size() + 2 * static_cast<std::size_t>(rows));
  std::int32_t* bounds = words.data() + gather.bounds;
  std::size_t at = 0;
  for (Index r = 0; r < rows; ++r) {
    *bounds++ = static_cast<std::int32_t>(at);
    while (at < from.size() && row_of(from[at]) == r) ++at;
    *bounds++ = static_cast<std::int32_t>(at);
  }
  gather.order = words.size();
  return gather;
}

PackedGather PackedLayout::append(Words& words, Index rows, const std::vector<RowPair>& from) {
  const PackedGather gather = append_bounds(words, rows, from, [](const RowPair& pair) { return pair.row; });
  words.resize(words.size() + 2 * from.size());
  std::int32_t* order = words.data() + gather.order;
  for (const RowPair& pair : from) {
    *order++ = pair.first;
    *order++ = pair.second;
  }
  return gather;
}

PackedGather PackedLayout::append(Words& words, Index rows, const std::vector<std::pair<Index, std::int32_t>>& from) {
  const PackedGather gather = append_bounds(words, rows, from, [](const auto& pair) { return pair.first; });
  for (const auto& [row, source] : from) words.push_back(source);
  return gather;
}

void PackedLayout::pack_sources(const Plan& plan, const Layout& layout, std::size_t type) {
  using Sources = std::vector<std::pair<Index, std::int32_t>>;
  const TypeRows& rows = layout.types[type];
  std::map<std::pair<std::size_t, std::size_t>, Sources> of_children, of_consumers;  // by type and child
  const TypePlan& of = plan.types[type];
  for (const Rate rate : {Rate::vertices, Rate::edges}) {
    const auto& producers = layout.producers(type, rate);
    const std::size_t count = rate == Rate::vertices ? of.by_number : of.per_edge;
    const std::size_t first = rate == Rate::vertices ? 0 : of.by_number;
    for (std::size_t i = 0; i < producers.size(); ++i) {
      if (producers[i].row < 0) continue;
      const std::pair from(std::size_t{producers[i].type}, first + i % count);
      of_children[from].push_back({static_cast<Index>(i / count), producers[i].row});
    }
  }
  for (const auto& [from, sources] : of_children) {
    const Index slots = layout.count(type, of.rate_of_child(from.second));
    children[type].push_back({from.first, from.second, append(words, slots, sources)});
  }
  const auto note = [&](Index row, Slot slot) {
    if (slot.row >= 0) of_consumers[{slot.type, slot.child}].push_back({row, slot.row});
  };
  auto more = rows.further.begin();
  for (Index r = 0; r < rows.rows; ++r) {
    note(r, layout.slot(type, r));
    for (; more != rows.further.end() && more->row == r; ++more) note(r, more->slot);
  }
  for (const auto& [to, sources] : of_consumers) {
    consumers[type].push_back({to.first, to.second, append(words, rows.rows, sources)});
  }
}

/// Orders pairs by their rows, of which there are `rows`. Pairs of one row keep their order.
static std::vector<PackedLayout::RowPair> by_row(const std::vector<PackedLayout::RowPair>& pairs, Index rows) {
  std::vector<std::size_t> next(static_cast<std::size_t>(rows) + 1, 0);
  for (const auto& pair : pairs) ++next[static_cast<std::size_t>(pair.row) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  std::vector<PackedLayout::RowPair> ordered(pairs.size());
  for (const auto& pair : pairs) ordered[next[static_cast<std::size_t>(pair.row)]++] = pair;
  return ordered;
}

/// For a type that reads states in place.
void PackedLayout::pack_pairs(const Plan& plan, const Layout& layout, std::size_t type) {
  struct Lists {
    std::vector<RowPair> of_edges, of_vertices, of_children;
  };
  std::map<std::pair<std::size_t, std::size_t>, Lists> lists;  // by type of the producer and child
  auto to = lists.end();                                       // neighbours usually have children of one type
  const TypeRows& rows = layout.types[type];
  const TypePlan& of = plan.types[type];
  const auto& producers = layout.producers(type, Rate::edges);
  for (std::int32_t vertex = 0; vertex < rows.rows; ++vertex) {
    const auto at = static_cast<std::size_t>(vertex);
    for (std::int32_t edge = rows.edge_begin[at]; edge < rows.edge_begin[at + 1]; ++edge) {
      for (std::size_t k = 0; k < of.per_edge; ++k) {
        const Producer from = producers[static_cast<std::size_t>(edge) * of.per_edge + k];
        if (from.row < 0) continue;
        const std::pair of_child(std::size_t{from.type}, of.by_number + k);
        if (to == lists.end() || to->first != of_child) {
          to = lists.try_emplace(of_child).first;
          const auto most = static_cast<std::size_t>(rows.edges);
          for (auto* list : {&to->second.of_edges, &to->second.of_vertices}) list->reserve(most);
          if (plan.training) to->second.of_children.reserve(most);
        }
        to->second.of_edges.push_back({edge, from.row, vertex});
        to->second.of_vertices.push_back({vertex, from.row, edge});
        if (plan.training) to->second.of_children.push_back({from.row, vertex, edge});
      }
    }
  }
  for (auto& [from, list] : lists) {
    pairs[type].of_edges.push_back({from.first, from.second, append(words, rows.edges, list.of_edges)});
    pairs[type].of_vertices.push_back({from.first, from.second, append(words, rows.rows, list.of_vertices)});
    if (!plan.training) continue;
    const Index children_rows = layout.types[from.first].rows;
    pairs[from.first].of_children.push_back(
        {type, from.second, append(words, children_rows, by_row(list.of_children, children_rows))});
  }
}

void PackedLayout::pack_constants(const Plan& plan) {
  constants[0] = 0;
  Index widest = 1;
  const auto look = [&](const Step& step) {
    if (step.does == Step::Does::fill) constants[std::bit_cast<std::uint32_t>(step.constant)] = 0;
    widest = std::max(widest, step.out.width);
  };
  for (const TypePlan& type : plan.types) {
    for (const auto& phase : type.phases) {
      for (const Segment& segment : phase) std::ranges::for_each(segment.steps, look);
    }
  }
  for (const auto* steps : {&plan.before, &plan.after}) {
    for (const TensorStep& step : *steps) look(step.step);
  }
  for (const ir::Field& output : plan.program.function->outputs) widest = std::max(widest, output.width);
  for (auto& [constant, at] : constants) {
    at = words.size();
    words.insert(words.end(), static_cast<std::size_t>(widest), static_cast<std::int32_t>(constant));
  }
}

}  // namespace windrow
