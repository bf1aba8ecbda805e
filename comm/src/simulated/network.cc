#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "ending.h"
#include "part_queue.h"
#include "windrow/comm/simulated.h"

namespace windrow {
namespace {

using comm::ExchangePtr;
using Parts = std::vector<comm::PartOfRank>;
using Time = NetworkModel::Time;
using Phase = VirtualClock::Phase;

/// Returns addresses without memory behind them.
class NoMemory final : public Allocator {
 public:
  std::string_view name() const override { return "no memory"; }
  std::byte* allocate(std::size_t) override { return &place_; }
  void deallocate(std::byte*, std::size_t) noexcept override {}
  void clear(Lane*, std::byte*, std::size_t) override {}

 private:
  alignas(memory_alignment) std::byte place_{};
};

}  // namespace

int NetworkModel::messages(int members) const {
  return 2 * (algorithm == Algorithm::ring ? members - 1 : std::bit_width(static_cast<unsigned>(members - 1)));
}

Time NetworkModel::transfer(int members, std::size_t bytes) const {
  const double n = members, share = algorithm == Algorithm::ring ? (n - 1) / n : members > 1 ? 1 : 0;
  return Time(std::llround(2 * share * static_cast<double>(bytes) / bandwidth * 1e9));
}

Time NetworkModel::gaps(int members) const { return messages(members) * gap; }
Time NetworkModel::delay(int members) const { return messages(members) * latency; }

class SimulatedGroup::Network : public std::enable_shared_from_this<SimulatedGroup::Network> {
 public:
  Network(VirtualClock& clock, int size, const NetworkModel& model)
      : clock_(clock), size_(size), model_(model), queue_(model.window_bytes) {}

  int size() const { return size_; }
  const NetworkUse& use() const { return use_; }

  void take(int rank, ExchangePtr part) {
    if (broken_) return part->fail(broken_);
    if (over_) return part->done();
    const std::uint64_t number = part->call.number;
    Parts& parts = calls_[number];
    parts.push_back({rank, std::move(part)});
    if (parts.size() < static_cast<std::size_t>(size_)) return;
    // As in MpiWorld, calls are announced in their order.
    for (auto next = calls_.find(next_); complete(next); next = calls_.find(next_)) announce(next);
  }

  void break_up(const comm::Breakage& why) {
    if (!broken_) broken_ = why;
    for (auto& [number, parts] : calls_) {
      for (const auto& [rank, part] : parts) part->fail(broken_);
    }
    calls_.clear();
  }
  /// The clock ends: calls end at once, also those that members have not made.
  void end() {
    over_ = true;
    for (auto& [number, parts] : calls_) {
      for (const auto& [rank, part] : parts) part->done();
    }
    calls_.clear();
  }

 private:
  using Calls = std::map<std::uint64_t, Parts>;
  bool complete(Calls::iterator call) const {
    return call != calls_.end() && call->second.size() == static_cast<std::size_t>(size_);
  }

  void announce(Calls::iterator next) {
    ++next_;
    const Parts& parts = next->second;
    const comm::Call& call = parts.front().exchange->call;
    comm::Breakage why = comm::reason_to_fail(parts);
    if (!why && call.kind != comm::CallKind::all_reduce) why = {.why = "only all_reduce is simulated"};
    if (why) {
      for (const auto& [rank, part] : parts) part->fail(why);
      calls_.erase(next);
      return;
    }
    const std::size_t bytes = call.bytes();
    ++use_.calls;
    if (!call.scheduled()) return move({call.number, bytes, true}, Queued::no);
    queue_.add({call.number, call.priority, bytes, call.part_bytes});
    choose_later();
  }

  void choose_later() {
    clock_.at(clock_.now(), Phase::choose, [self = shared_from_this()] {
      if (self->over_) return;
      while (const auto part = self->queue_.next()) self->move(*part, Queued::yes);
    });
  }

  enum class Queued : std::uint8_t { no, yes };
  void move(const comm::PartQueue::Part& part, Queued queued) {
    if (under_way_++ == 0) busy_since_ = clock_.now();
    const Time takes = model_.transfer(size_, part.bytes);
    free_ = std::max(free_, clock_.now()) + model_.gaps(size_) + takes;
    use_.transfer += takes;
    ++use_.parts;
    clock_.at(free_ + model_.delay(size_), Phase::end,
              [self = shared_from_this(), part, queued] { self->end(part, queued); });
  }

  void end(const comm::PartQueue::Part& part, Queued queued) {
    if (over_) return;
    if (--under_way_ == 0) use_.busy += clock_.now() - busy_since_;
    auto call = part.last ? calls_.extract(part.call) : Calls::node_type();
    if (!call.empty()) {
      for (const auto& [rank, each] : call.mapped()) each->done();
    }
    if (queued == Queued::no) return;
    queue_.ended(part.bytes);
    choose_later();
  }

  VirtualClock& clock_;
  const int size_;
  const NetworkModel model_;
  comm::PartQueue queue_;
  Calls calls_;             // by number, up to their end
  std::uint64_t next_ = 0;  // to be announced
  comm::Breakage broken_;
  bool over_ = false;  // the clock has ended
  Time free_{0}, busy_since_{0};
  int under_way_ = 0;
  NetworkUse use_;
};

class SimulatedGroup::Member final : public comm::Member {
 public:
  Member(std::shared_ptr<Network> network, int rank) : network_(std::move(network)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return network_->size(); }
  const void* group() const override { return network_.get(); }
  void take(ExchangePtr part) override { network_->take(rank_, std::move(part)); }
  std::vector<std::int64_t> exchange(std::span<const std::int64_t> numbers) override {
    std::vector<std::int64_t> all;
    for (int rank = 0; rank < size(); ++rank) all.insert(all.end(), numbers.begin(), numbers.end());
    return all;
  }
  void break_up(const comm::Breakage& why) override { network_->break_up(why); }
  void leave() override {}

 private:
  const std::shared_ptr<Network> network_;
  const int rank_;
};

SimulatedGroup::SimulatedGroup(VirtualClock& clock, int size, const NetworkModel& network) {
  if (size < 1) throw MisuseError("SimulatedGroup: " + std::to_string(size) + " members; expected at least 1");
  network_ = std::make_shared<Network>(clock, size, network);
  // Calls that not all members have made have no event that ends them.
  clock.at_end([network = std::weak_ptr(network_)] {
    if (const auto alive = network.lock()) alive->end();
  });
  Device device;
  device.name = "simulated";
  device.engine = clock.engine();
  device.memory = std::make_shared<NoMemory>();
  for (int rank = 0; rank < size; ++rank) members_.emplace_back(device, std::make_shared<Member>(network_, rank));
}

NetworkUse SimulatedGroup::use() const { return network_->use(); }

}  // namespace windrow
