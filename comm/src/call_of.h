// The call of one member, from the check of its arguments to the push of its ops. For communicator.cc.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "windrow/comm/communicator.h"
#include "windrow/comm/internal/member.h"
#include "windrow/engine/internal/engine_use.h"
#include "windrow/engine/internal/push_refusal.h"

namespace windrow::comm {

enum class Use : std::uint8_t { read, write, update };

/// Calls are numbered when they are made, so a call cannot be repeated.
inline void refuse_inside(Engine& engine, std::string_view call) {
  if (!PushRefusal::refuses_or_captures(engine)) return;
  throw MisuseError(std::string(call) + ": in a capture or in the body of a Static; expected the call outside");
}

template <class T>
struct Operand {
  TensorOf<T> tensor;
  Use use;
};

template <class T>
Access access(const Operand<T>& operand) {
  switch (operand.use) {
    case Use::read:
      return read(operand.tensor.var());
    case Use::write:
      return operand.tensor.write_access();
    default:
      return mutate(operand.tensor.var());
  }
}

template <class T>
struct View {
  typename TensorOf<T>::View view;
  Use use;

  Piece piece(Lane* lane) const {
    if (use == Use::read) {
      const Matrix<const T> m = view.read(lane);
      return {const_cast<std::byte*>(reinterpret_cast<const std::byte*>(m.data)), m.rows, m.width, 4 * m.stride};
    }
    const Matrix<T> m = use == Use::write ? view.write(lane) : view.update(lane);
    return {reinterpret_cast<std::byte*>(m.data), m.rows, m.width, 4 * m.stride};
  }
  /// See Exchange::leave_pieces().
  void leave() const noexcept {
    if (use == Use::read) return view.bytes().never_free();
    try {
      view.bytes().move_away();
    } catch (const std::exception&) {
      view.bytes().never_free();
    }
  }
};

/// OpName keeps texts that are no literals, which takes longer.
inline OpName name_of(CallKind kind) {
  static const auto names = [] {
    std::array<OpName, static_cast<std::size_t>(CallKind::recv) + 1> all;
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = comm::to_string(static_cast<CallKind>(i));
    return all;
  }();
  return names[static_cast<std::size_t>(kind)];
}

template <class T>
constexpr Elements elements_of = std::is_same_v<T, float> ? Elements::float32 : Elements::int32;

/// Made, filled and pushed by one call of a Communicator.
template <class T>
class CallOf {
 public:
  CallOf(const Device& device, const std::shared_ptr<Member>& member, CallKind kind, const CollectiveOptions& options)
      : device_(device), member_(member), on_lane_(member_->on_lane(kind)), options_(options) {
    call_.kind = kind;
    if (member_->nested() != nullptr) refuse("a member of a NestedGroup; expected all_reduce or broadcast");
    call_.elements = elements_of<T>;
    call_.name = options.name;
    if (kind >= CallKind::all_gather) return;
    call_.priority = options.priority;
    if (options.part_bytes % sizeof(T) != 0) {
      refuse("part_bytes = " + std::to_string(options.part_bytes) + "; expected a multiple of " +
             std::to_string(sizeof(T)));
    }
    call_.part_bytes = options.part_bytes;
  }

  CallOf& combine(Combine how) {
    call_.combine = how;
    if (how > Combine::max)
      refuse("combination " + std::to_string(static_cast<int>(how)) + "; expected sum, mean or max");
    if (how == Combine::mean && !std::is_same_v<T, float>) refuse("the mean of int32; expected sum or max");
    return *this;
  }
  CallOf& peer(int rank) {
    call_.peer = rank;
    if (rank < 0 || rank >= member_->size()) {
      refuse("rank " + std::to_string(rank) + "; expected one from 0 to " + std::to_string(member_->size() - 1));
    }
    const bool pair = call_.kind == CallKind::send || call_.kind == CallKind::recv;
    if (pair && rank == member_->rank()) refuse("rank " + std::to_string(rank) + ", which is this member");
    return *this;
  }
  CallOf& out_of_place() {
    call_.out_of_place = true;
    return *this;
  }
  /// The tensors of the call; `blocks` of them is a whole number of blocks.
  CallOf& add(const TensorOf<T>& tensor, Use use, int blocks = 1) {
    if (&tensor.engine() != device_.engine.get()) refuse("a tensor of another engine");
    if (on_lane_ && tensor.lane() != host_lane && !device_.holds(tensor)) {
      refuse("a tensor of another device; expected one of " + device_.name + ", or in the host's memory");
    }
    if (tensor.rows() % blocks != 0) {
      refuse("a tensor of " + std::to_string(tensor.rows()) + " rows; expected a multiple of " +
             std::to_string(blocks));
    }
    const Call::Shape shape{tensor.rows() / blocks, tensor.width()};
    if (call_.has_two_ends() && !call_.shapes.empty()) {
      if (shape != call_.shapes.front()) {
        refuse((call_.out_of_place ? "tensors of " : "blocks of ") + text(call_.shapes.front()) + " and of " +
               text(shape) + "; expected equal ones");
      }
    } else {
      call_.shapes.push_back(shape);
    }
    for (const Operand<T>& other : operands_) {
      if (tensor.overlaps(other.tensor)) refuse("tensors that overlap");
    }
    operands_.push_back({tensor, use});
    return *this;
  }

  /// Ends the use of this object.
  void push() {
    refuse_inside(*device_.engine, comm::to_string(call_.kind));
    Engine& engine = *device_.engine;
    require_countable(call_.kind, static_cast<Index>(call_.bytes() / 4), call_.part_bytes,
                      member_->most_elements(call_.kind));
    if (member_->group() != member_.get()) EngineUse::note_awaited(engine);  // it may call for the other members, too
    const OpName name = options_.name.text().empty() ? name_of(call_.kind) : options_.name;
    const PushOptions options{.name = name, .priority = options_.priority, .pushed_at = options_.pushed_at};
    const bool in_place = std::ranges::none_of(operands_, [this](const auto& operand) { return elsewhere(operand); });
    Operands copies;
    for (const Operand<T>& operand : operands_) {
      if (!in_place) copies.push_back(staged(operand, options));
    }
    Operands& placed = in_place ? operands_ : copies;
    const auto [kind, peer] = std::pair(call_.kind, call_.peer);
    call_.number = member_->number(kind, peer);
    Var begun;
    try {
      push_numbered(placed, options, begun);
    } catch (...) {
      if (!begun) member_->not_made(kind, peer);  // otherwise the lane begins with it
      throw;
    }
    if (begun) engine.retire(begun);
    for (std::size_t i = 0; i < copies.size(); ++i) bring_back(operands_[i], placed[i], options);
  }

 private:
  using Operands = comm::ShortList<Operand<T>, 2>;
  using Views = comm::ShortList<View<T>>;

  /// On a lane, sets `begun` to the variable that is written by the op which calls Member::begin(), once that op is
  /// pushed.
  void push_numbered(Operands& placed, PushOptions options, Var& begun) {
    options.run_always = true;
    ShortList<Access, 4> accesses;
    if (on_lane_) {
      begun = begin_on_lane(placed, options);
      accesses.push_back(read(begun));
    } else if (device_.on_host()) {
      options.lane = device_.lane;
    }
    for (const Operand<T>& operand : placed) {
      accesses.push_back(access(operand));
      if (!on_lane_) part_->views.push_back({operand.tensor.view(), operand.use});
    }
    part_->clock = member_->clock();
    device_.engine->push_async(
        [member = member_, part = std::move(part_)](OnComplete done) mutable {
          part->begin(std::move(done));
          member->take(std::move(part));
        },
        std::span<const Access>(accesses.data(), accesses.size()), options);
  }

  struct Part final : Exchange {
    Views views;
    std::shared_ptr<comm::CallClock> clock;

    void begin(OnComplete done) {
      static_cast<comm::Operands&>(*this) = operands_of(views, done.failure(), nullptr);
      if (clock) timed = clock->begin();
      token.emplace(std::move(done));  // last: if something throws before, `done` ends with this call and fails the op
    }
    void leave_pieces() noexcept override {
      for (const View<T>& view : views) view.leave();
    }
  };

  static std::string text(const Call::Shape& shape) {
    return std::to_string(shape.rows) + " x " + std::to_string(shape.width);
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw MisuseError(std::string(comm::to_string(call_.kind)) + ": " + what);
  }

  /// The operands that an op of the lane hands to the member; `lane` is null on the host.
  static comm::Operands operands_of(const Views& views, const FailurePtr& failure, Lane* lane) {
    if (failure) return {{}, failure->describe(), failure->origin()};
    try {
      comm::Pieces pieces;
      for (const View<T>& view : views) pieces.push_back(view.piece(lane));
      return {std::move(pieces), {}};
    } catch (const std::exception& error) {
      return {{}, error.what(), std::current_exception()};
    }
  }

  /// Pushes the op that calls Member::begin(), and writes the variable that is returned. Afterwards all operands that
  /// are written count as updated.
  Var begin_on_lane(Operands& placed, PushOptions options) const {
    const Var begun = device_.engine->new_var(options.name);
    std::vector<Access> accesses = {overwrite(begun)};
    Views views;
    for (Operand<T>& operand : placed) {
      if (operand.use == Use::write) {  // by the lane that the memory belongs to, which allocates it
        PushOptions first = options;
        first.run_always = false;
        first.lane = operand.tensor.lane();
        device_.engine->push([view = operand.tensor.view()](OpContext& op) { view.write(op.lane()); },
                             {operand.tensor.write_access()}, first);
        operand.use = Use::update;
      }
      accesses.push_back(access(operand));
      views.push_back({operand.tensor.view(), operand.use});
    }
    options.lane = device_.collectives.value_or(device_.lane);
    device_.engine->push(
        [member = member_, call = call_, views = std::move(views)](OpContext& op) {
          member->begin(call, operands_of(views, op.failure(), op.lane()), *op.lane());
        },
        accesses, options);
    return begun;
  }

  /// Whether the tensor lies in memory in which the member does not work.
  bool elsewhere(const Operand<T>& operand) const { return (operand.tensor.lane() == host_lane) == on_lane_; }
  /// The operand itself, or a copy in the member's memory, whose ops are pushed.
  Operand<T> staged(const Operand<T>& operand, const PushOptions& options) const {
    if (!elsewhere(operand)) return operand;
    return on_lane_ ? on_device(operand, options) : on_host(operand, options);
  }
  Operand<T> on_device(const Operand<T>& operand, const PushOptions& options) const {
    const TensorOf<T> copy(device_, operand.tensor.rows(), operand.tensor.width(), options.name);
    if (operand.use != Use::write) fill(copy, operand.tensor, options);
    return {copy, operand.use};
  }
  Operand<T> on_host(const Operand<T>& operand, PushOptions options) const {
    const auto view = operand.tensor.view();
    const Index rows = operand.tensor.rows(), width = operand.tensor.width();
    const auto bytes = static_cast<std::size_t>(rows * width) * sizeof(T);
    const auto buffer = std::make_shared<Buffer>(device_.engine, device_.memory->staging(), bytes, options.name);
    const TensorOf<T> copy(buffer, rows, width);
    if (operand.use != Use::write) {
      options.lane = device_.copy_out.value_or(operand.tensor.lane());
      // Copies of a lane wait for each other. If one came first because of its priority, it would delay those whose
      // operands are computed sooner.
      options.priority = 0;
      device_.engine->push(
          [to = buffer->bytes(), view](OpContext& op) {
            view.download(op.lane(), reinterpret_cast<T*>(to.write_unwatched(op.lane())));
          },
          {read(operand.tensor.var()), overwrite(copy.var())}, options);
    }
    return {copy, operand.use};
  }
  void bring_back(const Operand<T>& operand, const Operand<T>& from, PushOptions options) const {
    if (operand.use == Use::read || operand.tensor.same_view(from.tensor)) return;
    if (on_lane_) return fill(operand.tensor, on_host({from.tensor, Use::read}, options).tensor, options);
    // The copy runs beside what the device computes. But memory that is written first is allocated by its own lane.
    const bool beside = operand.use == Use::update && device_.collectives;
    options.lane = beside ? *device_.collectives : operand.tensor.lane();
    device_.engine->push([to = operand.tensor.view(), from = from.tensor.view()](
                             OpContext& op) { to.upload(op.lane(), from.read(op.lane()).data); },
                         {read(from.tensor.var()), operand.tensor.write_access()}, options);
  }
  /// Pushes the copy of a tensor in the host's memory.
  static void fill(const TensorOf<T>& to, const TensorOf<T>& from, const PushOptions& options) {
    const auto copy = [view = from.view()](const Matrix<T>& m) {
      const Matrix<const T> source = view.read();
      for (Index row = 0; row < m.rows; ++row) std::copy_n(source.row(row), m.width, m.row(row));
    };
    to.fill(copy, {read(from.var())}, options);
  }

  const Device& device_;
  const std::shared_ptr<Member>& member_;  // not copied: the ops' threads use the same count
  const bool on_lane_;
  CollectiveOptions options_;
  std::unique_ptr<Part> part_ = std::make_unique<Part>();
  Call& call_ = part_->call;
  Operands operands_;
};

}  // namespace windrow::comm
