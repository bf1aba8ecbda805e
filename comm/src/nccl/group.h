// A group of NCCL as a process sees it: the table of its calls, and its threads.
//
// serve() is the thread that calls NCCL. watch() looks at time limits, and ends the calls of a group that is broken: it
// never calls NCCL itself, so it cannot be stuck. Where there are other processes, a call that moves nothing of another
// group tells whether all of them make the same call.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "ending.h"
#include "nccl/clique.h"
#include "windrow/comm/nccl.h"

namespace windrow::comm {

/// Shared by its threads, which may be stuck in a call of NCCL and then outlive the group. Threads: any.
class NcclGroupState : public std::enable_shared_from_this<NcclGroupState> {
 public:
  struct Setup {
    std::vector<NcclClique::Place> places = {};
    int size = 0;  ///< members in all processes
    NcclId id = {};
    NcclOptions options = {};
    std::shared_ptr<Member> announcements = {};  ///< of all processes; null if all members are here
  };
  NcclGroupState(const NcclCalls& calls, Setup setup);

  /// Starts the threads, and waits until the members are connected. Throws CommError if they cannot be. `on_break` is
  /// called once, when the group is broken.
  void start(std::function<void(const Breakage&)> on_break);
  /// Ends the threads; leaves one alone that is stuck.
  void stop();

  /// See Member. `stream`: of the op's lane.
  void begin(int rank, Call call, Operands operands, void* stream);
  void take(int rank, ExchangePtr part);
  void leave(int rank, const Member::Numbered& numbered);
  void break_up(const Breakage& why);
  Breakage breakage() const;

 private:
  using Clock = std::chrono::steady_clock;
  /// A collective (pair: -1, -1), or the k-th message of a pair of ranks.
  struct Name {
    int from, to;
    std::uint64_t number;
    friend auto operator<=>(const Name&, const Name&) = default;
  };
  /// A member of this process in a call.
  struct Slot {
    std::optional<NcclPart> begun = {};
    std::string failure = {};
    std::exception_ptr origin = {};  // of the failure
    ExchangePtr part = {};
    bool ended = false;
  };
  struct Round {
    std::vector<int> ranks = {};
    std::vector<Slot> slots = {};  // of these ranks
    Clock::time_point since = Clock::now();
    enum class Step : std::uint8_t { gathering, announcing, moving, done } step = Step::gathering;
    Breakage why = {};                 // done: why it has failed, or that it has not
    std::vector<NcclPart> parts = {};  // moving: of serve()
  };
  using Rounds = std::map<Name, Round>;
  /// What is to be called without the mutex.
  struct Ended {
    ExchangePtr part;
    Breakage why;
  };
  struct AllEnded : std::vector<Ended> {
    std::vector<ExchangePtr> announced = {};  // for announcements_
  };
  void end(AllEnded& ended);
  struct Announcement;
  void announce_next(AllEnded& ended);
  void announced(std::uint64_t number, const Breakage& why);

  static Name name_of(const Call& call, int rank);
  bool gone(const Name& name, int rank) const;
  Rounds::iterator round_of(const Call& call, int rank);
  struct Failed {
    std::string failure = {};  // as that of Operands
    std::exception_ptr origin = {};
  };
  void put(Rounds::iterator round, int rank, NcclPart part, Failed failed, AllEnded& ended);
  void decide(Rounds::iterator round, Breakage why, AllEnded& ended);
  void collect(Rounds::iterator round, AllEnded& ended);
  void fail_hopeless(AllEnded& ended);
  std::vector<Said> said(const Round& round) const;

  void serve();
  bool connected();
  bool serve_calls();
  bool settle();
  void watch();
  std::optional<Clock::time_point> oldest(std::string* what) const;
  void end_broken(std::unique_lock<std::mutex>& lock);

  const NcclOptions options_;
  const int size_;
  const NcclId id_;
  NcclClique clique_;
  const std::shared_ptr<Member> announcements_;
  const bool all_here_;
  std::function<void(const Breakage&)> on_break_;
  const Clock::time_point started_ = Clock::now();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by the mutex:
  Rounds rounds_;
  std::deque<Rounds::iterator> ready_;    // for serve()
  std::map<int, Member::Numbered> left_;  // calls of the members of this process that have left, by rank
  Breakage broken_;
  bool connected_ = false, failed_all_ = false, aborted_ = false, ending_ = false;
  bool announcing_ = false;                  // a call is announced
  std::uint64_t next_announced_ = 0;         // number of the next one
  bool serving_ = false, watching_ = false;  // the threads are not at their end
  std::thread serve_, watch_;                // of start() and stop()
};

}  // namespace windrow::comm
