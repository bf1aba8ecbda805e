// The interface that a back end of collectives implements. Programs use communicator.h.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "windrow/comm/communicator.h"
#include "windrow/comm/internal/short_list.h"
#include "windrow/engine/internal/function.h"
#include "windrow/engine/on_complete.h"

namespace windrow::comm {

enum class CallKind : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  send,
  recv,
  exchange  ///< of numbers; see Communicator::exchange()
};
std::string_view to_string(CallKind kind);
inline bool is_message(CallKind kind) { return kind == CallKind::send || kind == CallKind::recv; }

enum class Elements : std::uint8_t { float32, int32 };

/// The kind and the arguments of a call. A value.
struct Call {
  /// Rows and width of a tensor; of one block, where the call has blocks.
  struct Shape {
    Index rows, width;
    friend bool operator==(const Shape&, const Shape&) = default;
  };
  CallKind kind = CallKind::all_reduce;
  Combine combine = Combine::sum;
  Elements elements = Elements::float32;
  bool out_of_place = false;  ///< an all_reduce from one tensor to another
  int peer = 0;               ///< the root; or the other member of a send or recv
  ShortList<Shape> shapes = {};
  int priority = 0;  ///< as in CollectiveOptions; 0 for kinds in which it only orders ops
  std::size_t part_bytes = 0;
  std::uint64_t number = 0;  ///< see Member::number()
  OpName name = {};

  /// Whether another member's call is the same one or, for a send or recv, its other end.
  bool fits(const Call& other) const;
  /// Whether the call may begin in another order than that of the calls (see CollectiveOptions).
  bool scheduled() const { return priority != 0 || part_bytes != 0; }
  /// Whether there are two pieces: one that is read, and one that is written.
  bool has_two_ends() const {
    return kind == CallKind::all_gather || kind == CallKind::reduce_scatter || kind == CallKind::all_to_all ||
           kind == CallKind::exchange || out_of_place;
  }
  /// The bytes of all tensors.
  std::size_t bytes() const;
  /// For errors: "all_reduce 'gradients' (sum of float32 3 x 4), call 17".
  std::string describe() const;
  /// The call that a missing member should have made to match this call of `rank`, such as a recv for a send.
  std::string describe_for_others(int rank) const;
};

/// A tensor in the host's memory, or in that of a device: elements of 4 bytes, rows at a distance of `stride` bytes. If
/// a call only reads the tensor, nobody writes through this pointer.
struct Piece {
  std::byte* data;
  Index rows, width, stride;

  bool dense() const { return stride == 4 * width || rows <= 1; }
  std::size_t bytes() const { return static_cast<std::size_t>(4 * rows * width); }  ///< of its elements
};
using Pieces = ShortList<Piece>;

/// The operands of a member's part of a call.
struct Operands {
  /// One for each tensor; or `from` and `to`, where the call has both. If all members give none, the call moves no
  /// data: it succeeds when all of them have made the same call and no operand has failed.
  Pieces pieces = {};
  std::string failure = {};        ///< not empty: an operand failed, there are no pieces, and all members must fail
  std::exception_ptr origin = {};  ///< of that failure
};

struct Breakage;

/// A member's part of a call whose operands are there. It goes from thread to thread by pointer.
struct Exchange : Operands {
  Call call = {};
  std::optional<OnComplete> token = {};  ///< of the call's op
  std::shared_ptr<void> timed = {};      ///< of a CallClock

  Exchange() = default;
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  static void* operator new(std::size_t bytes) { return CallableMemory::take(bytes); }
  static void operator delete(void* memory, std::size_t bytes) { CallableMemory::give_back(memory, bytes); }

  /// Called before done(error) if transfers in flight cannot be cancelled. Their targets are abandoned, and their
  /// sources are never freed.
  virtual void leave_pieces() noexcept {}
  /// Completes the op; the pieces are valid until then.
  virtual void done(std::exception_ptr error = nullptr) { (*token)(std::move(error)); }
  /// The same with an error that names the call.
  virtual void fail(const Breakage& why);
};
using ExchangePtr = std::unique_ptr<Exchange>;

/// Measures how long calls of a member are under way. Threads: any.
class CallClock : public std::enable_shared_from_this<CallClock> {
 public:
  /// A call is under way as long as the result exists.
  std::shared_ptr<void> begin();
  /// Calls that overlap count once.
  std::chrono::nanoseconds total() const;

 private:
  using Clock = std::chrono::steady_clock;
  mutable std::mutex mutex_;
  int under_way_ = 0;  // guarded by the mutex, as are the following
  Clock::time_point since_ = {};
  std::chrono::nanoseconds total_{0};
};

/// Which member reports to the user why a group is broken: this one, another one (PeerError), or another one that has
/// called abort() (AbortError).
enum class ReportedBy : std::uint8_t { this_member, another, aborter };

/// Why a group is broken, or why a call fails. A value.
struct Breakage {
  std::string why = {};  ///< empty: the group is not broken
  ReportedBy reported_by = ReportedBy::this_member;
  /// Nested in all errors, so that the engine knows that they have one cause.
  std::exception_ptr cause = why.empty() ? nullptr : std::make_exception_ptr(CommError(why));

  explicit operator bool() const { return cause != nullptr; }
  /// An error whose text begins with `what`.
  std::exception_ptr error(const std::string& what) const;
  /// The same for exchange(), which `why` may name already.
  std::exception_ptr error_of_exchange() const;
};

/// The groups to which a member of a NestedGroup (mpi.h) passes its calls, and these calls.
struct Nested {
  Communicator inner;  ///< of the members of this process
  int processes;
  Index most_between;                      ///< most_elements() between processes
  std::optional<Communicator> outer = {};  ///< of the first members of all processes; only set at these

  void all_reduce(std::span<const Tensor> tensors, Combine combine, const CollectiveOptions& options) const;
  void all_reduce(const IntTensor& tensor, Combine combine, const CollectiveOptions& options) const;
  /// Out of place.
  template <class T>
  void all_reduce(const TensorOf<T>& from, const TensorOf<T>& to, Combine combine,
                  const CollectiveOptions& options) const;
  void broadcast(std::span<const Tensor> tensors, int root, const CollectiveOptions& options) const;
  void broadcast(const IntTensor& tensor, int root, const CollectiveOptions& options) const;
};

/// Throws MisuseError if a call moves more than `most` elements at a time, unless it moves them in parts.
void require_countable(CallKind kind, Index elements, std::size_t part_bytes, Index most);

/// One member of a group. Threads: any, except for number().
///
/// A member on the host gets its part of a call by take(). A member on a lane works in its device's memory and gets its
/// part in two steps: begin() as soon as the work that writes the operands is issued, and take(), without pieces, when
/// that work is done.
class Member {
 public:
  virtual ~Member() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// An address that identifies the group: equal for all of its members in this process. A back end with several
  /// members in a process overrides it.
  virtual const void* group() const { return this; }
  /// Null, unless the member passes its calls on to other groups; then take() is not called.
  virtual const Nested* nested() const { return nullptr; }
  /// Takes over a part of a call, inside an op; parts may come in any order of numbers. Must not block, and calls
  /// its `done` in any case.
  virtual void take(ExchangePtr part) = 0;
  /// The most elements of each tensor, or block, that a call of this kind moves at a time.
  virtual Index most_elements(CallKind kind [[maybe_unused]]) const { return std::numeric_limits<Index>::max(); }
  /// For a back end whose maximum of floats loses a NaN: the member of another group, with the same ranks, that
  /// computes these maxima. Null: this one does.
  virtual const std::shared_ptr<Member>* of_maxima() const { return nullptr; }
  /// Whether begin() comes before take(), for calls of this kind.
  virtual bool on_lane(CallKind kind [[maybe_unused]]) const { return false; }
  /// Called inside an op of the device's ordered lane. Work that is issued after the lane's present work may use the
  /// pieces until the `done` of this call is called. Must not block or throw. If that op fails before it calls begin(),
  /// take() is called with a failure.
  virtual void begin(Call call [[maybe_unused]], Operands operands [[maybe_unused]], Lane& lane [[maybe_unused]]) {}
  /// See Communicator. By default it is a call of CallKind::exchange, from one row of numbers (two elements each) to
  /// one row for each member.
  virtual std::vector<std::int64_t> exchange(std::span<const std::int64_t> numbers);
  /// Breaks the group, unless it is broken. In other processes, its errors are PeerErrors: this member reports.
  virtual void break_up(const Breakage& why) = 0;
  using Heard = std::function<void(const Breakage& why)>;
  /// For a group that is built on this one: `heard` is called once, before calls fail because this group is broken. It
  /// must not call this group or block. Each member has at most one. A back end on which no group is built need not
  /// override this.
  virtual void on_break(Heard heard [[maybe_unused]]) {}
  /// This member makes no further calls; calls of other members that wait for one fail.
  virtual void leave() = 0;

  /// Numbers the next call: collectives are counted from 0, sends and receives from 0 for each peer.
  /// take() follows each number, unless the next call is not_made().
  virtual std::uint64_t number(CallKind kind, int peer);
  /// The last call of the kind was not pushed, so the next one gets its number.
  virtual void not_made(CallKind kind, int peer) noexcept;

  /// See Communicator::time_calls(). Null before it.
  const std::shared_ptr<CallClock>& clock() const { return clock_; }
  virtual void time_calls() {
    if (!clock_) clock_ = std::make_shared<CallClock>();
  }
  /// The same with a clock that members share.
  void time_calls_by(std::shared_ptr<CallClock> clock) { clock_ = std::move(clock); }

  /// How many calls of each kind and peer were numbered; the kind of all collectives is all_reduce.
  struct Numbered : std::map<std::pair<CallKind, int>, std::uint64_t> {
    std::uint64_t of(CallKind kind, int peer = 0) const {
      const auto place = find({kind, peer});
      return place == end() ? 0 : place->second;
    }
  };

 protected:
  const Numbered& numbered() const { return next_; }

 private:
  Numbered next_;
  std::shared_ptr<CallClock> clock_;
};

}  // namespace windrow::comm
