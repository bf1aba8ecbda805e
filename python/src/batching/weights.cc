// Functions of parameters alone.
#include "batching/weights.h"

#include "ops/operators.h"
#include "windrow/ops/tensor.h"

namespace windrow::python {
namespace {

/// For the operators of expression_operators.h.
struct WeightTypes : LazyWeightTypes {
  using Value = WeightArgument;
  using Input = WeightArgument;
};

/// An operator of a tensor with a parameter's value.
template <class Class>
void bind_with_tensors(Class& parameter) {
  for (const std::string name : {"add", "sub", "mul", "truediv", "matmul"}) {
    const auto def = [&](const std::string& own, bool first) {
      const std::string called = "__" + name + "__";
      parameter.def(
          own.c_str(),
          [called, first](const ParameterObject& of, const Tensor& tensor) {
            const nb::object value = nb::cast(of).attr("value"), other = nb::cast(tensor);
            return first ? value.attr(called.c_str())(other) : other.attr(called.c_str())(value);
          },
          nb::is_operator(), nb::sig(("def " + own + "(self, arg: Tensor, /) -> Tensor").c_str()));
    };
    def("__" + name + "__", true);
    def("__r" + name + "__", false);
  }
}

}  // namespace

void bind_weights(nb::module_& m) {
  nb::class_<LazyWeight> weight(
      m, "LazyWeight",
      "A function of parameters alone, such as `w * 2` or `windrow.tanh(w)`: a flush, or a minibatch, computes it once "
      "for all samples. An operand of lazy expressions, as a parameter is. In the body of a vertex function or a cell, "
      "`v.parameter(w * 2)` makes it an expression.");
  weight
      .def_prop_ro(
          "shape", [](const LazyWeight& of) { return nb::make_tuple(of.type().rows.number(), of.type().width); },
          nb::for_getter(nb::sig("def shape(self) -> tuple[int, int]")), "(rows, width).")
      .def("__repr__", [](const LazyWeight& of) { return "<windrow.LazyWeight, " + to_string(of.type()) + ">"; });
  auto parameter = nb::borrow<nb::class_<ParameterObject>>(nb::type<ParameterObject>());
  bind_operator_functions<WeightTypes>(m, "LazyWeight | Parameter");
  bind_python_operators<WeightTypes>(weight);
  bind_python_operators<WeightTypes>(parameter);
  bind_with_tensors(parameter);
}

}  // namespace windrow::python
