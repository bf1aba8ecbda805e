#include "windrow/comm/nccl.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "nccl/group.h"
#include "windrow/comm/local.h"

namespace windrow {
namespace {

using comm::Breakage;
using comm::Call;
using comm::CallKind;
using comm::ExchangePtr;
using comm::NcclCalls;
using comm::NcclGroupState;
using comm::NcclId;
using comm::Operands;
using Exchanger = std::shared_ptr<const Communicator>;

void require_cuda(const Device& device) {
  if (!device.on_host() && device.native_queue != nullptr) return;
  throw MisuseError("NcclGroup: device '" + device.name + "'; expected devices of CUDA");
}

void require_positive(const NcclOptions& options) {
  comm::require_positive("NcclGroup", "patience", options.patience);
  comm::require_positive("NcclGroup", "tell_after", options.tell_after);
  comm::require_positive("NcclGroup", "answer", options.answer);
}

LaneId lane_of(const Device& device) { return device.collectives.value_or(device.lane); }

/// CUDA's number of the device.
int number_of(const Device& device, const NcclCalls& calls) {
  const auto found = std::make_shared<int>(0);
  Engine& engine = *device.engine;
  const Var var = engine.new_var(OpName("device number"));
  engine.push(
      [found, &calls](OpContext&) {
        if (const int error = calls.device(found.get()); error != 0) {
          throw CommError("cudaGetDevice failed: " + comm::nccl_text(calls, error));
        }
      },
      {overwrite(var)}, {.name = "device number", .lane = lane_of(device)});
  try {
    engine.wait(var);
  } catch (...) {
    engine.retire(var);
    throw;
  }
  engine.retire(var);
  return *found;
}

NcclId make_id(const NcclCalls& calls) {
  NcclId id;
  if (const int error = calls.make_id(&id); error != 0) {
    throw CommError("ncclGetUniqueId failed: " + comm::nccl_text(calls, error));
  }
  return id;
}

/// A group whose threads end with the last member.
using Team = std::shared_ptr<NcclGroupState>;

class NcclMember final : public comm::Member {
 public:
  /// `announcer`: the exchanger if all members are here. Then messages go by NCCL, else by the exchanger's group.
  NcclMember(Team team, Exchanger exchanger, Exchanger announcer, const Device& device)
      : team_(std::move(team)),
        exchanger_(std::move(exchanger)),
        announcer_(std::move(announcer)),
        messenger_(announcer_ == exchanger_ ? nullptr : exchanger_->member()),
        announcements_(announcer_->member()),
        rank_(exchanger_->rank()),
        size_(exchanger_->size()),
        native_queue_(device.native_queue) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const void* group() const override { return team_.get(); }
  Index most_elements(CallKind kind) const override {
    return on_lane(kind) ? Member::most_elements(kind) : messenger_->most_elements(kind);
  }
  /// NCCL's maximum of a number and NaN is the number.
  const std::shared_ptr<comm::Member>* of_maxima() const override { return &exchanger_->member(); }
  bool on_lane(CallKind kind) const override { return messenger_ == nullptr || kind < CallKind::send; }
  std::uint64_t number(CallKind kind, int peer) override {
    return (on_lane(kind) ? announcements_ : messenger_)->number(kind, peer);
  }
  void not_made(CallKind kind, int peer) noexcept override {
    (on_lane(kind) ? announcements_ : messenger_)->not_made(kind, peer);
  }
  void begin(Call call, Operands operands, Lane& lane) override {
    void* stream = nullptr;
    try {
      stream = native_queue_(&lane);
    } catch (const std::exception& error) {
      if (operands.failure.empty()) operands.failure = error.what();
    }
    team_->begin(rank_, std::move(call), std::move(operands), stream);
  }
  void take(ExchangePtr part) override {
    if (!on_lane(part->call.kind)) return messenger_->take(std::move(part));
    team_->take(rank_, std::move(part));
  }
  std::vector<std::int64_t> exchange(std::span<const std::int64_t> numbers) override {
    return exchanger_->exchange(numbers);
  }
  void break_up(const Breakage& why) override {
    team_->break_up(why);
    if (messenger_) messenger_->break_up(why);
  }
  void time_calls() override {
    Member::time_calls();
    exchanger_->member()->time_calls_by(clock());
  }
  void leave() override {
    exchanger_.reset();
    announcer_.reset();
  }

 private:
  const Team team_;
  Exchanger exchanger_, announcer_;  // until leave(): their ends tell the others
  const std::shared_ptr<comm::Member> messenger_, announcements_;
  const int rank_, size_;
  void* (*const native_queue_)(Lane*);
};

/// Starts a group that breaks when one of these groups does, and that breaks them when it is broken, so that waits in
/// exchange() or for a message end.
Team start(const NcclCalls& calls, NcclGroupState::Setup setup, const std::vector<Exchanger>& exchangers) {
  const auto state = std::make_shared<NcclGroupState>(calls, std::move(setup));
  const Team team(state.get(), [state](NcclGroupState*) { state->stop(); });
  std::vector<std::weak_ptr<comm::Member>> all;
  for (const Exchanger& exchanger : exchangers) {
    all.push_back(exchanger->member());
    exchanger->member()->on_break([group = std::weak_ptr(state)](const Breakage& why) {
      if (const auto alive = group.lock()) alive->break_up(why);
    });
  }
  state->start([all](const Breakage& why) {
    for (const auto& weak : all) {
      if (const auto member = weak.lock()) member->break_up(why);
    }
  });
  return team;
}

}  // namespace

NcclGroup::NcclGroup(const std::vector<Device>& devices, NcclOptions options) {
  if (devices.empty()) throw MisuseError("NcclGroup: no devices; expected at least one");
  require_positive(options);
  for (const Device& device : devices) require_cuda(device);
  const NcclCalls& calls = comm::nccl_calls();
  NcclGroupState::Setup setup{.size = static_cast<int>(devices.size()), .options = options};
  std::set<int> numbers;
  for (const Device& device : devices) {
    const int number = number_of(device, calls);
    if (!numbers.insert(number).second) {
      throw MisuseError("NcclGroup: two members on " + device.name + "; expected a device for each");
    }
    setup.places.push_back({static_cast<int>(setup.places.size()), number});
  }
  setup.id = make_id(calls);
  std::vector<Exchanger> exchangers;
  {
    const LocalGroup local(devices, {.patience = options.patience, .tell_after = options.tell_after});
    for (int rank = 0; rank < local.size(); ++rank) {
      exchangers.push_back(std::make_shared<const Communicator>(local[rank]));
      setup.announcements[rank] = local[rank].member();
    }
  }
  const Team team = start(calls, std::move(setup), exchangers);
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    members_.emplace_back(devices[rank],
                          std::make_shared<NcclMember>(team, exchangers[rank], exchangers[rank], devices[rank]));
  }
}

NcclGroup::NcclGroup(const Device& device, const Communicator& exchange, const Communicator& announcements,
                     NcclOptions options) {
  require_cuda(device);
  require_positive(options);
  const NcclCalls& calls = comm::nccl_calls();
  const int rank = exchange.rank();
  NcclGroupState::Setup setup{
      .places = {{rank, number_of(device, calls)}}, .size = exchange.size(), .options = options};
  // Rank 0 tells the others the name of the clique, or that there is none.
  constexpr std::size_t words = NcclId::size / sizeof(std::int64_t);
  std::vector<std::int64_t> own(words + 1);
  if (rank == 0) {
    try {
      setup.id = make_id(calls);
      own[words] = 1;
    } catch (const CommError&) {
      announcements.exchange(own);
      throw;
    }
    std::memcpy(own.data(), setup.id.bytes, NcclId::size);
  }
  const std::vector<std::int64_t> all = announcements.exchange(own);
  if (all[words] == 0) throw PeerError("NcclGroup: ncclGetUniqueId failed at rank 0");
  std::memcpy(setup.id.bytes, all.data(), NcclId::size);
  const auto exchanger = std::make_shared<const Communicator>(exchange);
  const auto announcer = std::make_shared<const Communicator>(announcements);
  setup.announcements[rank] = announcer->member();
  const Team team = start(calls, std::move(setup), {exchanger, announcer});
  members_.emplace_back(device, std::make_shared<NcclMember>(team, exchanger, announcer, device));
}

const Communicator& NcclGroup::operator[](int rank) const {
  const auto found = std::ranges::find(members_, rank, &Communicator::rank);
  if (found != members_.end()) return *found;
  throw MisuseError("NcclGroup: rank " + std::to_string(rank) + "; expected one of a member in this process, below " +
                    std::to_string(size()));
}

std::string NcclGroup::unavailable() { return comm::why_no_nccl(); }

}  // namespace windrow
