#include "windrow/ops/tensor.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "record/recorder.h"

namespace windrow {
namespace {

std::size_t bytes_of(Index rows, Index width, Index stride, std::size_t element, OpName name) {
  const auto shape = [&] { return std::to_string(rows) + " x " + std::to_string(width); };
  if (rows < 0 || width < 0) {
    throw MisuseError("tensor '" + std::string(name.text()) + "': " + shape() + "; expected no negative size");
  }
  Index elements = 0, bytes = 0;
  if (__builtin_mul_overflow(rows, stride, &elements) ||
      __builtin_mul_overflow(elements, static_cast<Index>(element), &bytes)) {
    throw OutOfMemory("tensor '" + std::string(name.text()) + "': " + shape() + " is more than any memory holds");
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

template <class T>
TensorOf<T>::TensorOf(const Device& device, Index rows, Index width, VarName name)
    : buffer_(std::make_shared<Buffer>(device.engine, device.memory,
                                       bytes_of(rows, width, device.row_stride(width), sizeof(T), name), name,
                                       device.memory_lane())),
      shape_{nullptr, rows, width, device.row_stride(width)},
      whole_(true),
      copy_out_(device.on_host() ? host_lane : device.copy_out.value_or(device.lane)) {
  if (Recorder* const recorder = Recorder::here()) [[unlikely]]
    recorder->made(buffer_);
}

template <class T>
TensorOf<T>::TensorOf(std::shared_ptr<Buffer> buffer, Index rows, Index width, Index offset)
    : buffer_(std::move(buffer)), shape_{nullptr, rows, width, width}, offset_(offset) {
  const std::size_t bytes = bytes_of(rows, width, width, sizeof(T), "tensor");
  const std::size_t room = buffer_ == nullptr ? 0 : buffer_->size() / sizeof(T);
  if (buffer_ == nullptr || offset < 0 || static_cast<std::size_t>(offset) > room ||
      bytes / sizeof(T) > room - static_cast<std::size_t>(offset)) {
    throw MisuseError("tensor: " + std::to_string(rows) + " x " + std::to_string(width) + " from element " +
                      std::to_string(offset) + " on; expected a buffer that holds it, not one of " +
                      std::to_string(room) + " elements");
  }
  whole_ = bytes / sizeof(T) == room;
  copy_out_ = buffer_->lane();
}

template <class T>
bool TensorOf<T>::same_view(const TensorOf& other) const {
  return buffer_ == other.buffer_ && offset_ == other.offset_ && rows() == other.rows() && width() == other.width() &&
         shape_.stride == other.shape_.stride;
}

template <class T>
bool TensorOf<T>::overlaps(const TensorOf& other) const {
  const auto empty = [](const TensorOf& t) { return t.rows() == 0 || t.width() == 0; };
  if (buffer_ != other.buffer_ || empty(*this) || empty(other)) return false;
  const auto end = [](const TensorOf& t) { return t.offset_ + (t.rows() - 1) * t.shape_.stride + t.width(); };
  if (end(*this) <= other.offset_ || end(other) <= offset_) return false;
  if (shape_.stride != other.shape_.stride) return true;
  // Both tensors are columns [begin, begin + width) of rows of the same length.
  const Index begin = offset_ % shape_.stride, others = other.offset_ % shape_.stride;
  if (begin + width() > shape_.stride || others + other.width() > shape_.stride) return true;  // rows begin elsewhere
  return begin < others + other.width() && others < begin + width();
}

template <class T>
TensorOf<T> TensorOf<T>::row_range(Index begin, Index end) const {
  require_range(begin, end, rows(), "rows");
  return {buffer_,
          {nullptr, end - begin, width(), shape_.stride},
          offset_ + begin * shape_.stride,
          whole_ && end - begin == rows(),
          copy_out_};
}

template <class T>
TensorOf<T> TensorOf<T>::column_range(Index begin, Index end) const {
  require_range(begin, end, width(), "columns");
  return {buffer_,
          {nullptr, rows(), end - begin, shape_.stride},
          offset_ + begin,
          whole_ && end - begin == width(),
          copy_out_};
}

template <class T>
Matrix<const T> TensorOf<T>::View::read(Lane* lane) const {
  if (empty()) return at<const T>(nullptr);
  return at(reinterpret_cast<const T*>(bytes_.read(lane)));
}

template <class T>
Matrix<T> TensorOf<T>::View::update(Lane* lane) const {
  if (empty()) return at<T>(nullptr);
  return at(reinterpret_cast<T*>(bytes_.update(lane)));
}

template <class T>
Matrix<T> TensorOf<T>::View::write(Lane* lane) const {
  return at(reinterpret_cast<T*>(whole_ ? bytes_.write(lane) : bytes_.write_cleared(lane)));
}

/// The copy of a matrix to contiguous rows (or from them, with exchanged strides).
template <class T>
static CopyShape to_contiguous(const Matrix<T>& from) {
  const auto bytes = [](Index elements) { return static_cast<std::size_t>(elements) * sizeof(T); };
  if (from.dense()) return CopyShape::contiguous(bytes(from.rows * from.width));
  return {static_cast<std::size_t>(from.rows), bytes(from.width), bytes(from.width), bytes(from.stride)};
}

template <class T>
void TensorOf<T>::View::upload(Lane* lane, const T* from) const {
  const Matrix<T> to = write(lane);
  if (empty()) return;
  CopyShape shape = to_contiguous(to);
  std::swap(shape.to_stride, shape.from_stride);
  bytes_.memory().upload(lane, reinterpret_cast<std::byte*>(to.data), reinterpret_cast<const std::byte*>(from), shape);
}

template <class T>
void TensorOf<T>::View::download(Lane* lane, T* to) const {
  const Matrix<const T> from = read(lane);
  if (empty()) return;
  bytes_.memory().download(lane, reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from.data),
                           to_contiguous(from));
}

template <class T>
void TensorOf<T>::set(std::vector<T> values, std::source_location pushed_at) const {
  if (values.size() != static_cast<std::size_t>(rows() * width())) {
    throw MisuseError("set: " + std::to_string(values.size()) + " values; expected " + std::to_string(rows()) + " x " +
                      std::to_string(width()));
  }
  auto write = [view = view(), values = std::move(values)](OpContext& op) { view.upload(op.lane(), values.data()); };
  push_replayable(engine(), std::move(write), {write_access()}, {.name = "set", .lane = lane(), .pushed_at = pushed_at},
                  written_buffer());
}

template <class T>
std::vector<T> TensorOf<T>::get(std::source_location from) const {
  const auto count = static_cast<std::size_t>(rows() * width());
  // A device copies to memory of its own choice without making the host wait. The op may outlive a wait that throws.
  const Buffer staging(engine(), buffer_->bytes().memory().staging(), count * sizeof(T), OpName("values"));
  auto copy = [to = staging.bytes(), view = view()](OpContext& op) {
    view.download(op.lane(), reinterpret_cast<T*>(to.write_unwatched(op.lane())));
  };
  engine().push(std::move(copy), {windrow::read(var()), overwrite(staging.var())},
                {.name = "get", .lane = copy_out_, .pushed_at = from});
  engine().wait(staging.var(), from);
  const auto* const values = reinterpret_cast<const T*>(staging.bytes().read());
  return {values, values + count};
}

template <class T>
void TensorOf<T>::fill(std::function<void(const Matrix<T>&)> write, std::vector<Access> accesses,
                       const PushOptions& options) const {
  const View to = view();
  if (to.on_host()) {
    accesses.push_back(write_access());
    return push_replayable(
        engine(), [write = std::move(write), to] { write(to.write()); }, accesses, options, written_buffer());
  }
  const auto staging =
      std::make_shared<Buffer>(engine(), buffer_->bytes().memory().staging(),
                               bytes_of(rows(), width(), width(), sizeof(T), options.name), options.name);
  if (Recorder* const recorder = Recorder::here()) recorder->made(staging);
  accesses.push_back(overwrite(staging->var()));
  push_replayable(engine(),
                  [write = std::move(write), bytes = staging->bytes(), rows = rows(), width = width()] {
                    write({reinterpret_cast<T*>(bytes.write()), rows, width, width});
                  },
                  accesses, options, {.all = {staging}});
  PushOptions up = options;
  up.lane = lane();
  ReplayedBuffers both = written_buffer();
  both.all.push_back(staging);
  push_replayable(
      engine(),
      [to, bytes = staging->bytes()](OpContext& op) {
        to.upload(op.lane(), reinterpret_cast<const T*>(bytes.read(op.lane())));
      },
      {windrow::read(staging->var()), write_access()}, up, both);
}

template <class T>
ReplayedBuffers TensorOf<T>::written_buffer() const {
  return {.all = {buffer_}, .overwritten_in_part = whole() ? Var() : var()};
}

template class TensorOf<float>;
template class TensorOf<std::int32_t>;

std::vector<std::int32_t> argmax(const Tensor& rows, std::source_location from) {
  if (rows.width() == 0) throw MisuseError("argmax of rows of width 0; expected at least 1");
  const std::vector<float> elements = rows.get(from);
  const auto exceeds = [](float x, float y) { return x > y || (std::isnan(x) && !std::isnan(y)); };
  std::vector<std::int32_t> columns;
  for (auto row = elements.begin(); row != elements.end(); row += rows.width()) {
    Index top = 0;
    for (Index c = 1; c < rows.width(); ++c) {
      if (exceeds(row[c], row[top])) top = c;
    }
    columns.push_back(static_cast<std::int32_t>(top));
  }
  return columns;
}

}  // namespace windrow
