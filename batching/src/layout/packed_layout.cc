#include "windrow/batching/internal/packed_layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "windrow/ops/internal/row_segments.h"

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

/// Appends a gather. of(element) is the row that takes the element, followed by the numbers that the row takes. A row
/// takes elements in their order.
template <class Element, class Of>
static PackedGather append_by_row(PackedLayout::Words& words, Index rows, const std::vector<Element>& from, Of of) {
  constexpr std::size_t numbers = std::tuple_size_v<decltype(of(from.front()))> - 1;
  const PackedGather gather{.bounds = words.size(),
                            .order = words.size() + 2 * static_cast<std::size_t>(rows),
                            .rows = rows,
                            .length = static_cast<Index>(from.size())};
  words.resize(gather.order + numbers * from.size());
  const auto end_of = [bounds = words.data() + gather.bounds](Index row) -> std::int32_t& {
    return bounds[2 * row + 1];
  };
  for (const Element& element : from) ++end_of(of(element)[0]);
  std::int32_t begin = 0;
  for (Index row = 0; row < rows; ++row) {
    words[gather.bounds + 2 * static_cast<std::size_t>(row)] = begin;
    begin += std::exchange(end_of(row), begin);
  }
  for (const Element& element : from) {
    const auto taken = of(element);
    const auto at = static_cast<std::size_t>(end_of(taken[0])++);
    std::copy(taken.begin() + 1, taken.end(), words.data() + gather.order + numbers * at);
  }
  return gather;
}

PackedGather PackedLayout::append(Words& words, Index rows, const std::vector<RowSource>& from) {
  return append_by_row(words, rows, from, [](const RowSource& one) { return std::array{one.row, one.source}; });
}

void PackedLayout::pack_sources(const Plan& plan, const Layout& layout, std::size_t type) {
  const TypeRows& rows = layout.types[type];
  std::map<std::pair<std::size_t, std::size_t>, std::vector<RowSource>> of_children, of_consumers;  // by type and child
  const TypePlan& of = plan.types[type];
  for (const Rate rate : {Rate::vertices, Rate::edges}) {
    const auto& producers = layout.producers(type, rate);
    const std::size_t count = rate == Rate::vertices ? of.by_number : of.per_edge;
    const std::size_t first = rate == Rate::vertices ? 0 : of.by_number;
    for (std::size_t i = 0; i < producers.size(); ++i) {
      if (producers[i].row < 0) continue;
      const std::pair from(std::size_t{producers[i].type}, first + i % count);
      of_children[from].push_back({static_cast<std::int32_t>(i / count), producers[i].row});
    }
  }
  for (const auto& [from, sources] : of_children) {
    const Index slots = layout.count(type, of.rate_of_child(from.second));
    children[type].push_back({from.first, from.second, append(words, slots, sources)});
  }
  const auto note = [&](std::int32_t row, Slot slot) {
    if (slot.row >= 0) of_consumers[{slot.type, slot.child}].push_back({row, slot.row});
  };
  auto more = rows.further.begin();
  for (std::int32_t r = 0; r < rows.rows; ++r) {
    note(r, layout.slot(type, r));
    for (; more != rows.further.end() && more->row == r; ++more) note(r, more->slot);
  }
  for (const auto& [to, sources] : of_consumers) {
    consumers[type].push_back({to.first, to.second, append(words, rows.rows, sources)});
  }
}

/// Packs the pairs of a type that reads states in place.
void PackedLayout::pack_pairs(const Plan& plan, const Layout& layout, std::size_t type) {
  struct Read {
    std::int32_t edge, vertex, child;
  };
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Read>> reads;  // by type of the producer and child
  auto to = reads.end();                                                   // adjacent rows usually have the same
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
        if (to == reads.end() || to->first != of_child) {
          to = reads.try_emplace(of_child).first;
          to->second.reserve(static_cast<std::size_t>(rows.edges));
        }
        to->second.push_back({edge, vertex, from.row});
      }
    }
  }
  words.reserve(words.size() + 8 * producers.size() + 2 * static_cast<std::size_t>(rows.rows + layout.vertices));
  for (const auto& [from, list] : reads) {
    const auto source = [&, &from = from, &list = list](Index takers, auto of_read) {
      return Source{from.first, from.second, append_by_row(words, takers, list, of_read)};
    };
    pairs[type].of_edges.push_back(source(rows.edges, [](const Read& read) {
      return std::array{read.edge, read.child, read.vertex};
    }));
    pairs[type].of_vertices.push_back(source(rows.rows, [](const Read& read) {
      return std::array{read.vertex, read.child, read.edge};
    }));
    if (!plan.training) continue;
    Source of_children = source(layout.types[from.first].rows, [](const Read& read) {
      return std::array{read.child, read.vertex, read.edge};
    });
    of_children.type = type;
    pairs[from.first].of_children.push_back(of_children);
  }
}

void PackedLayout::pack_constants(const Plan& plan) {
  constants[0] = 0;
  Index widest = 1;
  const auto look = [&](const Step& step) {
    if (step.does == Step::Does::fill) constants[std::bit_cast<std::uint32_t>(step.constant)] = 0;
    widest = std::max(widest, step.out.width);
  };
  for (const TypePlan& type : plan.types) each_step(type, look);
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
