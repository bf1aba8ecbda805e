#include "windrow/training/replicas.h"

#include <cstdint>
#include <exception>
#include <optional>
#include <thread>

#include "windrow/training/internal/deal.h"

namespace windrow {
namespace {

std::vector<Device> devices_of(const std::vector<Replica>& replicas) {
  if (replicas.empty()) throw MisuseError("Replicas: no replicas; expected one or more");
  std::vector<Device> devices;
  for (const Replica& replica : replicas) devices.push_back(replica.parameters.device());
  return devices;
}

/// Calls call(rank) for each member, in threads of their own except for the first one. Returns what they throw.
template <class Call>
std::vector<std::exception_ptr> at_all(std::size_t members, const Call& call) {
  std::vector<std::exception_ptr> thrown(members);
  const auto at = [&](std::size_t rank) {
    try {
      call(rank);
    } catch (...) {
      thrown[rank] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 1; rank < members; ++rank) threads.emplace_back([&at, rank] { at(rank); });
    at(0);
  }
  return thrown;
}

/// Throws the error of a member that reports a cause of its own, before those that follow from another member's.
void rethrow_first(const std::vector<std::exception_ptr>& thrown) {
  std::exception_ptr first, peer;
  for (const std::exception_ptr& one : thrown) {
    if (!one) continue;
    try {
      std::rethrow_exception(one);
    } catch (const PeerError&) {
      if (!peer) peer = one;
    } catch (...) {
      if (!first) first = one;
    }
  }
  if (first || peer) std::rethrow_exception(first ? first : peer);
}

}  // namespace

struct Replicas::Member {
  Parameters& parameters;
  Optimiser& optimiser;
  Runner runner;
  std::optional<DataParallel> parallel;
};

Replicas::Replicas(const VertexFunction& function, const std::vector<Replica>& replicas, const ReplicasOptions& options)
    : group_(devices_of(replicas), options.group) {
  for (const Replica& replica : replicas) {
    members_.push_back(std::unique_ptr<Member>(
        new Member{replica.parameters, replica.optimiser,
                   Runner(replica.parameters.device(), function, replica.parameters, options.runner), std::nullopt}));
  }
  rethrow_first(at_all(members_.size(), [&](std::size_t rank) {
    DataParallelOptions own = options.data_parallel;
    own.sharded = options.sharded ? &members_[rank]->optimiser : nullptr;
    members_[rank]->parallel.emplace(group_[static_cast<int>(rank)], members_[rank]->parameters, own);
  }));
}

Replicas::~Replicas() = default;

std::vector<Minibatch> Replicas::step(const InputGraphs& graphs, std::source_location from) {
  const auto pointers = graphs.pointers();
  if (pointers.empty()) throw MisuseError("Replicas::step: no graphs; expected at least 1");
  std::vector<std::int64_t> work;
  for (const InputGraph* const graph : pointers) work.push_back(graph == nullptr ? 0 : graph->vertices());
  const std::vector<std::vector<std::size_t>> dealt = deal(work, static_cast<int>(size()));
  std::vector<std::optional<Minibatch>> made(size());
  // They differ if only some members have differentiated in an earlier call.
  const std::uint64_t number = members_.front()->parameters.minibatches();
  for (const auto& member : members_) {
    if (member->parameters.minibatches() != number) member->parameters.set_minibatches(number);
  }
  // No member combines before all have differentiated, so what is wrong with a graph breaks no group.
  rethrow_first(at_all(size(), [&](std::size_t rank) {
    Member& member = *members_[rank];
    std::vector<const InputGraph*> own;
    std::vector<std::int32_t> numbers;
    for (const std::size_t place : dealt[rank]) {
      own.push_back(pointers[place]);
      numbers.push_back(static_cast<std::int32_t>(place));
    }
    member.parameters.number_samples(std::move(numbers));
    made[rank] = member.runner.differentiate(InputGraphs(own), {}, from);
  }));
  rethrow_first(at_all(size(), [&](std::size_t rank) {
    Member& member = *members_[rank];
    try {
      if (member.optimiser.takes_step()) member.parallel->combine(dealt[rank].size(), from);
      member.optimiser.step(pointers.size(), from);
    } catch (const std::exception& error) {
      group_[static_cast<int>(rank)].abort(error.what());
      throw;
    }
  }));
  std::vector<Minibatch> all;
  for (std::optional<Minibatch>& one : made) all.push_back(std::move(*one));
  return all;
}

}  // namespace windrow
