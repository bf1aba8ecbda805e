// Tensors: views of buffers as rows of equal width.
//
//   windrow::Tensor x(host, 2, 3, "x"), sums(host, 2, 1, "sums");
//   x.set({1, 2, 3, 4, 5, 6});
//   engine.push([](windrow::Matrix<const float> x, windrow::Matrix<float> sums) {
//     for (windrow::Index i = 0; i < x.rows; ++i) sums(i, 0) = std::accumulate(x.row(i), x.row(i) + x.width, 0.0f);
//   }, read(x), overwrite(sums), {.lane = host.lane});
//
// An op receives what it declares (value.h): a Matrix of const elements for a read, and of elements for mutate,
// overwrite and commute. The distance between rows is the stride, which may exceed the width. In a device's memory the
// addresses are the device's: the function takes an OpContext& first, and issues work on OpContext::lane().
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <vector>

#include "windrow/memory/buffer.h"
#include "windrow/ops/device.h"
#include "windrow/ops/internal/matrix.h"

namespace windrow {

struct ReplayedBuffers;

/// A handle: copies and views share one buffer, which ends with the last of them, after the ops that use it. They share
/// the buffer's variable too, so the engine orders accesses to all views as accesses to one value. A tensor may outlive
/// the engine; members that need the engine throw MisuseError then.
///
/// Elements are float, or int32 for indices. An op fails if it reads a tensor of which no element was written; if only
/// a part was written, the rest reads as zero. Threads: every member may be called from any thread.
template <class T>
class TensorOf {
 public:
  /// A new tensor of rows x width elements with the device's stride, not yet written. In a device's memory it belongs
  /// to the device's lane, whose ops write it first (see Buffer). Throws MisuseError for a negative size, OutOfMemory
  /// for a size that is not representable.
  TensorOf(const Device& device, Index rows, Index width, VarName name = OpName("tensor"));
  /// A view of rows x width contiguous elements of a buffer, from element `offset` on. Throws MisuseError if they do
  /// not lie within it.
  TensorOf(std::shared_ptr<Buffer> buffer, Index rows, Index width, Index offset = 0);
  TensorOf(const TensorOf&) = default;  // and no move: every tensor has a buffer
  TensorOf& operator=(const TensorOf&) = default;

  Index rows() const { return shape_.rows; }
  Index width() const { return shape_.width; }
  Var var() const { return buffer_->var(); }
  Engine& engine() const { return buffer_->engine(); }
  /// The lane on which the memory is allocated and freed.
  LaneId lane() const { return buffer_->lane(); }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  /// True if the tensor covers its buffer, so that overwriting it leaves no old elements.
  bool whole() const { return whole_; }
  /// The access of an op that writes all elements: overwrite if whole(), otherwise mutate.
  Access write_access() const { return whole() ? overwrite(var()) : mutate(var()); }
  /// True if both name the same elements in the same order.
  bool same_view(const TensorOf& other) const;
  /// True if the tensors may have an element in common. False for disjoint rectangles of one tensor.
  bool overlaps(const TensorOf& other) const;

  /// Views of rows or columns [begin, end). Throw MisuseError for a range outside the tensor.
  TensorOf row_range(Index begin, Index end) const;
  TensorOf column_range(Index begin, Index end) const;

  /// The elements, for ops to capture. A View does not keep the buffer alive; the engine does until the op has run.
  ///
  /// `lane` is the ordered lane of the op that calls, null on the host; see Bytes for read, write and update. In a
  /// device's memory the pointers are the device's. upload() and download() are copies to and from row-major elements
  /// in the host's memory, which must stay valid until the op's point is reached.
  class View {
   public:
    Matrix<const T> read(Lane* lane = nullptr) const;
    Matrix<T> write(Lane* lane = nullptr) const;
    Matrix<T> update(Lane* lane = nullptr) const;
    void upload(Lane* lane, const T* from) const;
    void download(Lane* lane, T* to) const;
    bool on_host() const { return bytes_.memory().on_host(); }
    /// The bytes of the whole buffer.
    const Bytes& bytes() const { return bytes_; }

   private:
    friend class TensorOf;
    View(Bytes bytes, bool whole, const Matrix<T>& shape, Index offset)
        : bytes_(bytes),
          whole_(whole),
          rows_(shape.rows),
          width_(shape.width),
          stride_(shape.stride),
          offset_(offset) {}
    bool empty() const { return rows_ == 0 || width_ == 0; }
    template <class U>
    Matrix<U> at(U* start) const {
      return {start == nullptr ? nullptr : start + offset_, rows_, width_, stride_};
    }

    Bytes bytes_;
    bool whole_;  // otherwise the first write clears the buffer
    Index rows_, width_, stride_, offset_;
  };
  View view() const { return View(buffer_->bytes(), whole(), shape_, offset_); }

  /// What an op keeps of read(tensor) and the other accesses; it receives a Matrix. Fails the op as View::write() does
  /// for an overwrite, and otherwise as read() and update().
  template <AccessKind kind>
  struct Kept {
    View view;
    Matrix<Accessed<T, kind>> operator()(OpContext& op) const {
      if constexpr (kind == AccessKind::read) {
        return view.read(op.lane());
      } else {
        return kind == AccessKind::overwrite ? view.write(op.lane()) : view.update(op.lane());
      }
    }
  };
  /// For read(), mutate(), overwrite() and commute(). An op that overwrites a view of a part writes all elements of the
  /// view; the others keep their values.
  template <AccessKind kind>
  OneAccess<Kept<kind>> access() const {
    return {kind == AccessKind::overwrite ? write_access() : Access{var(), kind}, {view()}};
  }

  /// Pushes an op that calls `write` on a thread of the host. `write` must write all elements of the matrix that it
  /// gets; the old elements are undefined. `accesses` are those of `write`; the access to the tensor is added. For a
  /// tensor in a device's memory, the matrix is staging memory, from which a second op copies the elements. In the body
  /// of a Static, each replay calls `write` again.
  void fill(std::function<void(const Matrix<T>&)> write, std::vector<Access> accesses,
            const PushOptions& options) const;
  /// Pushes an op that writes `values`, in row-major order. In the body of a Static they are a constant. Throws
  /// MisuseError if their number differs from the tensor's.
  void set(std::vector<T> values, std::source_location pushed_at = std::source_location::current()) const;
  /// Returns the elements in row-major order: pushes an op that copies them, on Device::copy_out if there is one, and
  /// waits for it. Throws as Engine::wait does.
  std::vector<T> get(std::source_location from = std::source_location::current()) const;

 private:
  TensorOf(std::shared_ptr<Buffer> buffer, Matrix<T> shape, Index offset, bool whole, LaneId copy_out)
      : buffer_(std::move(buffer)), shape_(shape), offset_(offset), whole_(whole), copy_out_(copy_out) {}

  ReplayedBuffers written_buffer() const;

  std::shared_ptr<Buffer> buffer_;
  Matrix<T> shape_;  // data is null
  Index offset_ = 0;
  bool whole_;
  LaneId copy_out_;  // of get()
};

using Tensor = TensorOf<float>;
using IntTensor = TensorOf<std::int32_t>;

/// For each row, the column of its largest element: the first one of equal elements. NaN counts as the largest, as for
/// op::top_k. Waits as get() does. Throws MisuseError for a width of 0.
std::vector<std::int32_t> argmax(const Tensor& rows, std::source_location from = std::source_location::current());

extern template class TensorOf<float>;
extern template class TensorOf<std::int32_t>;

}  // namespace windrow
