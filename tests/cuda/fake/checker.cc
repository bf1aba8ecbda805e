#include "checker.h"

#include <iterator>

#include "world.h"

namespace windrow::fake {
namespace {

std::uintptr_t begin_of(const cuda::Access& access) { return reinterpret_cast<std::uintptr_t>(access.start); }
std::size_t length_of(const cuda::Access& access) { return (access.rows - 1) * access.stride + access.width; }

/// Whether two accesses share a byte.
bool overlap(const cuda::Access& a, const cuda::Access& b) {
  const cuda::Access& first = begin_of(a) <= begin_of(b) ? a : b;
  const cuda::Access& second = begin_of(a) <= begin_of(b) ? b : a;
  const std::size_t distance = begin_of(second) - begin_of(first);
  if (distance >= length_of(first)) return false;
  if (first.rows == 1) return true;
  if (second.rows == 1 || first.stride == second.stride) {
    const std::size_t column = distance % first.stride;
    const std::size_t width = second.rows == 1 ? std::min(second.width, first.stride) : second.width;
    const bool last_row = distance / first.stride + 1 == first.rows;
    return column < first.width || (!last_row && column + width > first.stride);
  }
  for (std::size_t row = 0; row < second.rows; ++row) {
    const cuda::Access one = {static_cast<const std::byte*>(second.start) + row * second.stride, 1, second.width, 0,
                              false};
    if (overlap(first, one)) return true;
  }
  return false;
}

std::string text_of(const Task& task, bool writes) {
  return "'" + task.name + "' on stream " + std::to_string(task.stream) + (writes ? ", which writes" : ", which reads");
}

}  // namespace

void Checker::check(const TaskPtr& task, const std::vector<cuda::Access>& accesses) {
  World& w = world();
  for (const cuda::Access& access : accesses) {
    if (access.rows == 0 || access.width == 0) continue;
    const TwiceMapped* const memory = memory_of(access.start);
    const bool missing = memory != nullptr && !memory->taken(access.start, length_of(access));
    if (missing) w.report(text_of(*task, access.writes) + " memory that is not allocated");
    if (!w.options.check) continue;
    const std::uintptr_t begin = begin_of(access);
    auto it = noted_.lower_bound(begin - std::min<std::uintptr_t>(begin, longest_));
    while (it != noted_.end() && it->first < begin + length_of(access)) {
      const auto& [other, before] = it->second;
      const bool ordered = task->clock.has(before->stream, before->number);
      if (!ordered && (access.writes || other.writes) && overlap(access, other)) {
        w.report("nothing orders " + text_of(*before, other.writes) + ", and " + text_of(*task, access.writes) +
                 " the same memory");
      }
      // An ordered access of the same shape is replaced: what conflicts with it also conflicts with this one.
      const bool same = it->first == begin && other.rows == access.rows && other.width == access.width &&
                        other.stride == access.stride;
      const bool replaced = ordered && same && (access.writes || (!other.writes && before->stream == task->stream));
      it = replaced ? noted_.erase(it) : std::next(it);
    }
  }
  if (!w.options.check) return;
  for (const cuda::Access& access : accesses) {
    if (access.rows == 0 || access.width == 0) continue;
    longest_ = std::max(longest_, length_of(access));
    noted_.emplace(begin_of(access), Noted{access, task});
  }
  if (noted_.size() > prune_at_) prune();
}

void Checker::forget(const void* start, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(start);
  noted_.erase(noted_.lower_bound(begin), noted_.lower_bound(begin + bytes));
}

void Checker::prune() {
  std::erase_if(noted_, [&](const auto& entry) {
    const Task& task = *entry.second.task;
    return host_.has(task.stream, task.number);
  });
  prune_at_ = std::max<std::size_t>(1024, 2 * noted_.size());
}

}  // namespace windrow::fake
