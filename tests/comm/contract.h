// What a group does, whatever it is made of, beside what random_collectives.h compares.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "windrow/comm/communicator.h"

namespace windrow::testing {

/// Calls body(member) for each member of a group of this process, in a thread of its own.
template <class Group>
void at_all_members(const Group& group, const std::function<void(const Communicator&)>& body) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < group.size(); ++rank)
    threads.emplace_back([&, rank] { EXPECT_NO_THROW(body(group[rank])); });
}

/// Whether a wait for the tensor fails, and whether it leaves the error to another member.
enum class Fails : std::uint8_t { no, here, told, by_abort };
Fails how_fails(const Tensor& tensor);

/// All members call this at the same time, in threads or processes of their own. Expects that they exchange numbers and
/// combine whole numbers; that a maximum is NaN where a member has NaN; that messages and collectives may cross each
/// other; and that a failed operand, calls that differ and numbers that are not equally many fail that call alone, at
/// all members, and by name (of a nested group, only a failed operand).
void expect_contract(const Communicator& member);

}  // namespace windrow::testing
