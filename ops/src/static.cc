#include "windrow/ops/static.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "recorder.h"
#include "replay.h"
#include "windrow/ops/apply.h"

namespace windrow {
namespace {

/// What decides whether a recording fits a call.
struct StaticKey {
  explicit StaticKey(const StaticInputs& inputs) : key(inputs.key) {
    for (const Tensor& tensor : inputs.in) in.emplace_back(tensor.rows(), tensor.width());
    for (const IntTensor& tensor : inputs.indices) indices.emplace_back(tensor.rows(), tensor.width());
  }
  bool fits(const StaticInputs& inputs) const {
    const auto same = [](const std::pair<Index, Index>& shape, const auto& tensor) {
      return shape.first == tensor.rows() && shape.second == tensor.width();
    };
    return key == inputs.key && std::ranges::equal(in, inputs.in, same) &&
           std::ranges::equal(indices, inputs.indices, same);
  }

  std::vector<std::pair<Index, Index>> in, indices;  // rows and widths
  std::uint64_t key;
};

/// Copies the rows of a tensor into a whole buffer. Small enough to be stored in an op without the heap.
template <class T>
struct CopyRows {
  typename TensorOf<T>::View from;
  Bytes to;
  Index stride;

  void operator()() const {
    const Matrix<const T> rows = from.read();
    T* const start = reinterpret_cast<T*>(to.write());
    for (Index r = 0; r < rows.rows; ++r) {
      std::memcpy(start + r * stride, rows.row(r), static_cast<std::size_t>(rows.width) * sizeof(T));
    }
  }
};
static_assert(sizeof(CopyRows<float>) <= OpFunction::inline_bytes);

void copy_on_device(const Device& device, const Tensor& from, const Tensor& to, std::source_location pushed_at) {
  apply(device, op::concat, {.in = {from}}, to, pushed_at);
}
/// Through the host's memory, since no operator has a result of int32.
void copy_on_device(const Device& device, const IntTensor& from, const IntTensor& to, std::source_location pushed_at) {
  const auto bytes = static_cast<std::size_t>(from.rows() * from.width()) * sizeof(std::int32_t);
  const Buffer staging(device.engine, device.memory->staging(), bytes, "input");
  PushOptions how{.name = "input", .lane = device.lane, .pushed_at = pushed_at};
  device.engine->push(
      [view = from.view(), bytes = staging.bytes()](OpContext& op) {
        view.download(op.lane(), reinterpret_cast<std::int32_t*>(bytes.write_unwatched(op.lane())));
      },
      {read(from.var()), overwrite(staging.var())}, how);
  device.engine->push(
      [view = to.view(), bytes = staging.bytes()](OpContext& op) {
        view.upload(op.lane(), reinterpret_cast<const std::int32_t*>(bytes.read(op.lane())));
      },
      {read(staging.var()), overwrite(to.var())}, how);
}

template <class T>
void copy_input(const Device& device, const TensorOf<T>& from, const TensorOf<T>& to, std::source_location pushed_at) {
  if (from.rows() == 0 || from.width() == 0) return;
  if (!device.on_host()) return copy_on_device(device, from, to, pushed_at);
  device.engine->push(CopyRows<T>{from.view(), to.buffer()->bytes(), device.row_stride(to.width())},
                      {read(from.var()), overwrite(to.var())}, {.name = "input", .pushed_at = pushed_at});
}

}  // namespace

class Static::Impl {
 public:
  Impl(const Device& device, Body body, StaticOptions options)
      : device_(device), body_(std::move(body)), options_(options) {
    if (!body_) throw MisuseError("Static: no body; expected a function");
    if (options_.most_recordings == 0) throw MisuseError("Static: most_recordings 0; expected 1 or more");
  }

  const std::vector<Tensor>& call(const StaticInputs& inputs, std::source_location from) {
    if (Recorder::here() != nullptr) return results_inside_ = body_(inputs);
    require_inputs(inputs);
    const auto found = std::ranges::find_if(kept_, [&](const auto& one) { return one->key.fits(inputs); });
    const bool replayed = found != kept_.end();
    Recorded& recorded = replayed ? **found : record(inputs, from);
    recorded.last_call = ++calls_;
    last_ = &recorded;
    ++(replayed ? stats_.replayed : stats_.recorded);
    launch(recorded, inputs, from);
    return recorded.results;
  }

  void append(Body more) {
    if (!more) throw MisuseError("Static: append of no body; expected a function");
    refuse_in_recording("append()");
    body_ = [first = std::move(body_), more = std::move(more)](const StaticInputs& inputs) {
      std::vector<Tensor> results = first(inputs);
      const std::vector<Tensor> behind = more(inputs);
      results.insert(results.end(), behind.begin(), behind.end());
      return results;
    };
    stats_.dropped += kept_.size();
    kept_.clear();
    last_ = nullptr;
  }

  StaticStats stats() const {
    StaticStats now = stats_;
    now.kept = kept_.size();
    if (last_ != nullptr) {
      now.ops = last_->replay.ops;
      now.planned_bytes = last_->replay.planned_bytes;
      now.unshared_bytes = last_->replay.unshared_bytes;
    }
    return now;
  }

 private:
  struct Recorded {
    explicit Recorded(const StaticInputs& inputs) : key(inputs) {}

    const StaticKey key;
    StaticInputs own;
    std::vector<Tensor> results;
    Replay replay;
    std::uint64_t last_call = 0;
  };

  void require_inputs(const StaticInputs& inputs) const {
    const auto elsewhere = [&](const auto& tensor) { return !device_.holds(tensor); };
    if (std::ranges::none_of(inputs.in, elsewhere) && std::ranges::none_of(inputs.indices, elsewhere)) return;
    throw MisuseError("Static: an input that is not in the memory of device '" + device_.name +
                      "'; expected all inputs there");
  }

  Recorded& record(const StaticInputs& inputs, std::source_location from) {
    auto made = std::make_unique<Recorded>(inputs);
    made->own.key = inputs.key;
    for (const Tensor& one : inputs.in) made->own.in.emplace_back(device_, one.rows(), one.width(), OpName("input"));
    for (const IntTensor& one : inputs.indices)
      made->own.indices.emplace_back(device_, one.rows(), one.width(), OpName("input"));
    Engine& engine = *device_.engine;
    Recorder recorder(engine);
    made->results = body_(made->own);
    made->replay = make_replay(engine, recorder.finish(), options_, from);
    kept_.reserve(kept_.size() + 1);
    if (kept_.size() == options_.most_recordings) {
      kept_.erase(std::ranges::min_element(kept_, {}, [](const auto& one) { return one->last_call; }));
      ++stats_.dropped;
    }
    return *kept_.emplace_back(std::move(made));
  }

  void launch(const Recorded& recorded, const StaticInputs& inputs, std::source_location from) {
    for (std::size_t k = 0; k < inputs.in.size(); ++k) copy_input(device_, inputs.in[k], recorded.own.in[k], from);
    for (std::size_t k = 0; k < inputs.indices.size(); ++k) {
      copy_input(device_, inputs.indices[k], recorded.own.indices[k], from);
    }
    recorded.replay.graph.launch(from);
  }

  const Device device_;
  Body body_;
  const StaticOptions options_;
  std::vector<std::unique_ptr<Recorded>> kept_;
  Recorded* last_ = nullptr;
  std::vector<Tensor> results_inside_;  // of the last call in the body of another Static
  std::uint64_t calls_ = 0;
  StaticStats stats_;
};

Static::Static(const Device& device, Body body, StaticOptions options)
    : impl_(std::make_unique<Impl>(device, std::move(body), options)) {}
Static::~Static() = default;

const std::vector<Tensor>& Static::operator()(const StaticInputs& inputs, std::source_location from) {
  return impl_->call(inputs, from);
}
void Static::append(Body more) { impl_->append(std::move(more)); }
StaticStats Static::stats() const { return impl_->stats(); }

}  // namespace windrow
