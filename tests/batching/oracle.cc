#include "tests/batching/oracle.h"

#include <algorithm>
#include <optional>

namespace windrow::testing {

Row RowOperand::resolve(const Oracle& oracle) const {
  if (row_ != nullptr) return *row_;
  return {&oracle, parameter_->type(), oracle.values_.at(oracle.parameters_.name(*parameter_))};
}

Row apply(const Operator& op, std::initializer_list<RowOperand> in, std::initializer_list<OracleIndex> indices,
          const Attributes& attributes) {
  const Oracle* oracle = nullptr;
  for (const RowOperand& operand : in) oracle = operand.oracle() == nullptr ? oracle : operand.oracle();
  for (const OracleIndex& index : indices) oracle = index.oracle;
  std::optional<Index> edges;
  std::vector<Row> rows;
  for (const RowOperand& operand : in) {
    rows.push_back(operand.resolve(*oracle));
    if (rows.back().of_edges) edges = rows.back().type.rows.number();
  }
  for (const OracleIndex& index : indices) {
    if (index.of_edges) edges = index.rows;
  }
  Application application{.signature = {.attributes = attributes}};
  bool absent = false;
  std::vector<std::size_t> lacking;  // rows of edges
  std::size_t operand = 0;
  for (Row& row : rows) {
    const bool parameter = (in.begin() + operand++)->oracle() == nullptr;
    if (edges && !row.of_edges && !parameter) row = to_children(row, *edges);
    application.signature.in.push_back(row.type);
    application.in.push_back(std::move(row.values));
  }
  for (const OracleIndex& index : indices) {
    absent |= index.absent;
    application.signature.indices.push_back(
        {Rows::count(index.rows), index.rows == 0 ? 1 : static_cast<Index>(index.values.size()) / index.rows});
    application.indices.push_back(index.values);
    for (std::size_t i = 0; index.may_lack && i < index.values.size(); ++i) {
      if (index.values[i] != -1) continue;
      application.indices.back()[i] = 0;
      lacking.push_back(i);
    }
  }
  const Type type = infer(op, application.signature);
  if (absent) return {oracle, type, std::vector<double>(static_cast<std::size_t>(type.width), 0)};
  Row result{oracle, type, evaluate(reference_kernels(), op, application), edges.has_value()};
  for (const std::size_t row : lacking) {
    std::fill_n(result.values.begin() + static_cast<Index>(row) * type.width, type.width, 0.0);
  }
  return result;
}

Row to_children(const Row& x, Index children) {
  Row result{x.oracle, {Rows::count(children), x.type.width}, {}, true};
  for (Index k = 0; k < children; ++k) result.values.insert(result.values.end(), x.values.begin(), x.values.end());
  return result;
}

Row sum_children(const Row& x) {
  const auto width = static_cast<std::size_t>(x.type.width);
  Row result{x.oracle, {Rows::count(1), x.type.width}, std::vector<double>(width, 0)};
  for (std::size_t i = 0; i < x.values.size(); ++i) result.values[i % width] += x.values[i];
  return result;
}

Row mean_children(const Row& x) {
  const Index children = x.type.rows.number();
  return (children == 0 ? 0 : 1 / static_cast<double>(children)) * sum_children(x);
}

Row max_children(const Row& x) {
  Row result = 0.0 * sum_children(x);
  const std::size_t width = result.values.size();
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    double& top = result.values[i % width];
    top = i < width ? x.values[i] : std::max(top, x.values[i]);
  }
  return result;
}

Row softmax_children(const Row& x) {
  const Index children = x.type.rows.number();
  const Row shares = exp(x - to_children(max_children(x), children));
  return shares / to_children(sum_children(shares), children);
}

Row elementwise(const Operator& op, const RowOperand& x, const RowOperand& y) {
  const Oracle& oracle = *(x.oracle() == nullptr ? y.oracle() : x.oracle());
  const Row rows[] = {x.resolve(oracle), y.resolve(oracle)};
  const Index width = std::max(rows[0].type.width, rows[1].type.width);
  const Index height = std::max(rows[0].type.rows.number(), rows[1].type.rows.number());
  const bool edges = rows[0].of_edges || rows[1].of_edges;
  const auto spread = [&](const Row& row) {
    const Row wide = row.type.width == width ? row : apply(op::spread_columns, {row}, {}, op::to_width(width));
    const bool high = edges || row.type.rows == Rows::count(height);
    return high ? wide : apply(op::spread_rows, {wide}, {}, op::to_rows(Rows::count(height)));
  };
  return apply(op, {spread(rows[0]), spread(rows[1])});
}
Row operator+(const RowOperand& x, const RowOperand& y) { return elementwise(op::add, x, y); }
Row operator-(const RowOperand& x, const RowOperand& y) { return elementwise(op::sub, x, y); }
Row operator*(const RowOperand& x, const RowOperand& y) { return elementwise(op::mul, x, y); }
Row operator/(const RowOperand& x, const RowOperand& y) { return elementwise(op::div, x, y); }
Row maximum(const RowOperand& x, const RowOperand& y) { return elementwise(op::maximum, x, y); }
Row minimum(const RowOperand& x, const RowOperand& y) { return elementwise(op::minimum, x, y); }
Row operator*(double factor, const Row& x) { return apply(op::scale, {x}, {}, op::scaled_by(factor)); }

Row OracleVertex::gather(std::size_t k, const OracleState& state) {
  const auto begin = static_cast<std::size_t>(graph_.child_begin[vertex_]);
  const auto end = static_cast<std::size_t>(graph_.child_begin[vertex_ + 1]);
  const std::int32_t child = begin + k < end ? graph_.children[begin + k] : no_child;
  if (child == no_child) return zeros(state.width);
  oracle_.visit(graph_, static_cast<std::size_t>(child));
  return oracle_.states_.at(static_cast<std::size_t>(child)).at(state.name);
}

std::vector<std::size_t> OracleVertex::edges() const {
  std::vector<std::size_t> result;
  const auto end = static_cast<std::size_t>(graph_.child_begin[vertex_ + 1]);
  std::size_t e = static_cast<std::size_t>(graph_.child_begin[vertex_]) + oracle_.shape_.fixed;
  for (; e < end; e += oracle_.shape_.per_edge) {
    if (graph_.children[e] != no_child) result.push_back(e);
  }
  return result;
}

template <class T>
std::vector<T> OracleVertex::rows_of_edges(const std::vector<T>& all, Index width) const {
  std::vector<T> result;
  for (std::size_t e : edges()) {
    const auto begin = all.begin() + static_cast<Index>(e) * width;
    result.insert(result.end(), begin, begin + width);
  }
  return result;
}

Row OracleVertex::each(const OracleState& state, std::size_t k) {
  Row result{&oracle_, {Rows::count(static_cast<Index>(edges().size())), state.width}, {}, true};
  for (std::size_t e : edges()) {
    const auto child = static_cast<std::size_t>(graph_.children[e + k]);
    oracle_.visit(graph_, child);
    const Row& row = oracle_.states_.at(child).at(state.name);
    result.values.insert(result.values.end(), row.values.begin(), row.values.end());
  }
  return result;
}

Row OracleVertex::pull_edge(const std::string& name, Index width) {
  const std::vector<float> rows = rows_of_edges(graph_.edge_values.at(name), width);
  return {&oracle_, {Rows::count(static_cast<Index>(edges().size())), width}, {rows.begin(), rows.end()}, true};
}

OracleIndex OracleVertex::pull_edge_index(const std::string& name, Presence presence, Index width) {
  return {&oracle_, rows_of_edges(graph_.edge_indices.at(name), width),
          false,    static_cast<Index>(edges().size()),
          true,     presence == Presence::sometimes};
}

void OracleVertex::scatter(const OracleState& state, const Row& value) {
  oracle_.states_[vertex_].insert_or_assign(state.name, value);
}

Row OracleVertex::pull(const std::string& name, Index width) {
  const auto& all = graph_.values.at(name);
  const auto begin = all.begin() + static_cast<Index>(vertex_) * width;
  return {&oracle_, {Rows::count(1), width}, std::vector<double>(begin, begin + width)};
}

OracleIndex OracleVertex::pull_index(const std::string& name, Presence presence, Index width) {
  const auto& all = graph_.indices.at(name);
  const auto begin = all.begin() + static_cast<Index>(vertex_) * width;
  return {&oracle_, {begin, begin + width}, presence == Presence::sometimes && *begin == -1};
}

Row OracleVertex::constant(Index width, double value) {
  return {&oracle_, {Rows::count(1), width}, std::vector<double>(static_cast<std::size_t>(width), value)};
}

Row OracleVertex::parameter(const Parameter& parameter) { return RowOperand(parameter).resolve(oracle_); }

void OracleVertex::push(const std::string& name, const Row& value) { oracle_.pushed_[vertex_][name] = value.values; }
void OracleVertex::loss(const Row& value) { oracle_.loss_ += value.values.at(0); }

Oracle::Oracle(const Parameters& parameters, Body body, const VertexFunction::Shape& shape)
    : parameters_(parameters), body_(std::move(body)), shape_(shape) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::vector<float> values = parameters.value(parameters[i]).get();
    values_[parameters.name(parameters[i])] = {values.begin(), values.end()};
  }
}

void Oracle::visit(const GraphData& graph, std::size_t vertex) {
  if (states_.count(vertex) > 0) return;
  OracleVertex view(*this, graph, vertex);
  states_[vertex];
  body_(view);
}

double Oracle::loss(const std::vector<GraphData>& graphs) {
  loss_ = 0;
  outputs.clear();
  std::vector<std::map<std::string, std::vector<double>>> pushed;  // by vertex of all graphs
  std::map<std::string, std::size_t> widths;
  for (const GraphData& graph : graphs) {
    states_.clear();
    pushed_.clear();
    for (std::size_t v = 0; v + 1 < graph.child_begin.size(); ++v) visit(graph, v);
    for (std::size_t v = 0; v + 1 < graph.child_begin.size(); ++v) {
      for (const auto& [name, values] : pushed.emplace_back(pushed_[v])) widths[name] = values.size();
    }
  }
  for (auto& pushes : pushed) {
    for (const auto& [name, width] : widths) {
      pushes[name].resize(width, 0);
      outputs[name].insert(outputs[name].end(), pushes[name].begin(), pushes[name].end());
    }
  }
  return loss_;
}

std::map<std::size_t, double> Oracle::gradient(const Parameter& parameter, const std::vector<GraphData>& graphs,
                                               std::size_t n) {
  constexpr double step = 1e-6;
  std::map<std::size_t, double> result;
  std::vector<double>& values = values_.at(parameters_.name(parameter));
  for (std::size_t i = 0; i < values.size(); i += n) {
    double& value = values[i];
    const double before = value;
    value = before + step;
    const double above = loss(graphs);
    value = before - step;
    const double below = loss(graphs);
    value = before;
    result[i] = (above - below) / (2 * step);
  }
  return result;
}

}  // namespace windrow::testing
