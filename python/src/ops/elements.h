// Elements of tensors from Python objects: numbers, nested lists, arrays.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "python.h"

namespace windrow::python {

/// Row-major elements. A value.
struct Elements {
  std::variant<std::vector<float>, std::vector<std::int32_t>> values;
  std::int64_t rows = 0, width = 0;
};

/// The elements of `data`: a number (1 x 1), a list of numbers (1 x n), a list of lists, or an array of at most two
/// dimensions that has DLPack, the buffer protocol or NumPy's array interface. `type` is "float32", "int32", or empty,
/// for int32 if all are integers. Copies. Throws MisuseError for more dimensions, for rows of different lengths, and
/// for integers beyond int32; TypeError for other objects.
Elements elements_of(const nb::object& data, const std::string& type);

/// If `data` is a tensor, waits for the ops that write it. For before nanobind asks an object for its elements: it
/// drops what this raises, such as the KeyboardInterrupt that ends a wait.
void wait_for_elements(nb::handle data);

/// Whether the object is an array of some library: it has DLPack or NumPy's array interface.
bool is_array(nb::handle data);

}  // namespace windrow::python
