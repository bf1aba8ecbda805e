#include "windrow/ops/tensor.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "windrow/memory/pool.h"

namespace windrow {
namespace {

std::size_t bytes_of(Index rows, Index width, std::size_t element, OpName name) {
  const std::string shape = std::to_string(rows) + " x " + std::to_string(width);
  if (rows < 0 || width < 0) {
    throw MisuseError("tensor '" + std::string(name.text()) + "': " + shape + "; expected no negative size");
  }
  Index elements = 0, bytes = 0;
  if (__builtin_mul_overflow(rows, width, &elements) ||
      __builtin_mul_overflow(elements, static_cast<Index>(element), &bytes)) {
    throw OutOfMemory("tensor '" + std::string(name.text()) + "': " + shape + " is more than any memory holds");
  }
  return static_cast<std::size_t>(bytes);
}

void require_range(Index begin, Index end, Index size, const char* what) {
  if (begin < 0 || end < begin || size < end) {
    throw MisuseError(std::string("view of ") + what + " [" + std::to_string(begin) + ", " + std::to_string(end) +
                      "); expected it within [0, " + std::to_string(size) + ")");
  }
}

}  // namespace

Device host_device(Engine& engine) {
  return {.name = "host",
          .engine = &engine,
          .lane = host_lane,
          .memory = std::make_shared<Pool>(host_allocator()),
          .kernels = host_kernels()};
}

template <class T>
TensorOf<T>::TensorOf(const Device& device, Index rows, Index width, OpName name)
    : buffer_(std::make_shared<Buffer>(*device.engine, device.memory, bytes_of(rows, width, sizeof(T), name), name)),
      shape_{nullptr, rows, width, width} {}

template <class T>
TensorOf<T> TensorOf<T>::row_range(Index begin, Index end) const {
  require_range(begin, end, rows(), "rows");
  const bool whole = whole_ && begin == 0 && end == rows();
  return {buffer_, {nullptr, end - begin, width(), shape_.stride}, offset_ + begin * shape_.stride, whole};
}

template <class T>
TensorOf<T> TensorOf<T>::column_range(Index begin, Index end) const {
  require_range(begin, end, width(), "columns");
  const bool whole = whole_ && begin == 0 && end == width();
  return {buffer_, {nullptr, rows(), end - begin, shape_.stride}, offset_ + begin, whole};
}

template <class T>
bool TensorOf<T>::same_view(const TensorOf& other) const {
  return buffer_ == other.buffer_ && offset_ == other.offset_ && rows() == other.rows() && width() == other.width() &&
         shape_.stride == other.shape_.stride;
}

template <class T>
void TensorOf<T>::set(std::vector<T> values, std::source_location pushed_at) const {
  if (values.size() != static_cast<std::size_t>(rows() * width())) {
    throw MisuseError("set: " + std::to_string(values.size()) + " values; expected " + std::to_string(rows()) + " x " +
                      std::to_string(width()));
  }
  const auto write = [view = view(), values = std::move(values)] {
    const Matrix<T> to = view.write();
    for (Index r = 0; r < to.rows; ++r) std::copy_n(values.data() + r * to.width, to.width, to.row(r));
  };
  engine().push(std::move(write), {whole() ? overwrite(var()) : mutate(var())},
                {.name = "set", .pushed_at = pushed_at});
}

template <class T>
std::vector<T> TensorOf<T>::get(std::source_location from) const {
  engine().wait({read(var())}, from);
  std::vector<T> values;
  const Matrix<const T> x = view().read();
  values.reserve(static_cast<std::size_t>(x.rows * x.width));
  for (Index r = 0; r < x.rows; ++r) values.insert(values.end(), x.row(r), x.row(r) + x.width);
  return values;
}

template class TensorOf<float>;
template class TensorOf<std::int32_t>;

}  // namespace windrow
