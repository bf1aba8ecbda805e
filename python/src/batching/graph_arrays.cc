// Graphs from arrays.
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "batching/graphs.h"
#include "ops/elements.h"
#include "windrow/batching/internal/ir.h"

namespace windrow::python {
namespace {

template <class To, class From>
bool represents(From number) {
  if constexpr (std::is_floating_point_v<To>) {
    return true;
  } else if constexpr (std::is_integral_v<From>) {
    return std::in_range<To>(number);
  } else {
    return false;
  }
}

std::string shape_of(const nb::ndarray<nb::ro, nb::device::cpu>& array) {
  std::string text = "(";
  for (std::size_t d = 0; d < array.ndim(); ++d) text += (d > 0 ? ", " : "") + std::to_string(array.shape(d));
  return text + (array.ndim() == 1 ? ",)" : ")");
}

/// Converts a list, for example, to a NumPy array. An empty one becomes int32, since it has no type of its own.
nb::object from_numpy(nb::handle list) {
  const nb::object array = nb::module_::import_("numpy").attr("asarray")(list);
  return nb::cast<std::size_t>(array.attr("size")) == 0 ? array.attr("astype")("int32") : array;
}

}  // namespace

template <class From, class To>
bool Column::copy_as(const Column& from, std::int64_t begin, std::vector<To>& to) {
  const char* row = from.data_ + begin * from.row_stride_;
  if constexpr (std::is_same_v<From, To>) {
    if (from.column_stride_ == sizeof(To) && from.row_stride_ == from.width_ * std::int64_t{sizeof(To)}) {
      if (!to.empty()) std::memcpy(to.data(), row, to.size() * sizeof(To));
      return true;
    }
  }
  bool fits = true;
  To* at = to.data();
  for (To* const end = at + to.size(); at != end; row += from.row_stride_) {
    const char* element = row;
    for (std::int64_t c = 0; c < from.width_; ++c, element += from.column_stride_) {
      From number;
      std::memcpy(&number, element, sizeof number);
      fits &= represents<To>(number);
      *at++ = static_cast<To>(number);
    }
  }
  return fits;
}

template <class From>
void Column::set_copies() {
  if constexpr (std::is_integral_v<From>) copy_integers_ = &copy_as<From, std::int32_t>;
  copy_floats_ = &copy_as<From, float>;
}

Column::Column(nb::handle array, const std::string& name, std::size_t dimensions) : name_(name) {
  const auto refuse = [&](const std::string& what) { throw nb::type_error(("'" + name + "' " + what).c_str()); };
  wait_for_elements(array);
  if (!nb::try_cast(array, array_) && !nb::try_cast(from_numpy(array), array_)) {
    refuse("is a " + std::string(nb::type_name(array.type()).c_str()) +
           "; expected an array of numbers in the host's memory, or a list of them");
  }
  if (array_.ndim() != dimensions && (dimensions == 1 || array_.ndim() + 1 != dimensions)) {
    refuse("has shape " + shape_of(array_) + "; expected " +
           (dimensions == 1 ? "one dimension" : "(rows, width), or (rows,) for a width of 1"));
  }
  const auto bytes = static_cast<std::int64_t>(array_.itemsize());
  const bool flat = array_.ndim() < 2;
  data_ = static_cast<const char*>(array_.data());
  rows_ = static_cast<std::int64_t>(array_.shape(0));
  width_ = flat ? 1 : static_cast<std::int64_t>(array_.shape(1));
  row_stride_ = array_.stride(0) * bytes;
  column_stride_ = flat ? bytes : array_.stride(1) * bytes;
  if (width_ == 1) column_stride_ = bytes;
  const nb::dlpack::dtype type = array_.dtype();
  const auto is = [&](nb::dlpack::dtype other) { return type == other; };
  if (is(nb::dtype<std::int32_t>())) {
    set_copies<std::int32_t>();
  } else if (is(nb::dtype<std::int64_t>())) {
    set_copies<std::int64_t>();
  } else if (is(nb::dtype<float>())) {
    set_copies<float>();
  } else if (is(nb::dtype<double>())) {
    set_copies<double>();
  } else if (is(nb::dtype<std::int16_t>())) {
    set_copies<std::int16_t>();
  } else if (is(nb::dtype<std::int8_t>())) {
    set_copies<std::int8_t>();
  } else if (is(nb::dtype<std::uint8_t>()) || is(nb::dtype<bool>())) {
    set_copies<std::uint8_t>();
  } else if (is(nb::dtype<std::uint16_t>())) {
    set_copies<std::uint16_t>();
  } else if (is(nb::dtype<std::uint32_t>())) {
    set_copies<std::uint32_t>();
  } else if (is(nb::dtype<std::uint64_t>())) {
    set_copies<std::uint64_t>();
  } else {
    refuse("has elements of " + std::to_string(bytes) + " bytes; expected integers, or floats of 32 or 64 bits");
  }
}

void Column::copy(std::int64_t begin, std::int64_t end, std::vector<std::int32_t>& to) const {
  to.resize(static_cast<std::size_t>((end - begin) * width_));
  if (copy_integers_ == nullptr) throw MisuseError("'" + name_ + "' has floats; expected integers");
  if (copy_integers_(*this, begin, to)) return;
  for (std::int64_t row = begin; row < end; ++row) {
    to.resize(static_cast<std::size_t>(width_));
    if (copy_integers_(*this, row, to)) continue;
    throw MisuseError("'" + name_ + "' has a number beyond 32 bits in row " + std::to_string(row - begin) +
                      "; expected -2147483648 to 2147483647");
  }
}

void Column::copy(std::int64_t begin, std::int64_t end, std::vector<float>& to) const {
  to.resize(static_cast<std::size_t>((end - begin) * width_));
  copy_floats_(*this, begin, to);
}

std::vector<std::int32_t> Column::all() const {
  std::vector<std::int32_t> numbers;
  copy(0, rows_, numbers);
  return numbers;
}

namespace {

/// Copies an array of offsets. Throws MisuseError unless it begins with 0, ascends, and ends with `last`.
std::vector<std::int32_t> checked_offsets(const Column& column, std::int64_t last, const std::string& what) {
  std::vector<std::int32_t> offsets = column.all();
  const auto refuse = [&](const std::string& why) { throw MisuseError("'" + column.name() + "' " + why); };
  if (offsets.empty()) refuse("is empty; expected a 0, and one more offset for each of " + what);
  if (offsets.front() != 0) refuse("begins with " + std::to_string(offsets.front()) + "; expected 0");
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] >= offsets[i - 1]) continue;
    refuse("falls from " + std::to_string(offsets[i - 1]) + " to " + std::to_string(offsets[i]) + " at element " +
           std::to_string(i) + "; expected offsets that ascend");
  }
  if (offsets.back() != last) {
    refuse("ends with " + std::to_string(offsets.back()) + "; expected " + std::to_string(last) + ", the number of " +
           what);
  }
  return offsets;
}

/// Cuts arrays into samples.
class Samples {
 public:
  Samples(const VertexFunction& function, const GraphArrays& arrays)
      : arrays_(arrays),
        child_offsets_(checked_offsets(arrays.child_offsets, arrays.children.rows(), "children")),
        offsets_(checked_offsets(arrays.offsets, std::ssize(child_offsets_) - 1, "vertices")) {
    if (arrays.kinds) require_rows(*arrays.kinds, vertices(), 1);
    const ir::Function& pulled = ir::function_of(function);
    for (const ir::Field& field : pulled.pulls) {
      if (field.holds != ir::Field::Holds::input) continue;
      const bool edges = field.rows == Rows::edges();
      if (const Column* const column = find(field, edges)) {
        values_.push_back({column, edges, &(edges ? data_.edge_values : data_.values)[field.name]});
      }
    }
    for (const ir::IndexField& field : pulled.index_pulls) {
      if (field.holds != ir::IndexField::Holds::input) continue;
      const bool edges = field.rows == Rows::edges();
      if (const Column* const column = find(field, edges)) {
        if (!column->integers()) {
          throw MisuseError("'" + field.name + "' has floats; expected integers, since " + pulled.name +
                            " pulls it as an index");
        }
        indices_.push_back({column, edges, &(edges ? data_.edge_indices : data_.indices)[field.name]});
      }
    }
  }

  std::size_t count() const { return offsets_.size() - 1; }

  /// The reference is valid until the next call.
  const GraphData& operator[](std::size_t sample) {
    const std::int64_t begin = offsets_[sample], end = offsets_[sample + 1];
    const auto first = child_offsets_.begin() + begin;
    const std::int32_t first_child = *first, end_child = child_offsets_[static_cast<std::size_t>(end)];
    data_.child_begin.resize(static_cast<std::size_t>(end - begin + 1));
    for (std::size_t v = 0; v < data_.child_begin.size(); ++v) {
      data_.child_begin[v] = first[static_cast<std::ptrdiff_t>(v)] - first_child;
    }
    arrays_.children.copy(first_child, end_child, data_.children);
    if (arrays_.in_corpus) number_in_sample(static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end));
    if (arrays_.kinds) arrays_.kinds->copy(begin, end, data_.kinds);
    for (const Input<float>& input : values_) {
      input.column->copy(input.edges ? first_child : begin, input.edges ? end_child : end, *input.to);
    }
    for (const Input<std::int32_t>& input : indices_) {
      input.column->copy(input.edges ? first_child : begin, input.edges ? end_child : end, *input.to);
    }
    return data_;
  }

 private:
  template <class T>
  struct Input {
    const Column* column;
    bool edges;
    std::vector<T>* to;
  };

  std::int64_t vertices() const { return std::ssize(child_offsets_) - 1; }

  static void require_rows(const Column& column, std::int64_t rows, std::int64_t width) {
    if (column.rows() == rows && column.width() == width) return;
    throw MisuseError("'" + column.name() + "' has " + std::to_string(column.rows()) + " rows of width " +
                      std::to_string(column.width()) + "; expected " + std::to_string(rows) + " of width " +
                      std::to_string(width));
  }

  const Column* find(const auto& field, bool edges) const {
    const auto found = arrays_.inputs.find(field.name);
    if (found == arrays_.inputs.end()) return nullptr;
    require_rows(found->second, edges ? arrays_.children.rows() : vertices(), field.width);
    return &found->second;
  }

  void number_in_sample(std::int32_t begin, std::int32_t end) {
    for (std::int32_t& child : data_.children) {
      if (child == no_child) continue;
      if (child < begin || end <= child) {
        throw MisuseError("child " + std::to_string(child) + " is in another sample; expected " +
                          std::to_string(begin) + " to " + std::to_string(end - 1));
      }
      child -= begin;
    }
  }

  const GraphArrays& arrays_;
  const std::vector<std::int32_t> child_offsets_, offsets_;
  GraphData data_;
  std::vector<Input<float>> values_;
  std::vector<Input<std::int32_t>> indices_;
};

/// Throws the error of a sample again, with the number of the sample in its text.
[[noreturn]] void refuse_sample(std::size_t sample, const VertexFunction& function, const GraphData* data,
                                const MisuseError& error) {
  const std::string name = "sample " + std::to_string(sample);
  if (data != nullptr) InputGraph(function, *data, name);  // throws
  throw MisuseError(name + ": " + error.what());
}

}  // namespace

GraphsObject graphs_of(const VertexFunction& function, std::size_t count,
                       const std::function<const GraphData&(std::size_t)>& data_of) {
  const auto graphs = std::make_shared<std::vector<InputGraph>>();
  graphs->reserve(count);
  for (std::size_t s = 0; s < count; ++s) {
    const GraphData* data = nullptr;
    try {
      data = &data_of(s);
      graphs->emplace_back(function, *data);  // without a name, which would take memory for each graph
    } catch (const MisuseError& error) {
      refuse_sample(s, function, data, error);
    }
  }
  GraphsObject made;
  std::vector<InputGraph*> together;
  for (InputGraph& graph : *graphs) {
    together.push_back(&graph);
    made.graphs.emplace_back(graphs, &graph);
  }
  InputGraph::store_together(together);
  return made;
}

GraphsObject graphs_of(const VertexFunction& function, const GraphArrays& arrays) {
  Samples samples(function, arrays);
  return graphs_of(function, samples.count(), [&](std::size_t s) -> const GraphData& { return samples[s]; });
}

std::vector<const InputGraph*> GraphsObject::pointers() const {
  std::vector<const InputGraph*> all;
  all.reserve(graphs.size());
  for (const SharedGraph& graph : graphs) all.push_back(graph.get());
  return all;
}

}  // namespace windrow::python
