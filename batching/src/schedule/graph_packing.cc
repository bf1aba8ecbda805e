// Sorts the vertices of a graph by type and level, and packs the whole graph into one block.
#include <algorithm>
#include <bit>
#include <numeric>

#include "schedule/loading.h"

namespace windrow {
namespace {

/// The vertices in the order of their keys, which are less than `keys`; of equal keys, in the order given.
std::vector<std::int32_t> sorted_by(const std::vector<std::int32_t>& key, std::size_t keys,
                                    const std::vector<std::int32_t>& vertices) {
  std::vector<std::int32_t> next(keys + 1, 0), sorted(vertices.size());
  for (const std::int32_t k : key) ++next[static_cast<std::size_t>(k) + 1];
  for (std::size_t k = 1; k < next.size(); ++k) next[k] += next[k - 1];
  for (const std::int32_t v : vertices) {
    sorted[static_cast<std::size_t>(next[static_cast<std::size_t>(key[static_cast<std::size_t>(v)])]++)] = v;
  }
  return sorted;
}

}  // namespace

void InputGraph::Loading::sort() {
  std::vector<std::int32_t> numbered(level_.size());
  std::iota(numbered.begin(), numbered.end(), 0);
  vertex_ = sorted_by(types_, distinct_.size(), sorted_by(level_, static_cast<std::size_t>(graph_.levels_), numbered));
  for (std::size_t i = 0; i < vertex_.size(); ++i) {
    const auto v = static_cast<std::size_t>(vertex_[i]);
    const auto here = static_cast<std::int32_t>(i);
    const std::int32_t type = types_[v], level = level_[v];
    if (i == 0 || type_runs_.back().type != type || type_runs_.back().level != level) {
      type_runs_.push_back({type, level, here, here});
    }
    ++type_runs_.back().end;
  }
}

void InputGraph::Loading::pack() {
  graph_.vertices_ = vertices();
  graph_.columns_ = static_cast<std::int32_t>(function_.index_pulls.size() + function_.pulls.size());
  graph_.types_ = static_cast<std::int32_t>(distinct_.size());
  graph_.type_runs_ = static_cast<std::int32_t>(type_runs_.size());
  std::size_t inputs = 0;
  const auto count = [&](const auto& all) {
    for (const auto& [name, rows] : all) inputs += rows.size();
  };
  count(data_.indices), count(data_.edge_indices), count(data_.values), count(data_.edge_values);
  block_.reserve(static_cast<std::size_t>(graph_.columns_) + 2 * distinct_.size() + 4 * type_runs_.size() +
                 2 * vertex_.size() + 1 + data_.children.size() + inputs);
  block_.assign(static_cast<std::size_t>(graph_.columns_), -1);
  for (const ir::VertexType type : distinct_) {
    block_.push_back(static_cast<std::int32_t>(type));
    block_.push_back(static_cast<std::int32_t>(type >> 32));
  }
  for (const TypeRun& run : type_runs_) block_.insert(block_.end(), {run.type, run.level, run.begin, run.end});
  std::vector<std::int32_t> place(vertex_.size()), children;
  for (std::size_t i = 0; i < vertex_.size(); ++i) {
    place[static_cast<std::size_t>(vertex_[i])] = static_cast<std::int32_t>(i);
  }
  block_.push_back(0);
  for (const std::int32_t vertex : vertex_) {
    const auto v = static_cast<std::size_t>(vertex);
    for (auto e = data_.child_begin[v]; e < data_.child_begin[v + 1]; ++e) {
      const std::int32_t child = data_.children[static_cast<std::size_t>(e)];
      if (child != no_child) children.push_back(place[static_cast<std::size_t>(child)]);
    }
    block_.push_back(static_cast<std::int32_t>(children.size()));
  }
  graph_.edges_ = static_cast<std::int32_t>(children.size());
  block_.insert(block_.end(), children.begin(), children.end());
  block_.insert(block_.end(), vertex_.begin(), vertex_.end());
  pack_columns();
}

void InputGraph::Loading::store(Store how) {
  const auto fits = [](std::int32_t number) { return -1 <= number && number < UINT16_MAX; };
  graph_.narrow_ = how == Store::narrow && std::ranges::all_of(block_, fits);
  if (graph_.narrow_) {
    const std::size_t halves = block_.size();
    const auto half = [&](std::size_t at) -> std::uint32_t {
      return at < halves ? static_cast<std::uint16_t>(block_[at]) : 0;
    };
    for (std::size_t i = 0; 2 * i < halves; ++i) {
      block_[i] = static_cast<std::int32_t>(half(2 * i) | half(2 * i + 1) << 16);
    }
    block_.resize((halves + 1) / 2);
  }
  graph_.block_size_ = block_.size();
  if (how == Store::as_it_is) {
    const auto kept = std::make_shared<const std::vector<std::int32_t>>(std::move(block_));
    graph_.block_ = std::shared_ptr<const std::int32_t[]>(kept, kept->data());
    return;
  }
  auto block = std::make_shared_for_overwrite<std::int32_t[]>(block_.size());
  std::ranges::copy(block_, block.get());
  graph_.block_ = std::move(block);
}

void InputGraph::store_together(std::span<InputGraph* const> graphs) {
  std::size_t elements = 0;
  for (const InputGraph* graph : graphs) elements += graph->block_size_;
  const auto names = std::make_shared<std::vector<std::string>>(graphs.size());
  const auto block = std::make_shared_for_overwrite<std::int32_t[]>(elements);
  std::int32_t* to = block.get();
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    InputGraph& graph = *graphs[g];
    std::copy_n(graph.block_.get(), graph.block_size_, to);
    graph.block_ = std::shared_ptr<const std::int32_t[]>(block, to);
    to += graph.block_size_;
    if (graph.name_ == nullptr) continue;
    (*names)[g] = *graph.name_;
    graph.name_ = std::shared_ptr<const std::string>(names, &(*names)[g]);
  }
}

void InputGraph::Loading::pack_columns() {
  std::vector<char> needs_index(function_.index_pulls.size(), 0), needs_value(function_.pulls.size(), 0);
  for (std::size_t k = 0; k < function_.kinds.size(); ++k) {
    for (std::size_t pull : function_.kinds[k].index_pulls) needs_index[pull] |= has_kind_[k];
    for (std::size_t pull : function_.kinds[k].pulls) needs_value[pull] |= has_kind_[k];
  }
  std::size_t column = 0;
  for (std::size_t i = 0; i < function_.index_pulls.size(); ++i, ++column) {
    const ir::IndexField& field = function_.index_pulls[i];
    if (field.holds != ir::IndexField::Holds::input) continue;
    pack_column(column, input(data_.indices, data_.edge_indices, field, needs_index[i] != 0), field);
  }
  for (std::size_t i = 0; i < function_.pulls.size(); ++i, ++column) {
    const ir::Field& field = function_.pulls[i];
    if (field.holds != ir::Field::Holds::input) continue;
    pack_column(column, input(data_.values, data_.edge_values, field, needs_value[i] != 0), field);
  }
}

template <class T, class Field>
void InputGraph::Loading::pack_column(std::size_t column, const std::vector<T>* rows, const Field& field) {
  if (rows == nullptr) return;
  if (block_.size() + rows->size() > INT32_MAX) refuse("inputs of 2^31 numbers; expected fewer in one graph");
  block_[column] = static_cast<std::int32_t>(block_.size());
  const bool edges = field.rows == Rows::edges();
  block_.resize(block_.size() + (edges ? static_cast<std::size_t>(graph_.edges_ * field.width) : rows->size()));
  std::int32_t* to = block_.data() + block_[column];
  const auto take = [&](std::int64_t row) {
    const T* const from = rows->data() + row * field.width;
    for (Index i = 0; i < field.width; ++i) *to++ = std::bit_cast<std::int32_t>(from[i]);
  };
  for (const std::int32_t vertex : vertex_) {
    if (!edges) {
      take(vertex);
      continue;
    }
    const auto v = static_cast<std::size_t>(vertex);
    for (auto e = data_.child_begin[v]; e < data_.child_begin[v + 1]; ++e) {
      if (data_.children[static_cast<std::size_t>(e)] != no_child) take(e);
    }
  }
}

}  // namespace windrow
