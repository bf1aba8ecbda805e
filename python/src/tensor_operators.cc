// Operators of tensors.
#include "arrays.h"
#include "operators.h"
#include "windrow/ops/apply.h"

namespace windrow::python {
namespace {

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

/// Whether y is one row that an operator takes beside all of x.
bool is_row_of(const Tensor& y, const Tensor& x) { return y.rows() == 1 && y.width() == x.width(); }
bool is_column_of(const Tensor& y, const Tensor& x) { return y.width() == 1 && y.rows() == x.rows(); }

}  // namespace

Tensor apply_to_tensors(const Operator& op, Operands operands) {
  const InUse use = operands.in.empty() ? InUse(operands.indices.at(0)) : InUse(operands.in.front());
  const std::source_location from = calling_line();
  return use.pushing([&] { return windrow::apply(use.device(), op, operands, from); });
}

Tensor ArrayTypes::apply(const Operator& op, const Array&, std::initializer_list<Array> in,
                         std::initializer_list<IntTensor> indices, const Attributes& attributes) {
  Operands operands{.indices = indices, .attributes = attributes};
  operands.in.reserve(in.size());
  for (const Array& x : in) operands.in.push_back(x.tensor());
  return apply_to_tensors(op, std::move(operands));
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
  using nb::literals::operator""_a;
  nb::class_<op::Window2d>(m, "Window2d",
                           "A window and the images that it slides over, for conv2d and max_pool2d. A row of such a "
                           "tensor contains channels planes of height x width elements.")
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
}

}  // namespace windrow::python
