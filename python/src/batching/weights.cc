// Functions of parameters alone.
#include "batching/weights.h"

#include "ops/operators.h"

namespace windrow::python {
namespace {

/// For the operators of expression_operators.h.
struct WeightTypes : LazyWeightTypes {
  using Value = WeightArgument;
  using Input = WeightArgument;
};

}  // namespace

void bind_weights(nb::module_& m) {
  nb::class_<LazyWeight> weight(
      m, "LazyWeight",
      "A function of parameters alone, such as `w * 2` or `windrow.tanh(w)`. A flush or a minibatch computes it once "
      "for all samples. Like a parameter, it can be an operand of lazy expressions. In the body of a vertex function "
      "or a cell, `v.parameter(w * 2)` makes it an expression.");
  weight
      .def_prop_ro(
          "shape", [](const LazyWeight& of) { return nb::make_tuple(of.type().rows.number(), of.type().width); },
          nb::for_getter(nb::sig("def shape(self) -> tuple[int, int]")), "(rows, width).")
      .def("__repr__", [](const LazyWeight& of) { return "<windrow.LazyWeight, " + to_string(of.type()) + ">"; });
  auto parameter = nb::borrow<nb::class_<ParameterObject>>(nb::type<ParameterObject>());
  refuse_conversions(weight, "functions of parameters", "a comparison of values, w.value.numpy() == u.value.numpy()",
                     "a Parameter's value");
  refuse_comparison(parameter, "parameters",
                    "a comparison of names, w.name == u.name, or of values, "
                    "w.value.numpy() == u.value.numpy()");
  refuse_truth(parameter, "parameters", "a condition of w.value, or `w is not None`");
  parameter.def(
      "__array__",
      [](nb::handle of, const nb::args& how, const nb::kwargs& options) {
        return of.attr("value").attr("__array__")(*how, **options);
      },
      nb::sig("def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]"),
      "The value, for numpy.asarray(). Waits for it.");
  bind_operator_functions<WeightTypes>(m, "LazyWeight | Parameter");
  bind_python_operators<WeightTypes>(weight);
  bind_python_operators<WeightTypes>(parameter);
}

}  // namespace windrow::python
