// The operators of expression_operators.h as functions of the module, for one kind of values: tensors, expressions of
// vertex functions, or lazy expressions.
//
//   nb::class_<Tensor> tensor(m, "Tensor");
//   bind_operators<ArrayTypes>(m, tensor);  // windrow.tanh(x), x + y, 2 * x, x @ w, -x, x ** 3
//
// Each kind adds overloads under the same names, so a function chooses by the types of its arguments. nanobind tries
// overloads in the order of their definition: first bind the kind whose calls must cost least.
//
// nanobind must convert Types::Value, Types::Input and Types::Indices from Python, and Types::Result to it: define a
// type_caster for each that is no bound class, such as an operand that is an expression or a parameter. A caster must
// not convert numbers, which have overloads of their own.
#pragma once
#include "ops/refusals.h"
#include "python.h"
#include "windrow/batching/expression_operators.h"

namespace windrow::python {

/// The docstring of a function of expression_operators.h.
const char* doc_of(std::string_view name);

/// Whether a function has an argument of type Indices.
template <class Indices, class Function, class Result, class... Arguments>
constexpr bool takes_index_of(Result (Function::*)(Arguments...) const) {
  return (std::is_same_v<std::decay_t<Arguments>, Indices> || ...);
}
template <class Indices, class Function>
constexpr bool takes_index(const Function&) {
  return takes_index_of<Indices>(&Function::operator());
}

/// What functions expect, for the text of their errors.
constexpr const char* expected_operands =
    "operands of one kind: Tensors, or else expressions of one body or lazy graph, and Parameters";
constexpr const char* expected_index =
    "values of one kind and their index: an IntTensor with a Tensor, v.pull_index(name) with an Expr, "
    "graph.index(number) with a LazyExpr";
constexpr const char* expected_beside =
    "an expression, a Parameter or a number: arrays and Tensors enter a body by v.pull(name), and a lazy graph by "
    "graph.input(values)";

/// Binds the functions of `m`, but not operators such as +. `kind` is the Python name of Types::Value, and `others`
/// those of the further operands that Types::Input allows. If Types::Indices is an empty class, there are no functions
/// of indices. `explains`: functions explain wrong arguments; set it for the kind that is bound last.
template <class Types, bool explains = false>
void bind_operator_functions(nb::module_& m, const std::string& kind, const std::string& others = "Parameter") {
  using Value = typename Types::Value;
  using Input = typename Types::Input;
  using Indices = typename Types::Indices;
  using nb::literals::operator""_a;
  const auto last_or_not = [](const char* name, auto function) {
    if constexpr (explains) {
      return explained(name, takes_index<Indices>(function) ? expected_index : expected_operands, function);
    } else {
      return function;
    }
  };
  const auto def = [&](const char* name, auto function, const auto&... arguments) {
    m.def(name, last_or_not(name, function), arguments..., doc_of(name));
  };
  const auto def_of_operands = [&](const char* name, auto function) {
    if constexpr (std::is_same_v<Value, Input>) {
      def(name, function, "x"_a, "y"_a);
    } else {  // one of them may be a parameter
      const std::string head = "def " + std::string(name) + "(x: ", last = ") -> " + kind;
      def_with_signatures(m, name,
                          {(head + kind + ", y: " + kind + " | " + others + last).c_str(),
                           (head + others + ", y: " + kind + last).c_str()},
                          last_or_not(name, function), doc_of(name), "x"_a, "y"_a);
    }
  };
#define WINDROW_BIND_OF_A_VALUE(T, name) \
  def(                                   \
      #name, [](const Value& x) { return name(x); }, "x"_a);
#define WINDROW_BIND_OF_OPERANDS(T, name) \
  def_of_operands(#name, [](const Input& x, const Input& y) { return name(x, y); });
#define WINDROW_BIND_OF_AN_INDEX(T, name) \
  def(                                    \
      #name, [](const Value& x, const Indices& index) { return name(x, index); }, "x"_a, "index"_a);
  WINDROW_FUNCTIONS_OF_A_VALUE(WINDROW_BIND_OF_A_VALUE, Types)
  WINDROW_FUNCTIONS_OF_OPERANDS(WINDROW_BIND_OF_OPERANDS, Types)
  WINDROW_ELEMENTWISE_FUNCTIONS(WINDROW_BIND_OF_OPERANDS, Types)
#undef WINDROW_BIND_OF_A_VALUE
#undef WINDROW_BIND_OF_OPERANDS
  if constexpr (!std::is_empty_v<Indices>) {
    WINDROW_FUNCTIONS_OF_AN_INDEX(WINDROW_BIND_OF_AN_INDEX, Types)
    def(
        "sample",
        [](const Value& x, const Indices& keys, std::uint64_t seed, std::uint32_t site) {
          return sample(x, keys, seed, site);
        },
        "x"_a, "keys"_a, "seed"_a, "site"_a = 0);
    def(
        "dropout",
        [](const Value& x, const Indices& keys, double rate, std::uint64_t seed, std::uint32_t site) {
          return dropout(x, keys, rate, seed, site);
        },
        "x"_a, "keys"_a, "rate"_a, "seed"_a, "site"_a = 0);
    def(
        "smoothed_cross_entropy",
        [](const Value& x, const Indices& label, double epsilon) { return smoothed_cross_entropy(x, label, epsilon); },
        "x"_a, "label"_a, "epsilon"_a);
    def(
        "hinge", [](const Value& scores, const Indices& label, double margin) { return hinge(scores, label, margin); },
        "scores"_a, "label"_a, "margin"_a = 1.0);
  }
#undef WINDROW_BIND_OF_AN_INDEX

  def(
      "scale_shift", [](const Value& x, double factor, double shift) { return scale_shift(x, factor, shift); }, "x"_a,
      "factor"_a, "shift"_a);
  def(
      "elu", [](const Value& x, double alpha) { return elu(x, alpha); }, "x"_a, "alpha"_a = 1.0);
  def(
      "leaky_relu", [](const Value& x, double slope) { return leaky_relu(x, slope); }, "x"_a, "slope"_a = 0.01);
  def(
      "clamp", [](const Value& x, double low, double high) { return clamp(x, low, high); }, "x"_a, "low"_a, "high"_a);
  def(
      "pow", [](const Value& x, double power) { return pow(x, power); }, "x"_a, "power"_a);
  def(
      "reverse_gradient", [](const Value& x, double factor) { return reverse_gradient(x, factor); }, "x"_a,
      "factor"_a = 1.0);
  def(
      "matmul_each", [](const Value& x, const Value& y, Index rows) { return matmul_each(x, y, rows); }, "x"_a, "y"_a,
      "rows"_a);
  def(
      "matmul_each_nt", [](const Value& x, const Value& y, Index rows) { return matmul_each_nt(x, y, rows); }, "x"_a,
      "y"_a, "rows"_a);
  def(
      "slice", [](const Value& x, Index begin, Index end) { return slice(x, begin, end); }, "x"_a, "begin"_a, "end"_a);
  def(
      "top_k",
      [](const Value& x, Index k, Index columns, bool by_place) {
        return top_k(x, k, columns, by_place ? op::Order::by_place : op::Order::descending);
      },
      "x"_a, "k"_a, "columns"_a = 1, nb::kw_only(), "by_place"_a = false);
  def(
      "arg_top_k", [](const Value& x, Index k) { return arg_top_k(x, k); }, "x"_a, "k"_a);
  def(
      "argmax", [](const Value& x) { return argmax(x); }, "x"_a);
  def(
      "layer_norm", [](const Value& x, double epsilon) { return layer_norm(x, epsilon); }, "x"_a, "epsilon"_a = 1e-5);
  def(
      "rms_norm", [](const Value& x, double epsilon) { return rms_norm(x, epsilon); }, "x"_a, "epsilon"_a = 1e-5);
  def(
      "dropout",
      [](const Value& x, double rate, bool rows, bool by_sample) {
        return dropout(x, Dropout{.rate = rate,
                                  .of = rows ? Dropout::Of::row : Dropout::Of::element,
                                  .mask = by_sample ? Dropout::Mask::sample : Dropout::Mask::vertex});
      },
      "x"_a, "rate"_a, nb::kw_only(), "rows"_a = false, "by_sample"_a = false);
  def(
      "conv2d",
      [](const Value& images, const Input& filters, const op::Window2d& window) {
        return conv2d(images, filters, window);
      },
      "images"_a, "filters"_a, "window"_a);
  def(
      "max_pool2d", [](const Value& images, const op::Window2d& window) { return max_pool2d(images, window); },
      "images"_a, "window"_a);
}

/// Python's + - * / @ ** and abs() of a class.
template <class Types, class Class>
void bind_python_operators(Class& of) {
  using Value = typename Types::Value;
  using Input = typename Types::Input;
  const auto def = [&of](const char* name, auto function) { of.def(name, function, nb::is_operator()); };
  const auto def_of_operands = [&](const char* name, auto function) {
    if constexpr (std::is_same_v<Value, Input>) {
      def(name, function);
    } else {
      def(name, explained<AskedBesideArrays>(name, expected_beside, function));
    }
  };
  def_of_operands("__add__", [](const Input& x, const Input& y) { return x + y; });
  def("__add__", [](const Value& x, double y) { return x + y; });
  def("__radd__", [](const Value& y, double x) { return x + y; });
  def_of_operands("__radd__", [](const Input& y, const Input& x) { return x + y; });
  def_of_operands("__sub__", [](const Input& x, const Input& y) { return x - y; });
  def("__sub__", [](const Value& x, double y) { return x - y; });
  def("__rsub__", [](const Value& y, double x) { return x - y; });
  def_of_operands("__rsub__", [](const Input& y, const Input& x) { return x - y; });
  def_of_operands("__mul__", [](const Input& x, const Input& y) { return x * y; });
  def("__mul__", [](const Value& x, double y) { return x * y; });
  def("__rmul__", [](const Value& y, double x) { return x * y; });
  def_of_operands("__rmul__", [](const Input& y, const Input& x) { return x * y; });
  def_of_operands("__truediv__", [](const Input& x, const Input& y) { return x / y; });
  def("__truediv__", [](const Value& x, double y) { return x / y; });
  def("__rtruediv__", [](const Value& y, double x) { return x / y; });
  def_of_operands("__rtruediv__", [](const Input& y, const Input& x) { return x / y; });
  def_of_operands("__matmul__", [](const Input& x, const Input& y) { return matmul(x, y); });
  def_of_operands("__rmatmul__", [](const Input& y, const Input& x) { return matmul(x, y); });
  def("__pow__", [](const Value& x, double power) { return pow(x, power); });
  def("__neg__", [](const Value& x) { return -x; });
  def("__abs__", [](const Value& x) { return abs(x); });
  of.attr("__array_ufunc__") = nb::none();  // so that NumPy leaves operators with its arrays to this class
}

/// All operators: the functions, and those of the class.
template <class Types, bool explains = false, class Class>
void bind_operators(nb::module_& m, Class& of, const std::string& others = "Parameter") {
  bind_operator_functions<Types, explains>(m, nb::cast<std::string>(of.attr("__name__")), others);
  bind_python_operators<Types>(of);
}

}  // namespace windrow::python
