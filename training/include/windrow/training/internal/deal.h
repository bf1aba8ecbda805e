// Dividing the samples of a minibatch among the members of a group.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace windrow {

/// Distributes samples so that all members get about equal work: largest first, each to the member with the least work
/// so far (Graham 1969). Returns the numbers of each member's samples, ascending. The same arguments give the same
/// result. `work` is that of each sample, in any unit; `members` is at least 1.
std::vector<std::vector<std::size_t>> deal(std::span<const std::int64_t> work, int members);

}  // namespace windrow
