#include "nccl_work.h"

#include <algorithm>
#include <cstring>

namespace windrow::fake {

void report_nccl(const std::string& line) {
  std::lock_guard lock(world().mutex);
  world().report("NCCL: " + line);
}

namespace {

template <class T>
void combine(const Meeting& meeting, const Operation& to, std::size_t skip) {
  const auto* const how = &to.how;
  for (std::size_t i = 0; i < to.count; ++i) {
    T sum = 0;
    for (std::size_t rank = 0; rank < meeting.parts.size(); ++rank) {
      const T x = static_cast<const T*>(mapped(meeting.parts[rank]->from))[skip + i];
      sum = rank == 0 ? x : *how == ncclMax ? (sum != sum || sum < x ? x : sum) : sum + x;
    }
    if (*how == ncclAvg) sum = static_cast<T>(sum * (T{1} / static_cast<T>(meeting.parts.size())));
    static_cast<T*>(mapped(to.to))[i] = sum;
  }
}
/// To a copy of the result's place, since that may be an operand.
void combine(const Meeting& meeting, const std::vector<std::size_t>& ranks, bool scatter) {
  std::vector<std::vector<std::byte>> results;
  for (const std::size_t rank : ranks) {
    Operation to = *meeting.parts[rank];
    results.emplace_back(4 * to.count);
    to.to = results.back().data();
    const std::size_t skip = scatter ? rank * to.count : 0;
    to.type == ncclFloat32 ? combine<float>(meeting, to, skip) : combine<std::int32_t>(meeting, to, skip);
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    std::memcpy(mapped(meeting.parts[ranks[i]]->to), results[i].data(), results[i].size());
  }
}

}  // namespace

void compute(const Meeting& meeting) {
  const Operation& first = *meeting.parts.front();
  const std::size_t bytes = 4 * first.count;
  std::vector<std::size_t> all(meeting.parts.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  switch (first.kind) {
    case Operation::Kind::all_reduce:
      return combine(meeting, all, false);
    case Operation::Kind::reduce:
      return combine(meeting, {static_cast<std::size_t>(first.peer)}, false);
    case Operation::Kind::reduce_scatter:
      return combine(meeting, all, true);
    case Operation::Kind::broadcast: {
      const void* const from = mapped(meeting.parts[static_cast<std::size_t>(first.peer)]->from);
      for (const Operation* part : meeting.parts) {
        if (mapped(part->to) != from) std::memcpy(mapped(part->to), from, bytes);
      }
      return;
    }
    case Operation::Kind::all_gather:
      for (const Operation* part : meeting.parts) {
        for (const std::size_t rank : all) {
          std::memmove(static_cast<std::byte*>(mapped(part->to)) + rank * bytes, mapped(meeting.parts[rank]->from),
                       bytes);
        }
      }
      return;
    default:
      std::memmove(mapped(meeting.parts[1]->to), mapped(first.from), bytes);
  }
}

namespace {

/// Takes part in a meeting; the last part computes.
void come(Clique& clique, Meeting& meeting, std::size_t place, std::size_t parts, const Operation& operation) {
  meeting.parts.resize(parts);
  meeting.parts[place] = &operation;
  if (++meeting.come < parts) return;
  if (clique.lost || !clique.aborted.empty()) return;  // some of the parts may be gone
  for (const Operation* part : meeting.parts) {
    const bool fits =
        operation.pair() ? part->count == operation.count && part->type == operation.type : part->fits(operation);
    if (!fits) return report_nccl("the ranks of a clique make different calls");
  }
  compute(meeting);
  meeting.done = true;
  clique.changed.notify_all();
}

cuda::Access access_of(const void* start, std::size_t count, bool writes) {
  return {start, 1, 4 * count, 4 * count, writes};
}
}  // namespace

void add_accesses(std::vector<cuda::Access>& accesses, const Operation& operation, const Clique& clique, int rank) {
  const auto size = static_cast<std::size_t>(clique.size);
  const bool root = rank == operation.peer;
  std::size_t from = operation.count, to = operation.count;
  switch (operation.kind) {
    case Operation::Kind::reduce:
      to = root ? to : 0;
      break;
    case Operation::Kind::broadcast:
      from = root ? from : 0;
      to = root && operation.from == operation.to ? 0 : to;
      break;
    case Operation::Kind::all_gather:
      to *= size;
      break;
    case Operation::Kind::reduce_scatter:
      from *= size;
      break;
    case Operation::Kind::send:
      to = 0;
      break;
    case Operation::Kind::receive:
      from = 0;
      break;
    default:
      break;
  }
  if (from > 0 && (to == 0 || operation.from != operation.to)) {
    accesses.push_back(access_of(operation.from, from, false));
  }
  if (to > 0) accesses.push_back(access_of(operation.to, to, true));
}

void run(Clique& clique, int rank, const std::vector<MeetingName>& names, const std::vector<Operation>& operations) {
  if (!clique.files.empty()) return run_by_files(clique, rank, names, operations);
  std::unique_lock lock(clique.mutex);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const bool pair = operations[i].pair();
    come(clique, clique.meetings[names[i]],
         pair ? (operations[i].kind == Operation::Kind::send ? 0 : 1) : static_cast<std::size_t>(rank),
         pair ? 2 : static_cast<std::size_t>(clique.size), operations[i]);
  }
  for (const auto& name : names) {
    clique.changed.wait(lock, [&] { return clique.meetings[name].done || clique.aborted.contains(rank); });
  }
}

}  // namespace windrow::fake
