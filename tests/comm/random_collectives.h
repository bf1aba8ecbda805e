// Random programs of collectives, and what they compute: the same program runs at all members of a group.
#pragma once

#include <functional>

#include "windrow/comm/communicator.h"

namespace windrow::testing {

/// Pushes `calls` random collectives, with ops between them, at one member; all members pass the same seed. Returns a
/// function that waits and compares the member's tensors with what a plain simulation of all members computes. Elements
/// are small whole numbers, so sums are exact in any order.
std::function<void()> push_random_collectives(const Communicator& member, unsigned seed, int calls);

}  // namespace windrow::testing
