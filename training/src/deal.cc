#include "windrow/training/internal/deal.h"

#include <algorithm>
#include <numeric>

namespace windrow {

std::vector<std::vector<std::size_t>> deal(std::span<const std::int64_t> work, int members) {
  std::vector<std::vector<std::size_t>> dealt(static_cast<std::size_t>(members));
  std::vector<std::int64_t> load(dealt.size(), 0);
  std::vector<std::size_t> largest_first(work.size());
  std::iota(largest_first.begin(), largest_first.end(), std::size_t{0});
  std::ranges::stable_sort(largest_first, [&](std::size_t a, std::size_t b) { return work[a] > work[b]; });
  for (const std::size_t sample : largest_first) {
    const auto least = static_cast<std::size_t>(std::ranges::min_element(load) - load.begin());
    dealt[least].push_back(sample);
    load[least] += work[sample];
  }
  for (auto& numbers : dealt) std::ranges::sort(numbers);
  return dealt;
}

}  // namespace windrow
