// What users of NumPy expect of tensors: truth, float(), .T, .sum(), copies, pickle.
#pragma once
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include "ops/arrays.h"

namespace windrow::python {

template <class T>
void bind_habits(nb::class_<TensorOf<T>>& tensor);

/// sum() and mean() over an axis.
void bind_reductions(nb::module_& m);

}  // namespace windrow::python
