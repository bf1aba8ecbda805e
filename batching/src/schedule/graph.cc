#include "windrow/batching/graph.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "ir/tracing.h"
#include "schedule/loading.h"
#include "schedule/topology.h"

namespace windrow {
namespace {

/// A state that the consumer's kind gathers from child k, but the child's kind does not scatter.
std::optional<std::size_t> missing_state(const ir::VertexKind& consumer, std::size_t k, const ir::VertexKind& child) {
  const std::size_t bit = k < consumer.arity ? k : consumer.arity + (k - consumer.arity) % consumer.per_edge;
  for (std::size_t s = 0; s < consumer.gathered.size(); ++s) {
    if ((consumer.gathered[s] >> bit & 1u) != 0 && child.scattered[s] == ir::no_value) return s;
  }
  return std::nullopt;
}

}  // namespace

InputGraph::InputGraph(const VertexFunction& function, const GraphData& data, std::string name, Checks checks)
    : name_(name.empty() ? nullptr : std::make_shared<const std::string>(std::move(name))),
      function_(function.function_) {
  ir::check_complete(*function_);
  Loading loading(*this, data);
  loading.find_kinds();
  if (checks == Checks::all) loading.check_children();
  if (!loading.find_levels_in_order()) loading.find_levels();
  loading.find_types();
  if (checks == Checks::all) loading.check_indices();
  loading.sort();
  loading.pack();
  loading.store(checks == Checks::all ? Loading::Store::narrow : Loading::Store::as_it_is);
}

void InputGraph::Loading::find_kinds() {
  const auto kinds = static_cast<std::int32_t>(function_.kinds.size());
  if (data_.child_begin.empty()) refuse("child_begin is empty; expected a 0 and one more for each vertex");
  has_kind_.assign(function_.kinds.size(), 0);
  if (data_.kinds.empty()) {
    has_kind_[0] = vertices() > 0;
    return;
  }
  if (static_cast<std::int32_t>(data_.kinds.size()) != vertices()) {
    refuse("has kinds of " + number(static_cast<std::int64_t>(data_.kinds.size())) + " vertices; expected " +
           number(vertices()) + ", or none");
  }
  for (std::size_t v = 0; v < data_.kinds.size(); ++v) {
    const std::int32_t kind = data_.kinds[v];
    if (kind < 0 || kinds <= kind) {
      refuse("vertex " + number(static_cast<std::int64_t>(v)) + " is of kind " + number(kind) + "; expected 0 to " +
             number(kinds - 1));
    }
    has_kind_[static_cast<std::size_t>(kind)] = 1;
  }
}

void InputGraph::Loading::check_children() const {
  const auto& begin = data_.child_begin;
  if (begin.front() != 0 || begin.back() != static_cast<std::int64_t>(data_.children.size())) {
    refuse("child_begin does not span the " + number(static_cast<std::int64_t>(data_.children.size())) +
           " children; expected the first to be 0 and the last their number");
  }
  for (std::int32_t v = 0; v < vertices(); ++v) {
    const auto first = begin[static_cast<std::size_t>(v)], last = begin[static_cast<std::size_t>(v) + 1];
    const auto vertex = [&] { return "vertex " + number(v); };
    if (last < first) refuse(vertex() + ": its children end before they begin; expected child_begin to ascend");
    if (last > begin.back()) refuse(vertex() + ": its children end behind the last; expected child_begin to ascend");
    const ir::VertexKind& kind = kind_of(static_cast<std::size_t>(v));
    if (!kind.any_number() && static_cast<std::size_t>(last - first) > kind.arity) {
      refuse(vertex() + " has " + number(last - first) + " children; expected at most " +
             number(static_cast<std::int64_t>(kind.arity)) + ", the arity of " + kind.name);
    }
    for (auto e = first; e < last; ++e) check_child(v, e);
    check_edges(v, kind);
  }
}

/// An edge leads to all its children, or it is missing as a whole.
void InputGraph::Loading::check_edges(std::int32_t v, const ir::VertexKind& kind) const {
  if (kind.per_edge < 2) return;
  const auto first = data_.child_begin[static_cast<std::size_t>(v)] + static_cast<std::int32_t>(kind.arity);
  const auto last = data_.child_begin[static_cast<std::size_t>(v) + 1];
  const auto per_edge = static_cast<std::int32_t>(kind.per_edge);
  const std::string what = "vertex " + number(v) + ": ";
  if (last > first && (last - first) % per_edge != 0) {
    refuse(what + number(last - first) + " children of edges; expected a multiple of " + number(per_edge));
  }
  for (auto edge = first; edge < last; edge += per_edge) {
    const auto begin = data_.children.begin() + edge;
    const auto missing = std::count(begin, begin + per_edge, no_child);
    if (missing != 0 && missing != per_edge) {
      refuse(what + "an edge to " + number(per_edge - missing) + " children; expected " + number(per_edge) +
             ", or only " + number(no_child));
    }
  }
}

void InputGraph::Loading::check_child(std::int32_t v, std::int32_t e) const {
  const std::int32_t child = data_.children[static_cast<std::size_t>(e)];
  if (child == no_child) return;
  const std::int32_t k = e - data_.child_begin[static_cast<std::size_t>(v)];
  if (child < 0 || vertices() <= child) {
    refuse("vertex " + number(v) + ", child " + number(k) + ": there is no vertex " + number(child) +
           "; expected 0 to " + number(vertices() - 1) + ", or " + number(no_child) + " for none");
  }
  if (function_.kinds.size() == 1) return;
  const ir::VertexKind &kind = kind_of(static_cast<std::size_t>(v)),
                       &of_child = kind_of(static_cast<std::size_t>(child));
  const auto missing = missing_state(kind, static_cast<std::size_t>(k), of_child);
  if (!missing) return;
  refuse("vertex " + number(v) + ", child " + number(k) + ": " + kind.name + " gathers '" +
         function_.states[*missing].name + "', which vertex " + number(child) + ", computed by " + of_child.name +
         ", does not scatter");
}

void InputGraph::Loading::find_types() {
  std::vector<ir::VertexType> types(static_cast<std::size_t>(vertices()));
  for (std::size_t v = 0; v < types.size(); ++v) {
    const std::size_t number = kind_number(v);
    const ir::VertexKind& kind = function_.kinds[number];
    const ir::VertexType edges = ((ir::VertexType{1} << kind.per_edge) - 1) << kind.arity;
    ir::VertexType type = static_cast<ir::VertexType>(number) << ir::type_bits;
    const auto first = static_cast<std::size_t>(data_.child_begin[v]);
    for (std::size_t e = first; e < static_cast<std::size_t>(data_.child_begin[v + 1]); ++e) {
      if (data_.children[e] == no_child) continue;
      type |= e - first < kind.arity ? ir::VertexType{1} << (e - first) : edges;
    }
    types[v] = type;
  }
  for (std::size_t k = 0; k < function_.kinds.size(); ++k) {
    if (has_kind_[k] == 0) continue;
    const ir::VertexKind& kind = function_.kinds[k];
    std::size_t bit = kind.child_bits();
    for (std::size_t pull : kind.index_pulls) {
      const ir::IndexField& field = function_.index_pulls[pull];
      if (!field.has_type_bit()) continue;
      const auto& rows = *input(data_.indices, data_.edge_indices, field, true);
      for (std::size_t v = 0; v < types.size(); ++v) {
        if (ir::kind_of(types[v]) == k && rows[v] != -1) types[v] |= ir::VertexType{1} << bit;
      }
      ++bit;
    }
  }
  number_types(types);
}

/// Numbers the distinct types; there are few of them.
void InputGraph::Loading::number_types(const std::vector<ir::VertexType>& types) {
  for (const ir::VertexType type : types) {
    const auto found = std::ranges::lower_bound(distinct_, type);
    if (found == distinct_.end() || *found != type) distinct_.insert(found, type);
  }
  types_.reserve(types.size());
  for (const ir::VertexType type : types) {
    types_.push_back(static_cast<std::int32_t>(std::ranges::lower_bound(distinct_, type) - distinct_.begin()));
  }
}

/// Checks indices, so that no kernel sees an index that its operator does not accept.
void InputGraph::Loading::check_indices() const {
  for (std::size_t k = 0; k < function_.kinds.size(); ++k) {
    const ir::VertexKind& kind = function_.kinds[k];
    for (std::size_t i = 0; i < kind.index_pulls.size() && has_kind_[k] != 0; ++i) {
      const ir::IndexField& field = function_.index_pulls[kind.index_pulls[i]];
      const IndexRange range = kind.index_ranges[i];
      if (field.holds != ir::IndexField::Holds::input || (range.first == INT32_MIN && range.last == INT32_MAX))
        continue;
      const auto* const elements = input(data_.indices, data_.edge_indices, field, true);
      const bool edges = field.rows == Rows::edges();
      for (std::int32_t v = 0; v < vertices(); ++v) {
        if (&kind_of(static_cast<std::size_t>(v)) != &kind) continue;
        const auto row = [&](std::int32_t vertex) {
          return (edges ? data_.child_begin[static_cast<std::size_t>(vertex)] : vertex) * field.width;
        };
        for (Index at = row(v); at < row(v + 1); ++at) {
          const std::int32_t index = (*elements)[static_cast<std::size_t>(at)];
          if (range.contains(index) || (field.optional && index == -1)) continue;
          refuse("vertex " + number(v) + ": '" + field.name + "' is " + number(index) + "; expected " +
                 to_string(range) + (field.optional && !range.contains(-1) ? ", or -1 for none" : ""));
        }
      }
    }
  }
}

/// Finds the levels in one pass. Returns false if a vertex precedes one of its children.
bool InputGraph::Loading::find_levels_in_order() {
  level_.resize(static_cast<std::size_t>(vertices()));
  for (std::int32_t v = 0; v < vertices(); ++v) {
    const auto at = static_cast<std::size_t>(v);
    std::int32_t above = 0;
    for (auto e = data_.child_begin[at]; e < data_.child_begin[at + 1]; ++e) {
      const std::int32_t child = data_.children[static_cast<std::size_t>(e)];
      if (child >= v) return false;
      if (child != no_child) above = std::max(above, level_[static_cast<std::size_t>(child)] + 1);
    }
    level_[at] = above;
    graph_.levels_ = std::max(graph_.levels_, above + 1);
  }
  return true;
}

void InputGraph::Loading::find_levels() {
  Topology topology(data_.child_begin, data_.children);
  if (topology.on_cycle) {
    refuse("vertex " + number(*topology.on_cycle) + " is its own descendant; expected a graph without cycles");
  }
  level_ = std::move(topology.level);
  graph_.levels_ = topology.levels;
}

std::int32_t InputGraph::level(std::int32_t of) const {
  std::vector<std::int32_t> memory;
  const std::int32_t* const vertex = Numbers(*this, memory).vertex();
  const auto place = static_cast<std::int32_t>(std::find(vertex, vertex + vertices_, of) - vertex);
  std::int32_t run = 0;
  while (type_run(run).end <= place) ++run;
  return type_run(run).level;
}

InputGraph::Numbers::Numbers(const InputGraph& graph, std::vector<std::int32_t>& memory)
    : graph_(graph), begin_(graph.block_.get()) {
  if (graph.narrow_) {
    memory.resize(2 * graph.block_size_);
    std::int32_t* to = memory.data();
    for (std::size_t i = 0; i < graph.block_size_; ++i) {
      const auto word = static_cast<std::uint32_t>(begin_[i]);
      *to++ = widened(word);
      *to++ = widened(word >> 16);
    }
    begin_ = memory.data();
  }
  child_begin_ = begin_ + graph.columns_ + 2 * graph.types_ + 4 * graph.type_runs_;
}

std::vector<std::int32_t> InputGraph::index(std::string_view name) const {
  std::vector<std::int32_t> memory;
  const Numbers numbers(*this, memory);
  for (std::size_t i = 0; i < function_->index_pulls.size(); ++i) {
    const ir::IndexField& field = function_->index_pulls[i];
    const std::int32_t* from = numbers.column(i);
    if (field.name != name || field.rows == Rows::edges() || (from == nullptr && vertices_ > 0)) continue;
    std::vector<std::int32_t> rows(static_cast<std::size_t>(vertices_ * field.width));
    for (std::int32_t place = 0; place < vertices_; ++place, from += field.width) {
      std::copy_n(from, field.width, rows.data() + numbers.vertex()[place] * field.width);
    }
    return rows;
  }
  throw MisuseError(this->name() + ": no index '" + std::string(name) +
                    "'; expected one of vertices that the function pulls and the data have");
}

GraphData InputGraph::structure() const {
  std::vector<std::int32_t> memory;
  const Numbers numbers(*this, memory);
  std::vector<std::int32_t> place_of(static_cast<std::size_t>(vertices_));
  std::vector<ir::VertexType> type_of(place_of.size());  // by place
  for (std::int32_t r = 0; r < type_runs_; ++r) {
    const TypeRun run = type_run(r);
    std::fill(type_of.begin() + run.begin, type_of.begin() + run.end, type(run.type));
  }
  for (std::int32_t place = 0; place < vertices_; ++place) {
    place_of[static_cast<std::size_t>(numbers.vertex()[place])] = place;
  }
  GraphData data;
  for (const std::int32_t place : place_of) {
    const ir::VertexType type = type_of[static_cast<std::size_t>(place)];
    const std::int32_t* child = numbers.children() + numbers.child_begin()[place];
    const std::int32_t* const end = numbers.children() + numbers.child_begin()[place + 1];
    for (std::size_t k = 0; child != end; ++k) {
      const bool missing = k < ir::kind_of(*function_, type).arity && !ir::has_child(type, k);
      data.children.push_back(missing ? no_child : numbers.vertex()[*child++]);
    }
    data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
    data.kinds.push_back(static_cast<std::int32_t>(ir::kind_of(type)));
  }
  return data;
}

void InputGraph::prefetch_after(std::span<const InputGraph* const> graphs, std::size_t at) {
  constexpr std::size_t ahead = 3, line = 64, number = line / sizeof(std::int32_t);
  if (at + 2 * ahead < graphs.size()) {
    const auto* const later = reinterpret_cast<const char*>(graphs[at + 2 * ahead]);
    for (std::size_t i = 0; i < sizeof(InputGraph); i += line) __builtin_prefetch(later + i);
  }
  if (at + ahead >= graphs.size()) return;
  const InputGraph& next = *graphs[at + ahead];
  for (std::size_t i = 0; i < next.block_size_; i += number) __builtin_prefetch(next.block_.get() + i);
}

void InputGraph::append_to(TypedGraph& graph, const std::uint32_t* type_numbers,
                           std::vector<std::int32_t>& memory) const {
  const Numbers numbers(*this, memory);
  const std::int32_t base = graph.vertices(), first_edge = graph.child_begin.back();
  for (std::int32_t r = 0; r < type_runs_; ++r) {
    const TypeRun of = type_run(r);
    graph.type.insert(graph.type.end(), static_cast<std::size_t>(of.end - of.begin),
                      static_cast<std::int32_t>(type_numbers[of.type]));
  }
  for (std::int32_t i = 1; i <= vertices(); ++i) graph.child_begin.push_back(first_edge + numbers.child_begin()[i]);
  for (std::int32_t e = 0; e < edges_; ++e) graph.children.push_back(base + numbers.children()[e]);
}

std::vector<std::vector<const InputGraph*>> minibatches(std::span<const InputGraph> graphs, std::size_t size) {
  if (size == 0) throw MisuseError("minibatches of 0 graphs; expected at least 1");
  std::vector<std::vector<const InputGraph*>> all;
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    if (g % size == 0) all.emplace_back().reserve(std::min(size, graphs.size() - g));
    all.back().push_back(&graphs[g]);
  }
  return all;
}

std::vector<TypedGraph> typed_graphs(std::span<const InputGraph* const> graphs, std::size_t minibatch) {
  if (minibatch == 0) throw MisuseError("typed_graphs: minibatches of 0 graphs; expected at least 1");
  std::map<std::uint64_t, std::uint32_t> number_of;  // of types
  for (const InputGraph* graph : graphs) {
    for (std::int32_t t = 0; t < graph->types_; ++t) {
      const ir::VertexType type = graph->type(t);
      number_of.emplace(type, static_cast<std::uint32_t>(number_of.size()));
    }
  }
  std::vector<TypedGraph> minibatches;
  std::vector<std::int32_t> memory;
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    if (g % minibatch == 0) minibatches.push_back({.types = static_cast<std::int32_t>(number_of.size())});
    std::vector<std::uint32_t> numbers;
    for (std::int32_t t = 0; t < graphs[g]->types_; ++t) numbers.push_back(number_of.at(graphs[g]->type(t)));
    graphs[g]->append_to(minibatches.back(), numbers.data(), memory);
  }
  return minibatches;
}

/// The finaliser of SplitMix64, which spreads each bit over all others.
static std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::uint64_t structure_key(const GraphData& graph) {
  std::uint64_t key = 0;
  const auto add = [&](std::uint64_t number) { key = mixed(key + 0x9e3779b97f4a7c15ull + number); };
  for (const std::span<const std::int32_t> numbers : {std::span(graph.child_begin), {graph.children}, {graph.kinds}}) {
    add(numbers.size());
    for (const std::int32_t number : numbers) add(static_cast<std::uint32_t>(number));
  }
  return key;
}

}  // namespace windrow
