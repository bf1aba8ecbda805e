// Expressions inside the bodies of vertex functions, and their operators.
#include <nanobind/stl/vector.h>

#include "batching/parameters.h"
#include "batching/weights.h"
#include "ops/operators.h"
#include "windrow/batching/expr.h"

namespace nanobind::detail {

/// Converts an expression or a parameter to an operand. Also accepts a function of parameters, only to throw an error
/// that says how to make it an expression. Other casters do not expect exceptions, so they must not contain this one.
template <>
struct type_caster<windrow::Operand> {
  static constexpr auto Name = const_name("windrow.Expr | windrow.Parameter");
  template <class T>
  using Cast = windrow::Operand;
  template <class T>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle from, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    flags &= ~static_cast<std::uint32_t>(cast_flags::none_disallowed);
    if (from.is_none()) return false;
    is_expr = expr.from_python(from, flags, cleanup);
    is_function = !is_expr && isinstance<windrow::LazyWeight>(from);
    return is_expr || is_function || parameter.from_python(from, flags, cleanup);
  }
  explicit operator windrow::Operand() {
    if (is_expr) return *static_cast<windrow::Expr*>(expr);
    if (is_function) {
      throw type_error(
          "a function of parameters as an operand in a body; expected an expression: v.parameter(w * 2) makes one");
    }
    return static_cast<windrow::python::ParameterObject*>(parameter)->parameter;
  }

  make_caster<windrow::Expr> expr;
  make_caster<windrow::python::ParameterObject> parameter;
  bool is_expr = false, is_function = false;
};

}  // namespace nanobind::detail

namespace windrow::python {
namespace {

using Exprs = std::vector<Expr>;

template <class Expression>
std::string shown(const char* name, const Expression& of) {
  return "<windrow." + std::string(name) + ", " + to_string(of.type()) + ">";
}

constexpr const char* expected_terms = "a list of expressions of one kind, such as [x, y], or one value";

void bind_lists(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def(
      "concat",
      [](const nb::args& given) {
        const nb::object parts = listed(given);
        std::vector<Operand> all;
        for (const nb::handle part : parts) {
          nb::detail::make_caster<Operand> operand;
          if (!operand.from_python(part, 0, nullptr)) {
            std::vector<nb::handle> types;
            for (const nb::handle one : parts) types.push_back(one);
            throw refused_call("concat", types,
                               "Tensors, or else expressions of one body or lazy graph, and Parameters");
          }
          all.push_back(operand.operator Operand());
        }
        return concat(std::span<const Operand>(all));
      },
      nb::sig("def concat(parts: Sequence[Expr | Parameter], /) -> Expr"),
      "The operands side by side: windrow.concat(x, y) or windrow.concat([x, y]).");
  m.def("sum", explained("sum", expected_terms, [](const Exprs& terms) { return sum(std::span(terms)); }), "terms"_a,
        "The sum of a list of expressions. A value of edges counts as one term for each child.");
  m.def(
      "mean", [](const Exprs& terms) { return mean(std::span(terms)); }, "terms"_a,
      "The mean of a list of expressions; see sum(). Of one expression: the mean over its columns.");
  m.def("max", explained("max", expected_terms, [](const Exprs& terms) { return max(std::span(terms)); }), "terms"_a,
        "The maximum of each column of a list of expressions; see sum().");
  m.def(
      "log_sum_exp", [](const Exprs& terms) { return log_sum_exp(std::span(terms)); }, "terms"_a,
      "Of a list of expressions: log(sum of exp(x)) of each column; see sum().");
  m.def(
      "softmax", [](const Exprs& terms) { return softmax(std::span(terms)); }, "terms"_a,
      "Of a list of expressions: the softmax over all terms, for each column; see sum(). Returns a list with an "
      "expression for each term.");
  m.def(
      "k_max", [](const Exprs& terms, Index k) { return k_max(std::span(terms), k); }, "terms"_a, "k"_a,
      "The k largest terms of each column, in the order of the list; k times as wide as a term.");
  m.def(
      "weighted_sum", [](const Exprs& weights, const Exprs& values) { return weighted_sum(weights, values); },
      "weights"_a, "values"_a, "The sum of each value times its weight, an expression of width 1.");
  m.def(
      "dot_attention",
      [](const Expr& query, const Exprs& keys, const Exprs& values, const Exprs& masks) {
        return dot_attention(query, keys, values, masks);
      },
      "query"_a, "keys"_a, "values"_a, "masks"_a = Exprs(),
      "The sum of the values, weighted by the softmax of the dot products of their keys with the query. `masks`, of "
      "width 1, are added to the dot products: -1e30 hides a key, 0 does not.");
}

void bind_children(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("sum_children", &sum_children, "x"_a,
        "The sum of a value of edges over all children, first to last; zero for a vertex without children.");
  m.def("mean_children", &mean_children, "x"_a, "The mean over all children; zero for a vertex without children.");
  m.def("max_children", &max_children, "x"_a,
        "The maximum of each column over all children; zero for a vertex without children.");
  m.def("k_max_children", &k_max_children, "x"_a, "k"_a,
        "The k largest elements of each column over all children, zeros where there are fewer; k times as wide as x.");
  m.def("log_sum_exp_children", &log_sum_exp_children, "x"_a,
        "log(sum of exp(x)) of each column over all children; zero for a vertex without children.");
  m.def("softmax_children", &softmax_children, "x"_a, "The softmax over all children, for each column.");
  m.def("to_children", &to_children, "x"_a,
        "Hands the vertex's value to each of its edges. Operators do this themselves if another operand is of edges.");
}

}  // namespace

void bind_expressions(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<Expr> expr(m, "Expr",
                        "A value that each vertex has, or each edge from a vertex to a child, inside the body of a "
                        "vertex function. Operators broadcast operands of width 1, and parameters of one row.");
  expr.def_prop_ro("width", &Expr::width, "The number of columns.").def("__repr__", [](const Expr& of) {
    return shown("Expr", of);
  });
  nb::class_<IndexExpr> index(m, "IndexExpr", "An index that was pulled.");
  refuse_conversions(index, "indices of vertices", "no comparison, since the body runs once for all vertices",
                     "none, since the body runs once for all vertices");
  index.def_prop_ro("width", &IndexExpr::width).def("__repr__", [](const IndexExpr& of) {
    return shown("IndexExpr", of);
  });
  expr.def(
      "__getitem__",
      [](const Expr& x, nb::handle columns) {
        const auto [begin, end] = columns_of(columns, x.width());
        return slice(x, begin, end);
      },
      "columns"_a, nb::sig("def __getitem__(self, columns: Slice) -> Expr"), "Columns of x: x[:8], x[8:16].");
  refuse_conversions(expr, "expressions", "no comparison, since the body runs once for all vertices",
                     "none, since the body runs once for all vertices and its expressions have no values");
  bind_lists(m);
  bind_operators<ExprTypes, true>(m, expr);
  bind_children(m);
  m.def("mean", explained("mean", expected_terms, [](const Expr& x) { return mean(x); }), "x"_a);
  constexpr const char* expected =
      "a table and the numbers of rows: a Tensor and an IntTensor, or a Parameter and v.pull_index(name) or "
      "graph.index(number)";
  m.def("embedding",
        explained("embedding", expected,
                  [](const Operand& table, const IndexExpr& row) { return embedding(table, row); }),
        "table"_a, "row"_a, "The row of the table with that number.");
  m.def("embedding_bag",
        explained("embedding_bag", expected,
                  [](const Operand& table, const IndexExpr& rows) { return embedding_bag(table, rows); }),
        "table"_a, "rows"_a, "The sum of the rows of the table that the columns of `rows` name; -1 for none.");
}

}  // namespace windrow::python
