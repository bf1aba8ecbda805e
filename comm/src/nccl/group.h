// A group of NCCL as a process sees it: the table of its calls, and its threads.
//
// serve() is the thread that calls NCCL. watch() looks at time limits, and ends the calls of a group that is broken: it
// never calls NCCL itself, so it cannot be stuck. A call that moves nothing, of another group of the same members,
// tells whether all of them make the same call.
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
    std::vector<NcclClique::RankAndDevice> places = {};
    int size = 0;  ///< members in all processes
    NcclId id = {};
    NcclOptions options = {};
    std::map<int, std::shared_ptr<Member>> announcements = {};  ///< of the other group, by rank
  };
  NcclGroupState(const NcclCalls& calls, Setup setup);

  /// Starts the threads, and waits until the members are connected. Throws CommError if they cannot be. `on_break` is
  /// called once, when the group is broken.
  void start(std::function<void(const Breakage&)> on_break);
  /// Ends the threads, except for one that is stuck.
  void stop();

  /// See Member. `stream`: of the op's lane.
  void begin(int rank, Call call, Operands operands, void* stream);
  void take(int rank, ExchangePtr part);
  void break_up(const Breakage& why);
  Breakage breakage() const;

 private:
  using Clock = std::chrono::steady_clock;
  /// A member of this process in a call.
  struct Slot {
    std::optional<NcclPart> begun = {};
    std::optional<Breakage> answer = {};  // to its announcement: why the call fails, or that it does not
    ExchangePtr part = {};
  };
  struct Round {
    std::map<int, Slot> slots = {};    // by rank
    std::vector<NcclPart> parts = {};  // of serve(), once all members agree
    Clock::time_point since = {};      // when they did
    bool done = false;
  };
  using Rounds = std::map<CallName, Round>;
  /// A part to end without the mutex.
  struct Ended {
    ExchangePtr part;
    Breakage why;
  };
  using AllEnded = std::vector<Ended>;
  static void end(AllEnded& ended);

  struct Announcement;
  void announce(int rank, Call call, std::string failure, std::exception_ptr origin);
  void announced(const Announcement& call, const Breakage& why);
  void decide(Rounds::iterator round, AllEnded& ended);
  void collect(Rounds::iterator round, AllEnded& ended);

  void serve();
  bool connected();
  bool serve_calls();
  bool settle();
  void watch();
  std::optional<Clock::time_point> oldest(std::string* what) const;
  void end_broken(std::unique_lock<std::mutex>& lock);

  const NcclOptions options_;
  const NcclId id_;
  NcclClique clique_;
  const std::map<int, std::shared_ptr<Member>> announcements_;
  const bool all_here_;
  std::function<void(const Breakage&)> on_break_;
  const Clock::time_point started_ = Clock::now();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by the mutex:
  Rounds rounds_;
  std::deque<Rounds::iterator> ready_;  // for serve()
  Breakage broken_;
  bool connected_ = false, failed_all_ = false, aborted_ = false, ending_ = false;
  std::uint64_t next_issued_ = 0;            // number of the next collective, if there are other processes
  bool serving_ = false, watching_ = false;  // the threads are not at their end
  std::thread serve_, watch_;                // of start() and stop()
};

}  // namespace windrow::comm
