#include "shards.h"

#include <cstdint>
#include <ranges>
#include <string>

#include "windrow/training/internal/deal.h"

namespace windrow {
namespace {

std::size_t bytes_of(const Tensor& tensor) { return static_cast<std::size_t>(tensor.rows() * tensor.width()) * 4; }

}  // namespace

Shards::Shards(const Communicator& group, const Parameters& parameters, const DataParallelOptions& options)
    : group_(group), parameters_(parameters), options_(options), owners_(parameters.size(), 0) {
  std::vector<std::int64_t> bytes;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    bytes.push_back(static_cast<std::int64_t>(bytes_of(parameters.value(parameters[i]))));
  }
  int member = 0;
  for (const std::vector<std::size_t>& dealt : deal(bytes, group.size())) {
    for (const std::size_t parameter : dealt) owners_[parameter] = member;
    ++member;
  }
}

int Shards::owner(std::size_t parameter) const {
  if (parameter < owners_.size()) return owners_[parameter];
  throw MisuseError("sharded update: parameter '" + parameters_.name(parameters_[parameter]) +
                    "' was added after DataParallel was made; expected it before");
}

Buckets Shards::sums(std::source_location from) const {
  const auto push = [this](std::size_t owner, const Buckets::Parts& parts, const CollectiveOptions& options) {
    group_.reduce(tensors_of(parts), static_cast<int>(owner), Combine::sum, options);
  };
  return {options_, {.name = "gradients", .pushed_at = from}, push};
}

void Shards::share(const Buckets::Parts& parts, std::source_location from) const {
  const auto push = [this](std::size_t owner, const Buckets::Parts& some, const CollectiveOptions& options) {
    group_.broadcast(tensors_of(some), static_cast<int>(owner), options);
  };
  Buckets copies(options_, {.name = "parameters", .pushed_at = from}, push);
  for (const OfParameter& part : parts) copies.add(static_cast<std::size_t>(owner(part.parameter)), part);
  copies.push();
}

void Shards::add_up(const Tensor& tensor, std::source_location from) const {
  group_.all_reduce(tensor, Combine::sum, {.name = "squared norms", .pushed_at = from});
}

std::vector<std::vector<Tensor>> Shards::collect(
    const std::vector<std::vector<Tensor>>& own,
    const std::function<Tensor(std::size_t parameter, std::size_t k)>& make) const {
  std::vector<std::int64_t> counts;
  for (const std::vector<Tensor>& tensors : own) counts.push_back(static_cast<std::int64_t>(tensors.size()));
  const std::vector<std::int64_t> of_all = group_.exchange(counts);
  std::vector<std::vector<Tensor>> all = own;
  const CollectiveOptions options{.name = "optimiser state"};
  for (std::size_t i = 0; i < own.size(); ++i) {
    const int from = owner(i);
    if (from == 0) continue;
    if (from == group_.rank()) {
      for (const Tensor& tensor : own[i]) group_.send(tensor, 0, options);
    }
    if (group_.rank() != 0) continue;
    const auto count = static_cast<std::size_t>(of_all[static_cast<std::size_t>(from) * own.size() + i]);
    while (all[i].size() < count) {
      all[i].push_back(make(i, all[i].size()));
      group_.recv(all[i].back(), from, options);
    }
  }
  // A member may end after this call, so its sends must have begun by then.
  if (group_.rank() == 0) {
    for (const Tensor& tensor : std::views::join(all)) parameters_.device().engine->wait(tensor.var());
  }
  group_.exchange({});
  return all;
}

}  // namespace windrow
