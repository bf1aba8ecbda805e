// A group of MPI processes, as the thread that calls MPI sees it.
#pragma once

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ending.h"
#include "mpi/watch.h"
#include "packing.h"
#include "part_queue.h"
#include "windrow/comm/internal/member.h"
#include "windrow/comm/mpi.h"

namespace windrow::comm {

/// One line of text and some numbers, in messages of fixed size.
struct MpiNote {
  enum class What : std::int64_t { call, ask, tell, broken, left, goodbye };
  What what{};
  std::int64_t rank = 0;
  std::array<std::int64_t, 4> numbers{};
  std::array<char, 464> text{};

  /// The text, shortened if it is too long.
  void say(const std::string& line) {
    const bool fits = line.size() < text.size();
    std::size_t end = text.size() - 4;
    while (!fits && (line[end] & 0xc0) == 0x80) --end;  // inside a character of UTF-8
    const std::string shown = fits ? line : line.substr(0, end) + "...";
    std::memcpy(text.data(), shown.c_str(), shown.size() + 1);
  }
  std::string said() const { return text.data(); }
};
static_assert(sizeof(MpiNote) == 512);  // libraries send so few bytes without waiting for the receiver

/// The calls of one member, from their operands to their end. All members are called by the thread that calls MPI.
///
/// An exchange of numbers is a call as a collective is, in an order of its own.
///
/// Each collective begins with a small one, the *announcement*, which tells all members whether they make the same call
/// and whether all operands are valid. The data follow only if both hold. Announcements and data have separate
/// communicators, so each of them has the same order everywhere, although the announcements run ahead. The data of
/// small calls, the *eager* ones, travel with their announcement.
///
/// Calls with a priority or with parts are *scheduled*: rank 0 decides the order of their parts when they are announced
/// (PartQueue), and broadcasts a *decision* for each part. All members begin the parts in the order of the decisions.
/// Scheduled calls have communicators of their own, so that other calls keep their order.
class MpiGroupState {
 public:
  /// All processes make a group at the same time. Throws CommError if MPI fails.
  MpiGroupState(const MpiCalls& calls, MpiGroup* world, const MpiOptions& options);

  int rank() const { return rank_; }
  int size() const { return size_; }

  void take(ExchangePtr part);
  void leave(const Member::Numbered& numbered);
  /// Fails everything, now and later. Does not call MPI.
  void stop_with(const Breakage& why);
  /// The same, and informs the other members. `reporter`: the rank of the member that reports to the user.
  static constexpr int each_member = -1;
  void break_up(const Breakage& why, int reporter);
  bool broken() const { return static_cast<bool>(broken_); }
  /// Whether MPI has requests that never complete, because a member has ended without its part of them.
  bool unmatched() const { return !unmatched_.empty(); }
  void on_break(Member::Heard heard);
  /// Whether MPI's resources of the group are freed: all members have left, and all calls have ended.
  bool released() const { return released_; }

  /// Does what can be done. Returns whether something has changed.
  bool progress();
  /// Whether calls have begun that have not finished: the thread must call progress() often.
  bool busy() const;
  /// Cancels the receive that waits for notes. No member function may be called afterwards.
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  /// A collective that has begun.
  struct Begun {
    ExchangePtr part;
    Clock::time_point since;
    // Hash, whether an operand failed, and data of eager calls: of this member, then of all members; see part_words().
    std::unique_ptr<std::int64_t[]> gathered = {};
    MpiRequest* request = nullptr;
    enum class Round : std::uint8_t { announcement, reasons, data } step = Round::announcement;
    std::vector<MpiNote> reasons = {};         // why the call fails, by rank
    std::vector<std::byte> in = {}, out = {};  // pieces that are not dense, or are several
    // Of a scheduled call:
    std::size_t begun = 0, moving = 0;  // its bytes that have begun to move; its parts under way
  };
  /// A part of a scheduled call that moves.
  struct MovingPart {
    std::uint64_t call;
    ByteRange range;
    std::vector<std::byte> packed = {};  // unless it lies within one dense tensor
    MpiRequest* request = nullptr;
  };
  /// The number of a call that moves its next part, as broadcast by rank 0.
  struct Decision {
    std::int64_t call = 0;
    MpiRequest* request = nullptr;
  };
  /// One end of a message between two members.
  struct Message {
    ExchangePtr part;
    Clock::time_point since;
    MpiNote own, other;
    MpiRequest *sending = nullptr, *receiving = nullptr;
    bool noted = false;  // own and other were exchanged
    std::vector<std::byte> data = {};
  };
  /// Messages to or from one member, in order.
  struct Pair {
    std::uint64_t next = 0;
    std::map<std::uint64_t, ExchangePtr> waiting = {};
    std::deque<std::unique_ptr<Message>> begun = {};
  };
  /// How many calls of each kind a member made: collectives, sends to the member that gets these counts, receives from
  /// it, and exchanges of numbers.
  struct Called {
    enum : std::size_t { collectives, sends, recvs, exchanges };
  };
  using Counts = std::array<std::int64_t, 4>;
  /// Calls that all members make in one order, with communicators of their own: collectives, or exchanges of numbers.
  struct Series {
    std::size_t kind;  // of Called
    MpiGroup *announcements = nullptr, *reasons = nullptr, *data = nullptr;
    std::size_t eager_bytes = 0;  // of a member's part of an announcement
    std::uint64_t next = 0;       // number of the next call to begin
    std::map<std::uint64_t, ExchangePtr> waiting = {};
    std::deque<std::unique_ptr<Begun>> announced = {};  // up to their announcement, or reasons
    std::deque<std::unique_ptr<Begun>> moving = {};     // their data

    /// Whether the data travel with the announcement.
    bool is_eager(const Call& call) const;
    /// The numbers of a member's part of an announcement.
    std::size_t part_words() const;
  };

  void require(int error);
  void begin(MpiGroup* group, const MpiTransfer& what, MpiRequest** request) {
    require(calls_.begin(group, &what, request));
  }
  bool arrived(MpiRequest** request);

  static std::size_t eager_bytes(const MpiOptions& options, int members);
  void announce(Series& series, Begun& call, std::int64_t hash);
  /// Whether all members make the same call, and all operands are valid, as the announcement says.
  bool agreed(const Series& series, const Begun& call) const;
  void end_eager(const Series& series, Begun& call) const;

  std::array<MpiGroup**, 10> communicators();
  bool begin_calls(Series& series);
  bool end_calls(Series& series);
  void begin_data(MpiGroup* group, Begun& call);
  /// Whether an all_reduce, reduce or broadcast writes this member's tensors.
  bool writes(const Call& call) const;
  /// The pieces that such a call reads, and those that it may write: the same unless it is out of place.
  static PieceSpan sources_of(const Exchange& part);
  static PieceSpan targets_of(const Exchange& part);
  /// Where elements of such a call are read and written.
  struct Ends {
    const std::byte* from;  // null: in place
    std::byte* to;
  };
  /// The ends of a range: in its tensors, or in `packed`. Call take_back() afterwards.
  Ends place(const Begun& call, ByteRange range, std::vector<std::byte>& packed);
  void take_back(const Begun& call, ByteRange range, std::vector<std::byte>& packed);
  struct Span {
    MpiGroup* group;
    Ends data;
    std::size_t count;  // of elements
  };
  void begin_combining(const Call& what, const Span& span, MpiRequest** request);
  void end_data(Begun& call);
  Breakage reason(const Begun& call);
  /// Writes a note of why an operand has failed, and makes the error for such a note. All calls that fail for one
  /// reason have one cause, also at other members.
  static void say_failed(MpiNote& note, const Exchange& part);
  Breakage failed(const MpiNote& note, const Exchange& own);

  void schedule(std::unique_ptr<Begun> call);
  bool decide();
  bool begin_parts();
  bool end_parts();

  bool move_messages(CallKind kind, int peer, Pair& pair);
  bool move(CallKind kind, int peer, Message& message);

  Counts begun_with(int other) const;

  void listen();
  bool end_sent();
  bool move_notes();
  int lacks(std::size_t kind, std::int64_t number, int peer = -1) const;
  bool fail_lacking();
  bool all_ended() const;
  bool part();
  const Breakage& without(int rank);
  void send_note(int to, const MpiNote& note);
  void watch();
  /// A call that waits for other members, and since when: its kind and number, and the peer that it waits for (-1:
  /// any).
  struct Awaited {
    Clock::time_point since;
    std::size_t kind;  // of Called
    std::int64_t number;
    int peer;
    const Call* call;
  };
  std::optional<Awaited> oldest() const;

  const MpiCalls& calls_;
  const MpiOptions options_;
  int rank_ = 0, size_ = 0;
  MpiGroup *pairs_ = nullptr, *notes_ = nullptr, *decisions_ = nullptr, *parts_ = nullptr;
  Breakage broken_;
  Member::Heard heard_;                                           // of on_break()
  std::pair<std::int64_t, std::exception_ptr> last_failed_ = {};  // the last origin of another member, and its number

  Series collectives_{.kind = Called::collectives}, exchanges_{.kind = Called::exchanges};
  std::vector<std::vector<std::byte>> packing_;                // memory for place()
  std::map<std::uint64_t, std::unique_ptr<Begun>> scheduled_;  // by number: up to the end of their data
  PartQueue queue_;                                            // of rank 0
  std::size_t undecided_ = 0;                                  // of other ranks: decisions that will come
  std::deque<std::unique_ptr<Decision>> telling_;              // broadcasts of decisions that are under way
  std::deque<std::uint64_t> decided_;                          // calls whose next part begins, in this order
  std::deque<MovingPart> parts_moving_;
  std::map<std::pair<CallKind, int>, Pair> messages_;

  MpiNote incoming_;
  MpiRequest* listening_ = nullptr;
  struct Sent {
    MpiNote note;
    MpiRequest* request = nullptr;
  };
  std::deque<std::unique_ptr<Sent>> sent_;
  std::optional<Clock::time_point> asked_;                  // when members were asked for their calls
  std::tuple<std::size_t, std::int64_t, int> asked_for_{};  // Awaited::kind, number and peer
  Clock::time_point told_since_{};                          // since when that is the oldest
  std::chrono::nanoseconds tell_next_{0};                   // how long after this the next line is logged
  Clock::time_point data_ended_{};                          // when data of a collective ended last
  std::vector<std::optional<Counts>> answers_;              // by rank: the calls it has begun, if it has answered
  std::vector<std::optional<Counts>> left_;                 // by rank: the calls of a member that has ended
  std::map<int, Breakage> without_;                         // by rank: why calls fail that lack the member's part
  std::optional<Member::Numbered> own_left_;                // what this member called, once it has left
  // A member says goodbye when it has left, knows that all others have left, and its calls have ended; it sends nothing
  // after that. When it has received the goodbyes of all others, no message is left, and it frees the group.
  bool said_goodbye_ = false, released_ = false;
  int goodbyes_ = 0;
  std::vector<std::shared_ptr<void>> unmatched_;  // of calls that lack a member: buffers that MPI still uses
};

}  // namespace windrow::comm
