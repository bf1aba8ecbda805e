// Operators of tensors.
#include "batching/parameters.h"
#include "ops/arrays.h"
#include "ops/elements.h"
#include "ops/numpy_habits.h"
#include "ops/operators.h"
#include "ops/tape.h"
#include "windrow/ops/apply.h"

namespace windrow::python {
namespace {

using nb::literals::operator""_a;

/// The size of a broadcast result along one dimension.
Index broadcast(Index x, Index y) { return x == 1 ? y : x; }

/// x, copied to the given shape along dimensions in which its size is 1.
Tensor spread(Tensor x, Index rows, Index width) {
  if (x.width() == 1 && width != 1) {
    x = apply_to_tensors(op::spread_columns, {.in = {x}, .attributes = op::to_width(width)});
  }
  if (x.rows() == 1 && rows != 1) {
    x = apply_to_tensors(op::spread_rows, {.in = {x}, .attributes = op::to_rows(Rows::count(rows))});
  }
  return x;
}

/// Whether y is one row that an operator can combine with each row of x.
bool is_row_of(const Tensor& y, const Tensor& x) { return y.rows() == 1 && y.width() == x.width(); }
bool is_column_of(const Tensor& y, const Tensor& x) { return y.width() == 1 && y.rows() == x.rows(); }

/// The other operand of x as a tensor: a copy of an array of another library on x's device, or the value of a parameter
/// itself, which a Tape may watch. Throws nb::next_overload for other objects.
Tensor beside(const Tensor& x, const nb::object& array) {
  if (nb::isinstance<ParameterObject>(array)) return nb::cast<Tensor>(nb::object(array.attr("value")));
  if (!is_array(array) || nb::isinstance<IntTensor>(array)) throw nb::next_overload();
  Elements elements = elements_of(array, "float32");
  const InUse use(x);
  const Tensor made(use.device(), elements.rows, elements.width, "array");
  const std::source_location from = calling_line();
  made.set(std::get<std::vector<float>>(std::move(elements.values)), from);
  return made;
}

/// Makes a row of n indices, such as tensor([3, 1, 2]), a column, n x 1. Returns other indices as they are.
IntTensor as_column(const IntTensor& index) {
  if (index.rows() != 1 || index.width() <= 1 || !index.whole()) return index;
  return {index.buffer(), index.width(), 1};
}

/// Operators of tensors with arrays.
void bind_with_arrays(nb::class_<Tensor>& tensor) {
  const auto def = [&tensor](const char* name, auto function) {
    tensor.def(
        name, [function](const Tensor& x, const nb::object& y) { return function(Array(x), Array(beside(x, y))); },
        nb::is_operator(), nb::sig(("def " + std::string(name) + "(self, arg: Array, /) -> Tensor").c_str()));
  };
  def("__add__", [](const Array& x, const Array& y) { return x + y; });
  def("__radd__", [](const Array& y, const Array& x) { return x + y; });
  def("__sub__", [](const Array& x, const Array& y) { return x - y; });
  def("__rsub__", [](const Array& y, const Array& x) { return x - y; });
  def("__mul__", [](const Array& x, const Array& y) { return x * y; });
  def("__rmul__", [](const Array& y, const Array& x) { return x * y; });
  def("__truediv__", [](const Array& x, const Array& y) { return x / y; });
  def("__rtruediv__", [](const Array& y, const Array& x) { return x / y; });
  def("__matmul__", [](const Array& x, const Array& y) { return matmul(x, y); });
  def("__rmatmul__", [](const Array& y, const Array& x) { return matmul(x, y); });
}

/// The arguments of a function of any number of tensors. Throws nb::next_overload unless all are tensors.
std::vector<Tensor> tensors_of(const nb::args& arguments) {
  std::vector<Tensor> all;
  const nb::object list = listed(arguments);
  for (const nb::handle argument : list) {
    const Tensor* tensor = nullptr;
    if (!nb::try_cast(argument, tensor) || tensor == nullptr) throw nb::next_overload();
    all.push_back(*tensor);
  }
  return all;
}

/// Operators that expressions lack, or have with other operands.
void bind_others(nb::module_& m) {
  m.def(
      "concat",
      [](const nb::args& parts) {
        std::vector<Tensor> in = tensors_of(parts);
        if (in.empty()) throw MisuseError("concat of nothing; expected one value or more");
        return apply_to_tensors(op::concat, {.in = std::move(in)});
      },
      nb::sig("def concat(*parts: Tensor) -> Tensor"), doc_of("concat"));
  bind_reductions(m);
  m.def(
      "transpose", [](const Tensor& x) { return apply_to_tensors(op::transpose, {.in = {x}}); }, "x"_a,
      doc_of("transpose"));
  m.def(
      "matmul_tn",
      [](const Tensor& x, const Tensor& y) {
        return apply_to_tensors(op::matmul_tn, {.in = {x, y}});
      },
      "x"_a, "y"_a, doc_of("matmul_tn"));
  const auto def = [&m](const char* name, const Operator& op, bool of_columns = false) {
    m.def(
        name,
        [&op, of_columns](const Tensor& x, const IntTensor& rows) {
          return apply_to_tensors(op, {.in = {x}, .indices = {of_columns ? as_column(rows) : rows}});
        },
        "x"_a, "index"_a, doc_of(name));
  };
  def("embedding", op::embedding, true);
  def("embedding_bag", op::embedding_bag);
  def("gather_rows", op::gather_rows, true);
  def("segment_sum", op::segment_sum);
  def("segment_mean", op::segment_mean);
  def("segment_max", op::segment_max);
  m.def(
      "scatter_rows",
      [](const Tensor& x, const IntTensor& index, Index rows) {
        return apply_to_tensors(
            op::scatter_rows, {.in = {x}, .indices = {as_column(index)}, .attributes = op::to_rows(Rows::count(rows))});
      },
      "x"_a, "index"_a, "rows"_a, doc_of("scatter_rows"));
  m.def(
      "broadcast_to", [](const Tensor& x, Index rows, Index width) { return spread(x, rows, width); }, "x"_a, "rows"_a,
      "width"_a, doc_of("broadcast_to"));
  m.def(
      "sgd",
      [](const Tensor& parameter, const Tensor& gradient, double rate, double decay) {
        const InUse use(parameter);
        const std::source_location from = calling_line();
        windrow::apply(use.device(), op::sgd,
                       {.in = {gradient}, .attributes = op::at_rate(rate, decay), .write = Write::add}, parameter,
                       from);
      },
      "parameter"_a, "gradient"_a, "rate"_a, "decay"_a = 0.0, doc_of("sgd"));
}

}  // namespace

Tensor apply_to_tensors(const Operator& op, const Operands& operands) {
  const InUse use = operands.in.empty() ? InUse(operands.indices.at(0)) : InUse(operands.in.front());
  const std::source_location from = calling_line();
  Tape* const tape = active_tape();
  return tape == nullptr ? windrow::apply(use.device(), op, operands, from) : tape->apply(op, operands, from);
}

Tensor ArrayTypes::apply(const Operator& op, const Array&, std::initializer_list<Array> in,
                         std::initializer_list<IntTensor> indices, const Attributes& attributes) {
  Operands operands{.indices = indices, .attributes = attributes};
  operands.in.reserve(in.size());
  for (const Array& x : in) operands.in.push_back(x.tensor());
  for (IntTensor& index : operands.indices) {  // a row of labels for as many rows
    if (index.rows() == 1 && index.width() == operands.in.front().rows()) index = as_column(index);
  }
  return apply_to_tensors(op, operands);
}

Tensor ArrayTypes::elementwise(const Operator& op, const Array& first, const Array& second) {
  const Tensor &x = first.tensor(), &y = second.tensor();
  if (x.rows() == y.rows() && x.width() == y.width()) return apply(op, first, {first, second});
  if (&op == &op::add && is_row_of(y, x)) return apply(op::add_bias, x, {x, y});
  if (&op == &op::add && is_row_of(x, y)) return apply(op::add_bias, y, {y, x});
  if (&op == &op::mul && is_row_of(y, x)) return apply(op::mul_row, x, {x, y});
  if (&op == &op::mul && is_row_of(x, y)) return apply(op::mul_row, y, {y, x});
  if (&op == &op::mul && is_column_of(y, x)) return apply(op::mul_columns, x, {x, y});
  if (&op == &op::mul && is_column_of(x, y)) return apply(op::mul_columns, y, {y, x});
  const Index rows = broadcast(x.rows(), y.rows()), width = broadcast(x.width(), y.width());
  return apply(op, first, {spread(x, rows, width), spread(y, rows, width)});  // throws for other shapes
}

Tensor ArrayTypes::dropout(const Array&, const Dropout&) {
  throw MisuseError(
      "dropout of a tensor without keys; expected dropout(x, keys, rate, seed), since tensors know no minibatch");
}

Index ArrayTypes::width(const Array& x) { return x.tensor().width(); }

void bind_tensor_operators(nb::module_& m) {
  nb::class_<op::Window2d>(m, "Window2d",
                           "A window and the images that it slides over, for conv2d and max_pool2d. A row of such a "
                           "tensor contains `channels` planes of height x width elements.")
      .def(
          "__init__",
          [](op::Window2d* self, Index channels, Index height, Index width, Index window_height, Index window_width,
             Index stride, Index padding) {
            new (self) op::Window2d{channels, height, width, window_height, window_width, stride, padding};
            op::sliding(*self);  // throws for sizes that do not fit
          },
          "channels"_a, "height"_a, "width"_a, "window_height"_a, "window_width"_a, nb::kw_only(), "stride"_a = 1,
          "padding"_a = 0)
      .def_prop_ro("image", &op::Window2d::image, "The width of an image as a row.")
      .def_prop_ro("window", &op::Window2d::window, "The width of a filter as a row.")
      .def_prop_ro("positions", &op::Window2d::positions, "How many positions the window takes in each plane.");
  nb::class_<Tensor> tensor = nb::borrow<nb::class_<Tensor>>(m.attr("Tensor"));
  bind_operators<ArrayTypes>(m, tensor);
  bind_with_arrays(tensor);
  bind_others(m);
}

}  // namespace windrow::python
