#include "windrow/ops/placed_tensor.h"

#include <algorithm>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "windrow/engine/internal/engine_use.h"
#include "windrow/engine/internal/mutex.h"
#include "windrow/engine/internal/push_refusal.h"

namespace windrow {
namespace {

CopyShape shape_of_copy(const Matrix<const float>& from, const Matrix<float>& to) {
  const auto bytes = [](Index elements) { return static_cast<std::size_t>(elements) * sizeof(float); };
  if (from.dense() && to.dense()) return CopyShape::contiguous(bytes(from.rows * from.width));
  return {static_cast<std::size_t>(from.rows), bytes(from.width), bytes(to.stride), bytes(from.stride)};
}

/// Copies from the host's memory to that of a tensor.
void upload(const Tensor::View& to, Lane* lane, const Matrix<const float>& from) {
  const Matrix<float> there = to.write(lane);
  if (from.rows == 0 || from.width == 0) return;
  to.bytes().memory().upload(lane, reinterpret_cast<std::byte*>(there.data),
                             reinterpret_cast<const std::byte*>(from.data), shape_of_copy(from, there));
}

}  // namespace

/// Where the value is. Shared by the handles.
///
/// Invariants:
///   1. If a copy is valid, there is an owner, which is valid.
///   2. A tensor is handed out only in calls that hold order_, in the section of mutex_ that decides that it is valid.
///      So while only the state holds a tensor and mutex_ is held, nobody can push an op that uses it.
///   3. mutex_ is not held during a push, because ops that run in the push may allocate, and so call reclaim().
class PlacedTensor::State final : public Reclaimable, public std::enable_shared_from_this<State> {
 public:
  State(const Device& home, Index rows, Index width, VarName name)
      : engine_(home.engine), home_(home), rows_(rows), width_(width), name_(name) {
    static_cast<void>(*engine_);
    if (rows < 0 || width < 0) {
      throw error(std::to_string(rows) + " x " + std::to_string(width) + "; expected no negative size");
    }
  }

  Index rows() const { return rows_; }
  Index width() const { return width_; }
  std::uint64_t copies() const WINDROW_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return copies_;
  }
  const Device& home() const { return home_; }

  /// Makes the tensor the copy on the home device.
  void adopt(const Tensor& tensor) WINDROW_EXCLUDES(order_, mutex_);
  Tensor take(const Device& device, Site at) WINDROW_EXCLUDES(order_, mutex_);
  Tensor take_to_overwrite(const Device& device, Site at) WINDROW_EXCLUDES(order_, mutex_);
  Tensor take_valid(Site at) WINDROW_EXCLUDES(order_, mutex_);
  bool valid_on(const Device& device, Site at) WINDROW_EXCLUDES(order_, mutex_);
  void drop(const Device& device, Site at) WINDROW_EXCLUDES(order_, mutex_);
  bool reclaim(const Allocator& memory) noexcept override WINDROW_EXCLUDES(mutex_);

 private:
  struct Place {
    Device device;
    Tensor tensor;
    std::uint64_t version;  ///< Engine::pushed_version() of the tensor when this state last looked
    std::uint8_t heals;     ///< EngineUse::heals() of it at that time
    bool valid = false;
    OpName copy_from, copy_to;  ///< names of ops

    Place(const Device& on, const Tensor& there)
        : device(on),
          tensor(there),
          version(on.engine->pushed_version(tensor.var())),
          heals(EngineUse::heals(*on.engine, tensor.var())),
          copy_from("copy from " + on.name),
          copy_to("copy to " + on.name) {}
  };

  MisuseError error(const std::string& what) const {
    return MisuseError("placed tensor '" + std::string(name_.text()) + "': " + what);
  }
  void require_call(const Device& device) const;
  /// Finds out which copy was written. A copy that was healed is as the failed op left it, and no longer valid; the
  /// owner stays the owner.
  void note_writes(Site at) WINDROW_REQUIRES(order_, mutex_);
  void note_version(Place& place, Site at) WINDROW_REQUIRES(order_, mutex_) {
    place.version = engine_->pushed_version(place.tensor.var(), at);
    place.heals = EngineUse::heals(*engine_, place.tensor.var());
  }
  Place* find(const Device& device) WINDROW_REQUIRES(order_, mutex_);
  Place& find_or_make(const Device& device) WINDROW_REQUIRES(order_, mutex_);
  Place& add(const Device& device, const Tensor& tensor) WINDROW_REQUIRES(order_, mutex_);
  /// The copy to copy from: on the host if there is one.
  Place& source() WINDROW_REQUIRES(order_, mutex_);
  /// Pushes the ops of a copy.
  void push_copy(const Place& from, const Tensor& source, const Place& to, const Tensor& target, Site at) const;

  const EngineRef engine_;
  const Device home_;
  const Index rows_, width_;
  const VarName name_;
  Mutex order_;  // held during a call and its pushes, so that other calls see it as one step
  mutable Mutex mutex_;
  std::list<Place> places_ WINDROW_GUARDED_BY(mutex_);                          // added to under order_ as well
  Place* owner_ WINDROW_GUARDED_BY(mutex_) = nullptr;                           // null: nothing was written
  std::vector<std::weak_ptr<Allocator>> reclaimed_ WINDROW_GUARDED_BY(mutex_);  // memories that may call reclaim()
  std::uint64_t copies_ WINDROW_GUARDED_BY(mutex_) = 0;
};

void PlacedTensor::State::require_call(const Device& device) const {
  Engine& engine = *engine_;
  if (device.engine != engine_) {
    throw error("on device '" + device.name + "' of another engine; expected one of the engine of '" + home_.name +
                "'");
  }
  if (PushRefusal::refuses_or_captures(engine)) {
    throw error(
        "its place is asked for inside a capture or a recording, which cannot know it; expected the call before, and "
        "again before each launch");
  }
  if (EngineUse::runs_op(engine)) {
    throw error("its place is asked for inside an op; expected the call by the thread that pushes ops");
  }
}

void PlacedTensor::State::note_writes(Site at) {
  Place* written = nullptr;
  for (Place& place : places_) {
    if (engine_->pushed_version(place.tensor.var(), at) == place.version) continue;
    if (&place != owner_ && EngineUse::heals(*engine_, place.tensor.var()) != place.heals) {
      place.valid = false;
      note_version(place, at);
      continue;
    }
    if (written != nullptr) {
      throw error("written on '" + written->device.name + "' and on '" + place.device.name +
                  "' with no call between the two; expected a call of on() or overwrite_on() before each push "
                  "(now a call of set() or overwrite_on())");
    }
    written = &place;
  }
  if (written == nullptr) return;
  for (Place& place : places_) place.valid = &place == written;
  owner_ = written;
  note_version(*written, at);
}

PlacedTensor::State::Place* PlacedTensor::State::find(const Device& device) {
  for (Place& place : places_) {
    if (place.device.memory == device.memory && place.device.memory_lane() == device.memory_lane()) return &place;
  }
  return nullptr;
}

PlacedTensor::State::Place& PlacedTensor::State::find_or_make(const Device& device) {
  if (Place* const found = find(device)) return *found;
  return add(device, Tensor(device, rows_, width_, name_));
}

PlacedTensor::State::Place& PlacedTensor::State::add(const Device& device, const Tensor& tensor) {
  const std::weak_ptr<Allocator> memory = device.memory;
  const auto is_it = [&](const std::weak_ptr<Allocator>& other) {
    return !other.owner_before(memory) && !memory.owner_before(other);
  };
  if (std::ranges::none_of(reclaimed_, is_it)) {
    device.memory->add_reclaimable(weak_from_this());
    reclaimed_.push_back(memory);
  }
  return places_.emplace_back(device, tensor);
}

void PlacedTensor::State::adopt(const Tensor& tensor) {
  require_call(home_);
  if (&tensor.engine() != engine_.get() || tensor.buffer()->memory() != home_.memory ||
      tensor.lane() != home_.memory_lane() || !tensor.whole()) {
    throw error("a view of a part, or a tensor that is not in the memory of '" + home_.name +
                "'; expected a whole tensor there");
  }
  const MutexLock call(order_);
  const MutexLock lock(mutex_);
  owner_ = &add(home_, tensor);
  owner_->valid = true;
}

PlacedTensor::State::Place& PlacedTensor::State::source() {
  if (owner_->device.on_host()) return *owner_;
  for (Place& place : places_) {
    if (place.valid && place.device.on_host()) return place;
  }
  return *owner_;
}

Tensor PlacedTensor::State::take(const Device& device, Site at) {
  require_call(device);
  const MutexLock call(order_);
  Place *from = nullptr, *to = nullptr;
  std::optional<Tensor> source_tensor, target;  // from here on, they are not reclaimed
  {
    const MutexLock lock(mutex_);
    note_writes(at);
    to = &find_or_make(device);
    if (owner_ == nullptr || to->valid) return to->tensor;
    from = &source();
    source_tensor = from->tensor;
    target = to->tensor;
  }
  push_copy(*from, *source_tensor, *to, *target, at);
  const MutexLock lock(mutex_);
  // Not of `from`: another thread may have written it since.
  note_version(*to, at);
  to->valid = true;
  ++copies_;
  return *target;
}

Tensor PlacedTensor::State::take_to_overwrite(const Device& device, Site at) {
  require_call(device);
  const MutexLock call(order_);
  const MutexLock lock(mutex_);
  Place& to = find_or_make(device);
  try {
    note_writes(at);
  } catch (const MisuseError&) {  // nobody knows which value was the last one, and it ends here
    for (Place& place : places_) {
      place.valid = false;
      note_version(place, at);
    }
    owner_ = nullptr;
  }
  return to.tensor;
}

Tensor PlacedTensor::State::take_valid(Site at) {
  require_call(home_);
  const MutexLock call(order_);
  const MutexLock lock(mutex_);
  note_writes(at);
  const Place* const home = find(home_);
  if (owner_ == nullptr || (home != nullptr && home->valid)) return find_or_make(home_).tensor;
  return owner_->tensor;
}

bool PlacedTensor::State::valid_on(const Device& device, Site at) {
  require_call(device);
  const MutexLock call(order_);
  const MutexLock lock(mutex_);
  note_writes(at);
  const Place* const place = find(device);
  return place != nullptr && place->valid;
}

void PlacedTensor::State::drop(const Device& device, Site at) {
  require_call(device);
  std::list<Place> dropped;  // destroyed without the locks, because that pushes ops
  const MutexLock call(order_);
  const MutexLock lock(mutex_);
  note_writes(at);
  Place* const place = find(device);
  if (place == nullptr) return;
  if (place == owner_) {
    Place* heir = nullptr;
    for (Place& other : places_) {
      if (other.valid && &other != place) heir = &other;
    }
    if (heir == nullptr) throw error("dropped on '" + device.name + "', where its only copy is; expected another one");
    owner_ = heir;
  }
  for (auto it = places_.begin(); it != places_.end(); ++it) {
    if (&*it == place) return dropped.splice(dropped.end(), places_, it);
  }
}

bool PlacedTensor::State::reclaim(const Allocator& memory) noexcept {
  try {
    std::list<Place> ended;  // its memory is freed, and it ends, without the lock: who allocates holds others
    {
      const MutexLock lock(mutex_);
      for (auto place = places_.begin(); place != places_.end() && ended.empty(); ++place) {
        if (&*place == owner_ || place->device.memory.get() != &memory) continue;
        if (place->tensor.buffer().use_count() > 1) return false;
        const Tensor alone = place->tensor;  // its count acquires what other holders did before they let go
        if (engine_->pushed_version(alone.var()) != place->version) return false;  // the next call will find the owner
        const Lane* const lane = place->device.on_host() ? nullptr : engine_->lane(place->device.lane);
        if (!EngineUse::is_idle(*engine_, alone.var(), lane)) return false;
        ended.splice(ended.end(), places_, place);
        break;
      }
    }
    return !ended.empty() && ended.front().tensor.buffer()->bytes().release();
  } catch (const std::exception&) {  // the engine has ended
  }
  return false;
}

void PlacedTensor::State::push_copy(const Place& from, const Tensor& source, const Place& to, const Tensor& target,
                                    Site at) const {
  const PushOptions to_target = {.name = to.copy_to, .lane = to.device.lane, .pushed_at = at};
  if (from.device.on_host()) {
    return engine_->push(
        [from = source.view(), to = target.view()](OpContext& op) { upload(to, op.lane(), from.read(op.lane())); },
        {read(source.var()), overwrite(target.var())}, to_target);
  }
  const std::size_t bytes = static_cast<std::size_t>(rows_ * width_) * sizeof(float);
  const Buffer staging(*engine_, from.device.memory->staging(), bytes, from.copy_from);
  engine_->push(
      [from = source.view(), to = staging.bytes()](OpContext& op) {
        from.download(op.lane(), reinterpret_cast<float*>(to.write_unwatched(op.lane())));
      },
      {read(source.var()), overwrite(staging.var())},
      {.name = from.copy_from, .lane = from.device.copy_out.value_or(from.device.lane), .pushed_at = at});
  engine_->push(
      [from = staging.bytes(), to = target.view(), rows = rows_, width = width_](OpContext& op) {
        upload(to, op.lane(), {reinterpret_cast<const float*>(from.read(op.lane())), rows, width, width});
      },
      {read(staging.var()), overwrite(target.var())}, to_target);
}

PlacedTensor::PlacedTensor(const Device& home, Index rows, Index width, VarName name)
    : state_(std::make_shared<State>(home, rows, width, name)) {}
PlacedTensor::PlacedTensor(const Device& home, const Tensor& tensor, VarName name)
    : PlacedTensor(home, tensor.rows(), tensor.width(), name) {
  state_->adopt(tensor);
}

Index PlacedTensor::rows() const { return state_->rows(); }
Index PlacedTensor::width() const { return state_->width(); }
std::uint64_t PlacedTensor::copies() const { return state_->copies(); }

Tensor PlacedTensor::on(const Device& device, Site pushed_at) const { return state_->take(device, pushed_at); }

Tensor PlacedTensor::overwrite_on(const Device& device, Site pushed_at) const {
  return state_->take_to_overwrite(device, pushed_at);
}

void PlacedTensor::set(std::vector<float> values, Site pushed_at) const {
  overwrite_on(state_->home(), pushed_at).set(std::move(values), pushed_at);
}

std::vector<float> PlacedTensor::get(Site from) const { return state_->take_valid(from).get(from); }

bool PlacedTensor::valid_on(const Device& device, Site from) const { return state_->valid_on(device, from); }

void PlacedTensor::drop(const Device& device, Site from) const { state_->drop(device, from); }

}  // namespace windrow
