#include "windrow/ops/static.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "record/recorder.h"
#include "record/replay.h"
#include "windrow/ops/apply.h"

namespace windrow {
namespace {

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
  const Buffer staging(device.engine, device.memory->staging(), bytes, OpName("input"));
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

/// A body may return its inputs, so a tensor that a call passes may be an input of the recording. Copying the inputs
/// could overwrite it, so it is saved first.
template <class T>
void copy_inputs(const Device& device, const std::vector<TensorOf<T>>& given, const std::vector<TensorOf<T>>& own,
                 std::source_location from) {
  const auto is_there = [&](std::size_t k) { return given[k].same_view(own[k]); };
  const auto is_overwritten = [&](std::size_t k) {
    return std::ranges::any_of(own, [&](const TensorOf<T>& one) { return one.buffer() == given[k].buffer(); });
  };
  std::vector<std::pair<std::size_t, TensorOf<T>>> saved;
  for (std::size_t k = 0; k < given.size(); ++k) {
    if (is_there(k) || !is_overwritten(k)) continue;
    saved.emplace_back(k, TensorOf<T>(device, given[k].rows(), given[k].width(), OpName("input")));
    copy_input(device, given[k], saved.back().second, from);
  }
  for (std::size_t k = 0; k < given.size(); ++k) {
    if (is_there(k)) continue;
    const auto copy = std::ranges::find(saved, k, [](const auto& one) { return one.first; });
    copy_input(device, copy == saved.end() ? given[k] : copy->second, own[k], from);
  }
}

/// Checks StaticOptions::reads for the ops that a body records; these are the ones that `recorder` notes from now on.
class ClosedBody {
 public:
  explicit ClosedBody(const Recorder& recorder)
      : ops_(recorder.noted()), first_op_(ops_.ops.size()), first_item_(ops_.items.size()) {}

  void require(const StaticInputs& inputs, const std::vector<Tensor>& results, const std::vector<Tensor>& reads) const {
    constexpr const char* expected =
        "; expected a body that reads its inputs and the listed tensors, and writes what it makes";
    std::unordered_set<const Buffer*> open;
    for (const auto* tensors : {&inputs.in, &reads}) {
      for (const Tensor& tensor : *tensors) open.insert(tensor.buffer().get());
    }
    for (const IntTensor& tensor : inputs.indices) open.insert(tensor.buffer().get());
    for (std::size_t i = first_op_; i < ops_.ops.size(); ++i) {
      for (const auto& [item, kind] : ops_.ops[i].uses) {
        const RecordedOps::Item& used = ops_.items[item];
        if (used.made && item >= first_item_) continue;
        if (kind == AccessKind::read && open.contains(used.buffer.get())) continue;
        throw MisuseError("op '" + std::string(ops_.ops[i].options.name.text()) + "' in the body of a Static " +
                          (kind == AccessKind::read ? "reads a tensor that is no input and not listed"
                                                    : "writes what the body has not made, or draws") +
                          expected);
      }
    }
    for (std::size_t item = first_item_; item < ops_.items.size(); ++item) {
      if (ops_.items[item].made) open.insert(ops_.items[item].buffer.get());
    }
    for (const Tensor& result : results) {
      if (open.contains(result.buffer().get())) continue;
      throw MisuseError(
          std::string("the body of a Static returns a tensor from outside that is no input and not listed") + expected);
    }
  }

 private:
  const RecordedOps& ops_;
  const std::size_t first_op_, first_item_;
};

}  // namespace

class Static::Impl {
 public:
  Impl(const Device& device, Body body, StaticOptions options) : device_(device), options_(options) {
    if (!body) throw MisuseError("Static: no body; expected a function");
    if (options_.most_recordings == 0) throw MisuseError("Static: most_recordings 0; expected 1 or more");
    bodies_.push_back(std::move(body));
  }

  const std::vector<Tensor>& call(const StaticInputs& inputs, std::source_location from) {
    refuse_in_own_body("called");
    require_inputs(inputs);
    if (Recorder* const outer = Recorder::here()) {
      const Recorder::Mark before = outer->mark();
      try {
        return outer->keep_results(run(inputs, *outer));
      } catch (...) {
        outer->forget_since(before);  // the outer body may continue
        throw;
      }
    }
    const auto found = std::ranges::find_if(kept_, [&](const auto& one) { return one->fits(inputs); });
    const bool replayed = found != kept_.end();
    Recorded& recorded = replayed ? **found : record(inputs, from);
    recorded.last_call = ++calls_;
    last_ = &recorded;
    ++(replayed ? stats_.replayed : stats_.recorded);
    if (heal_all(from)) make_room(recorded.bytes(), &recorded);  // the failure may have been a lack of memory
    launch(recorded, inputs, from);
    return recorded.results;
  }

  void heal(std::source_location from) {
    if (!kept_.empty()) heal_all(from);
  }

  void append(Body more) {
    if (!more) throw MisuseError("Static: append of no body; expected a function");
    refuse_in_own_body("append()");
    refuse_in_recording("append()");
    bodies_.push_back(std::move(more));
    stats_.dropped += kept_.size();
    kept_.clear();
    last_ = nullptr;
  }

  StaticStats stats() const {
    StaticStats now = stats_;
    now.kept = kept_.size();
    if (last_ != nullptr) {
      now.ops = last_->replay.ops;
      now.accesses = last_->replay.accesses;
      now.planned_bytes = last_->replay.planned_bytes;
      now.unshared_bytes = last_->replay.unshared_bytes;
    }
    return now;
  }

 private:
  struct Recorded {
    bool fits(const StaticInputs& inputs) const {
      const auto same = [](const auto& a, const auto& b) { return a.rows() == b.rows() && a.width() == b.width(); };
      return own.key == inputs.key && std::ranges::equal(own.in, inputs.in, same) &&
             std::ranges::equal(own.indices, inputs.indices, same);
    }
    void count(HeldBuffers& held) const {
      for (const RecordedOps::Item& item : replay.run->items) ++held[item.buffer.get()];
      for (const auto* tensors : {&own.in, &results}) {
        for (const Tensor& tensor : *tensors) ++held[tensor.buffer().get()];
      }
      for (const IntTensor& tensor : own.indices) ++held[tensor.buffer().get()];
    }
    /// The bytes of its memory: its inputs, the tensors inside, and those that the body made and returned.
    std::size_t bytes() const {
      std::size_t sum = replay.planned_bytes;
      for (const Tensor& tensor : own.in) sum += tensor.buffer()->size();
      for (const IntTensor& tensor : own.indices) sum += tensor.buffer()->size();
      for (const RecordedOps::Item& item : replay.run->items) {
        const auto is_it = [&](const Tensor& result) { return result.buffer() == item.buffer; };
        if (item.made && std::ranges::any_of(results, is_it)) sum += item.buffer->size();
      }
      return sum;
    }

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

  void refuse_in_own_body(const char* what) const {
    if (running_) throw MisuseError(std::string("Static: ") + what + " in its own body; expected another Static there");
  }

  std::vector<Tensor> run(const StaticInputs& inputs, const Recorder& recorder) {
    const ClosedBody closed(recorder);
    struct Running {
      bool& flag;
      ~Running() { flag = false; }
    };
    const Running running{running_ = true};
    std::vector<Tensor> results;
    for (const Body& body : bodies_) {
      const std::vector<Tensor> more = body(inputs);
      results.insert(results.end(), more.begin(), more.end());
    }
    if (options_.reads) closed.require(inputs, results, *options_.reads);
    return results;
  }

  void make_inputs(StaticInputs& own, const StaticInputs& like) const {
    const Unrecorded once;  // the recording does not include making the inputs
    own.key = like.key;
    for (const Tensor& one : like.in) own.in.emplace_back(device_, one.rows(), one.width(), OpName("input"));
    for (const IntTensor& one : like.indices) {
      own.indices.emplace_back(device_, one.rows(), one.width(), OpName("input"));
    }
  }

  Recorded& record(const StaticInputs& inputs, std::source_location from) {
    auto made = std::make_unique<Recorded>();
    Engine& engine = *device_.engine;
    std::optional<Recorder> recorder;
    try {
      recorder.emplace(engine);
    } catch (const MisuseError&) {
      throw MisuseError("Static: first call for these inputs inside a capture; expected a call before it");
    }
    make_inputs(made->own, inputs);
    made->results = run(made->own, *recorder);
    HeldBuffers held;
    for (const auto& earlier : kept_) earlier->count(held);
    made->replay = make_replay(engine, recorder->finish(), held, options_, from);
    make_room(made->bytes(), nullptr);
    kept_.reserve(kept_.size() + 1);
    if (kept_.size() == options_.most_recordings) drop_oldest();
    return *kept_.emplace_back(std::move(made));
  }

  /// Each recording has memory of its own. If memory is limited, all recordings together take at most half of it; the
  /// called one is kept, and others are dropped. `called` is null if it is not kept yet.
  void make_room(std::size_t bytes, const Recorded* called) {
    if (device_.memory == nullptr) return;
    const MemoryUse use = device_.memory->use();
    if (use.limit == unlimited) return;
    const std::size_t wanted = bytes + bytes / 4;  // pools round up
    std::size_t free = use.limit - std::min(use.live, use.limit), kept = called == nullptr ? bytes : 0;
    for (const auto& one : kept_) kept += one->bytes();
    const std::size_t least = called == nullptr ? 0 : 1;
    while (kept_.size() > least && (free < wanted || kept > use.limit / 2)) {
      const std::size_t dropped = drop_oldest();
      free += dropped;
      kept -= dropped;
    }
  }
  /// Returns the bytes that it gives back.
  std::size_t drop_oldest() {
    const auto oldest = std::ranges::min_element(kept_, {}, [](const auto& one) { return one->last_call; });
    const std::size_t bytes = (*oldest)->bytes();
    if (last_ == oldest->get()) last_ = nullptr;
    kept_.erase(oldest);
    ++stats_.dropped;
    return bytes;
  }

  /// A failed launch poisons variables that only its recording reaches. Without this, each wait for all ops would
  /// report the failure again if the program goes on with other inputs, or if the next launch fails at the same place.
  /// Returns whether something had failed.
  bool heal_all(std::source_location from) {
    const std::uint64_t failures = device_.engine->failures();
    // A graph that is being captured, or a recording, must contain only the ops of the call.
    if (failures == failures_seen_ || PushRefusal::refuses_or_captures(*device_.engine)) return false;
    for (const auto& recorded : kept_) heal_hidden(*recorded, from);
    failures_seen_ = failures;  // later failures of launches that were pushed before are healed, too
    return true;
  }
  void heal_hidden(const Recorded& recorded, std::source_location from) const {
    HeldBuffers held;
    recorded.count(held);
    const auto heal = [&](const Var& var) { device_.engine->heal(var, {.name = "heal", .pushed_at = from}); };
    const auto heal_unless_shared = [&](const std::shared_ptr<Buffer>& buffer) {
      if (buffer != nullptr && buffer.use_count() == held[buffer.get()]) heal(buffer->var());
    };
    for (const RecordedOps::Item& item : recorded.replay.run->items) {
      if (item.made) heal_unless_shared(item.buffer);
    }
    for (const Tensor& tensor : recorded.own.in) heal_unless_shared(tensor.buffer());
    for (const IntTensor& tensor : recorded.own.indices) heal_unless_shared(tensor.buffer());
    if (recorded.replay.run->turn) heal(recorded.replay.run->turn->var());
  }

  void launch(const Recorded& recorded, const StaticInputs& inputs, std::source_location from) {
    copy_inputs(device_, inputs.in, recorded.own.in, from);
    copy_inputs(device_, inputs.indices, recorded.own.indices, from);
    recorded.replay.graph.launch(from);
  }

  const Device device_;
  std::vector<Body> bodies_;  // run one after the other
  bool running_ = false;      // whether they run
  const StaticOptions options_;
  std::vector<std::unique_ptr<Recorded>> kept_;
  Recorded* last_ = nullptr;
  std::uint64_t calls_ = 0;
  std::uint64_t failures_seen_ = 0;  // the engine's, when recordings were healed last
  StaticStats stats_;
};

Static::Static(const Device& device, Body body, StaticOptions options)
    : impl_(std::make_unique<Impl>(device, std::move(body), options)) {}
Static::~Static() = default;

const std::vector<Tensor>& Static::operator()(const StaticInputs& inputs, std::source_location from) {
  return impl_->call(inputs, from);
}
void Static::heal(std::source_location from) { impl_->heal(from); }
void Static::append(Body more) { impl_->append(std::move(more)); }
StaticStats Static::stats() const { return impl_->stats(); }

}  // namespace windrow
