// Input graphs as Python sees them, and their construction from arrays.
#pragma once
#include <nanobind/ndarray.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "python.h"
#include "windrow/batching/graph.h"

namespace windrow::python {

/// A new object of `type`, which must be the class of T or a Python class that extends it, with this value.
template <class T>
nb::object new_object(nb::handle type, T value) {
  const int is_class = PyType_Check(type.ptr()) ? PyObject_IsSubclass(type.ptr(), nb::type<T>().ptr()) : 0;
  if (is_class != 1) throw nb::type_error("the class of a new object is another; expected one that extends its own");
  nb::object made = nb::inst_alloc(type);
  new (nb::inst_ptr<T>(made)) T(std::move(value));
  nb::inst_mark_ready(made);
  return made;
}

/// A caller's array, of any numeric type and any strides, as rows of numbers. A view, which keeps the array alive.
class Column {
 public:
  /// Needs the GIL. Throws TypeError unless `array` is an array of numbers in the host's memory with `dimensions`
  /// dimensions, or with one dimension in place of two for a width of 1. Errors call it `name`.
  Column(nb::handle array, const std::string& name, std::size_t dimensions = 2);

  std::int64_t rows() const { return rows_; }
  std::int64_t width() const { return width_; }
  bool integers() const { return copy_integers_ != nullptr; }
  const std::string& name() const { return name_; }

  /// Replaces `to` by rows [begin, end), which must exist. Throws MisuseError for numbers that are not integers of 32
  /// bits. Needs no GIL.
  void copy(std::int64_t begin, std::int64_t end, std::vector<std::int32_t>& to) const;
  void copy(std::int64_t begin, std::int64_t end, std::vector<float>& to) const;
  std::vector<std::int32_t> all() const;

 private:
  template <class To>
  using Copy = bool (*)(const Column& from, std::int64_t begin, std::vector<To>& to);
  template <class From>
  void set_copies();
  template <class From, class To>
  static bool copy_as(const Column& from, std::int64_t begin, std::vector<To>& to);

  std::string name_;
  nb::ndarray<nb::ro, nb::device::cpu> array_;
  const char* data_;
  std::int64_t rows_, width_, row_stride_, column_stride_;  // strides in bytes
  Copy<std::int32_t> copy_integers_ = nullptr;
  Copy<float> copy_floats_ = nullptr;
};

/// The arrays of many samples. Sample s has the vertices offsets[s] to offsets[s + 1] - 1. Vertex v has the children
/// children[child_offsets[v]] to children[child_offsets[v + 1] - 1].
struct GraphArrays {
  Column offsets, child_offsets, children;
  bool in_corpus;  ///< whether children are numbered through all samples, not within each
  std::optional<Column> kinds;
  std::map<std::string, Column> inputs;  ///< by the name by which the function pulls them
};

/// A graph that Python holds. Graphs that were made together share one owner.
using SharedGraph = std::shared_ptr<const InputGraph>;

/// Graphs of one vertex function, in order. A value: slices and minibatches share the graphs.
struct GraphsObject {
  std::vector<SharedGraph> graphs;

  std::vector<const InputGraph*> pointers() const;
};

/// Makes the graphs of all samples in one block of memory. Needs no GIL. Errors name sample and vertex.
GraphsObject graphs_of(const VertexFunction& function, const GraphArrays& arrays);
/// Makes graph i from data_of(i), as above.
GraphsObject graphs_of(const VertexFunction& function, std::size_t count,
                       const std::function<const GraphData&(std::size_t)>& data_of);

/// The graphs of Graphs, of an InputGraph, or of a sequence of InputGraph. Throws TypeError for anything else.
GraphsObject graphs_from(nb::handle object);

}  // namespace windrow::python
