#include "windrow/comm/local.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "ending.h"
#include "windrow/comm/internal/member.h"

namespace windrow {
namespace {

using comm::Breakage;
using comm::Call;
using comm::CallKind;
using comm::ExchangePtr;
using comm::Member;
using comm::PartOfRank;
using Clock = std::chrono::steady_clock;

std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

/// The parts of one call that have come so far, in the order of the ranks that take part.
using Parts = comm::ShortList<PartOfRank, 8>;
struct Round {
  Parts parts = {};
  Clock::time_point since = {};

  bool has(int rank) const { return std::ranges::count(parts, rank, &PartOfRank::rank) > 0; }
};

/// The state that the members of a group share.
class LocalThreads {
 public:
  LocalThreads(int size, const LocalGroupOptions& options)
      : patience_(options.patience),
        tell_after_(options.tell_after),
        pause_(std::min({patience_ / 8, tell_after_ / 8, std::chrono::nanoseconds(std::chrono::milliseconds(100))})),
        left_(at(size)),
        ended_(at(size)),
        heard_(at(size)) {
    timer_ = std::thread([this] { watch(); });
  }
  ~LocalThreads() {
    {
      std::lock_guard lock(mutex_);
      ending_ = true;
    }
    timer_changed_.notify_all();
    // The timer may drop the last reference when it fails a call; it uses nothing of the group afterwards.
    if (timer_.get_id() == std::this_thread::get_id()) {
      timer_.detach();
    } else {
      timer_.join();
    }
  }
  LocalThreads(const LocalThreads&) = delete;
  LocalThreads& operator=(const LocalThreads&) = delete;

  int size() const { return static_cast<int>(left_.size()); }

  void take(int rank, ExchangePtr part) {
    std::unique_lock lock(mutex_);
    if (broken_) {
      const Breakage why = broken_;
      lock.unlock();
      return part->fail(why);
    }
    const Name name = comm::name_of(part->call, rank);
    const auto [place, first] = rounds_.try_emplace(name);
    if (first) {
      place->second.since = Clock::now();
      begun_ = true;
      if (timer_idle_) timer_changed_.notify_all();
    }
    Parts& parts = place->second.parts;
    parts.push_back({rank, std::move(part)});
    for (std::size_t i = parts.size() - 1; i > 0 && comes_before(name, parts[i].rank, parts[i - 1].rank); --i) {
      std::swap(parts[i], parts[i - 1]);
    }
    if (parts.size() < count_of(name)) {
      auto failed = without_hope();
      lock.unlock();
      return fail_all(failed);
    }
    const Parts all = std::move(parts);
    rounds_.erase(place);
    lock.unlock();
    comm::finish({all.data(), all.size()});
  }

  /// The member makes no calls beyond those numbered.
  void leave(int rank, const Member::Numbered& numbered) {
    std::unique_lock lock(mutex_);
    left_[at(rank)] = numbered;
    ended_[at(rank)] = {.why = "rank " + std::to_string(rank) + " has ended without this call"};
    auto failed = without_hope();
    lock.unlock();
    fail_all(failed);
  }

  void break_up(const Breakage& why) {
    std::unique_lock lock(mutex_);
    auto failed = break_locked(why);
    lock.unlock();
    fail_all(failed);
  }

  void on_break(int rank, Member::Heard heard) {
    std::unique_lock lock(mutex_);
    if (!broken_) {
      heard_[at(rank)] = std::move(heard);
      return;
    }
    const Breakage why = broken_;
    lock.unlock();
    heard(why);
  }

 private:
  using Name = comm::CallName;
  using Rounds = std::map<Name, Round>;
  /// How many members take part: the sender and the receiver, or all. They are numbered in this order.
  std::size_t count_of(const Name& name) const { return name.from >= 0 ? 2 : left_.size(); }
  static int rank_of(const Name& name, std::size_t number) {
    if (name.from < 0) return static_cast<int>(number);
    return number == 0 ? name.from : name.to;
  }
  static bool comes_before(const Name& name, int rank, int other) {
    return name.from < 0 ? rank < other : rank == name.from;
  }

  /// Whether the member will never make the call that the round lacks.
  bool gone(const Name& name, int rank) const {
    const auto of_all = name.to == -1 ? CallKind::all_reduce : CallKind::exchange;
    const auto kind = name.from < 0 ? of_all : rank == name.from ? CallKind::send : CallKind::recv;
    const int peer = name.from < 0 ? 0 : rank == name.from ? name.to : name.from;
    return left_[at(rank)] && left_[at(rank)]->of(kind, peer) <= name.number;
  }

  /// Parts and functions to call without the mutex.
  struct Failed {
    std::vector<std::pair<ExchangePtr, Breakage>> parts = {};
    std::vector<std::pair<Member::Heard, Breakage>> heard = {};
  };
  /// Earlier calls first: of several failures with one cause, only the first is reported.
  static void fail_all(Failed& failed) {
    std::ranges::stable_sort(failed.parts, {}, [](const auto& each) { return each.first->call.number; });
    for (const auto& [heard, why] : failed.heard) heard(why);
    for (const auto& [part, why] : failed.parts) part->fail(why);
  }
  static void take_parts(Round& round, const Breakage& why, Failed& failed) {
    for (auto& [rank, part] : round.parts) failed.parts.emplace_back(std::move(part), why);
  }

  /// Removes the rounds that lack the call of a member that has left, and returns them.
  Failed without_hope() {
    Failed failed;
    if (std::ranges::none_of(left_, [](const auto& left) { return left.has_value(); })) return failed;
    for (auto place = rounds_.begin(); place != rounds_.end();) {
      Round& round = place->second;
      int missing = -1;
      for (std::size_t i = 0; i < count_of(place->first) && missing < 0; ++i) {
        const int rank = rank_of(place->first, i);
        if (!round.has(rank) && gone(place->first, rank)) missing = rank;
      }
      if (missing < 0) {
        ++place;
        continue;
      }
      take_parts(round, ended_[at(missing)], failed);
      place = rounds_.erase(place);
    }
    return failed;
  }

  Failed break_locked(const Breakage& why) {
    Failed failed;
    if (!broken_) broken_ = why;
    for (Member::Heard& heard : heard_) {
      if (heard) failed.heard.emplace_back(std::exchange(heard, nullptr), broken_);
    }
    for (auto& [name, round] : rounds_) take_parts(round, broken_, failed);
    rounds_.clear();
    return failed;
  }

  comm::Waiting waiting_in(const Name& name, const Round& round) const {
    const Call& call = round.parts.front().exchange->call;
    comm::Waiting waiting{.ranks = {}, .time = Clock::now() - round.since, .what = call.describe(), .missing = {}};
    for (std::size_t i = 0; i < count_of(name); ++i) {
      const int rank = rank_of(name, i);
      (round.has(rank) ? waiting.ranks : waiting.missing).push_back(rank);
    }
    return waiting;
  }

  /// The timer. When a round has waited too long, it breaks the group and ends, because a broken group has no rounds.
  /// As long as rounds begin and end, it looks from time to time, so that no round has to wake it. Before it breaks the
  /// group, it logs who waits in the oldest round. That time begins when it first sees the round as the oldest: members
  /// that are far behind are not missing.
  void watch() {
    std::unique_lock lock(mutex_);
    while (!ending_) {
      const auto oldest = std::ranges::min_element(rounds_, {}, [](const auto& each) { return each.second.since; });
      if (oldest == rounds_.end() && std::exchange(begun_, false)) {
        timer_changed_.wait_for(lock, pause_);
        continue;
      }
      if (oldest == rounds_.end()) {
        timer_idle_ = true;
        timer_changed_.wait(lock);
        timer_idle_ = false;
        continue;
      }
      const auto& [name, round] = *oldest;
      // Rounds that begin meanwhile end later, so they need not wake this thread.
      if (const auto left = comm::time_left(patience_, round.since); left > left.zero()) {
        if (told_ != name) {
          told_ = name;
          told_since_ = Clock::now();
          tell_next_ = tell_after_;
        }
        const auto quiet = comm::time_left(tell_next_, told_since_);
        if (quiet > quiet.zero()) {
          timer_changed_.wait_for(lock, std::min(left, quiet));
        } else {
          tell_next_ *= 2;
          const comm::Waiting waiting = waiting_in(name, round);
          lock.unlock();
          comm::log_waiting(waiting);
          lock.lock();
        }
        continue;
      }
      const PartOfRank& known = round.parts.front();
      const std::string called = known.exchange->call.describe_for_others(known.rank);
      std::string missing;
      for (const int rank : waiting_in(name, round).missing) {
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
      }
      const bool tensors = known.exchange->call.kind != CallKind::exchange;
      auto failed = break_locked({.why = "rank " + missing + " has not called " + called +
                                         (tensors ? ", or its tensors are not ready," : "") + " within " +
                                         comm::seconds(patience_) + " after the first member; the group is broken"});
      lock.unlock();
      return fail_all(failed);  // and releases the ops, which may hold the last reference to the group
    }
  }

  const std::chrono::nanoseconds patience_, tell_after_, pause_;
  std::mutex mutex_;
  std::condition_variable timer_changed_;
  // Guarded by the mutex:
  Rounds rounds_;
  std::vector<std::optional<Member::Numbered>> left_;  // by rank: the calls of a member that has left
  std::vector<Breakage> ended_;                        // by rank: why calls fail that lack its part
  std::vector<Member::Heard> heard_;                   // by rank: see on_break()
  Breakage broken_;
  bool ending_ = false, timer_idle_ = false;  // idle: it waits for a round to look at
  bool begun_ = false;                        // a round, since the timer looked
  // Of the timer: the round that it logs, since when that is the oldest, and after what time it logs it next.
  std::optional<Name> told_;
  Clock::time_point told_since_ = {};
  std::chrono::nanoseconds tell_next_{0};
  std::thread timer_;  // the last member: it uses the others
};

class LocalMember final : public Member {
 public:
  LocalMember(std::shared_ptr<LocalThreads> group, int rank) : group_(std::move(group)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  const void* group() const override { return group_.get(); }
  void take(ExchangePtr part) override { group_->take(rank_, std::move(part)); }
  void break_up(const Breakage& why) override { group_->break_up(why); }
  void on_break(Heard heard) override { group_->on_break(rank_, std::move(heard)); }
  void leave() override { group_->leave(rank_, numbered()); }

 private:
  const std::shared_ptr<LocalThreads> group_;
  const int rank_;
};

}  // namespace

LocalGroup::LocalGroup(const std::vector<Device>& devices, LocalGroupOptions options) {
  if (devices.empty()) throw MisuseError("LocalGroup: no devices; expected at least one");
  comm::require_positive("LocalGroup", "patience", options.patience);
  comm::require_positive("LocalGroup", "tell_after", options.tell_after);
  const auto group = std::make_shared<LocalThreads>(static_cast<int>(devices.size()), options);
  for (const Device& device : devices) {
    members_.emplace_back(device, std::make_shared<LocalMember>(group, static_cast<int>(members_.size())));
  }
}

const Communicator& LocalGroup::operator[](int rank) const {
  if (rank < 0 || rank >= size()) {
    throw MisuseError("LocalGroup: rank " + std::to_string(rank) + "; expected one from 0 to " +
                      std::to_string(size() - 1));
  }
  return members_[at(rank)];
}

std::vector<Device> host_devices(Engine& engine, int count) {
  if (count < 1) throw MisuseError("host_devices: " + std::to_string(count) + " devices; expected at least 1");
  std::vector<Device> devices;
  const int threads = std::max(1, engine.workers() / count);
  for (int number = 0; number < count; ++number) {
    Device device = host_device(engine);
    device.name = "cpu:" + std::to_string(number);
    device.lane = engine.add_lane(HostLane{.name = device.name, .device = number, .threads = threads});
    devices.push_back(std::move(device));
  }
  return devices;
}

}  // namespace windrow
