// What a group does, whatever it is made of: random programs of collectives beside a plain simulation, and what those
// do not reach.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <thread>
#include <vector>

#include "tests/filled.h"
#include "windrow/comm/communicator.h"

namespace windrow::testing {

/// The text of the error that a wait for the tensor throws; empty if it throws none.
inline std::string error_of(const Tensor& tensor) {
  try {
    tensor.get();
  } catch (const OpError& error) {
    return error.what();
  }
  return "";
}

/// Expects that a wait for the tensor throws an error with this text.
inline void expect_error_of(const Tensor& tensor, const std::string& text,
                            std::source_location at = std::source_location::current()) {
  const std::string error = error_of(tensor);
  if (error.find(text) != std::string::npos) return;
  ADD_FAILURE_AT(at.file_name(), static_cast<int>(at.line())) << "'" << text << "' is not in: " << error;
}

/// Pushes `calls` random collectives, with ops between them, at one member; all members pass the same seed. Returns a
/// function that waits and compares the member's tensors with what a plain simulation of all members computes. Elements
/// are small whole numbers, so sums are exact in any order.
std::function<void()> push_random_collectives(const Communicator& member, unsigned seed, int calls);

/// Pushes maxima of numbers, infinities and NaN, of many sizes and kinds of calls, at one member. Returns a function
/// that waits, and expects NaN where one of the members has it, and otherwise the largest.
std::function<void()> push_maxima_of_nan(const Communicator& member);

/// Calls body(member) for each member of a group of this process, in a thread of its own.
template <class Group>
void at_all_members(const Group& group, const std::function<void(const Communicator&)>& body) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < group.size(); ++rank)
    threads.emplace_back([&, rank] { EXPECT_NO_THROW(body(group[rank])); });
}

/// Expects that a member of a group of two hears that the other one ends, or aborts, and that its calls fail then.
template <class MakeGroup>
void expect_ends_to_be_heard(const MakeGroup& make_group) {
  {
    std::optional group(make_group());
    const Communicator first = (*group)[0];
    const Tensor x = filled(first.device(), 1, 4, 1), y = filled(first.device(), 1, 4, 1);
    first.all_reduce(x);
    group.reset();  // member 1 will not call
    first.all_reduce(y);
    for (const Tensor& tensor : {x, y}) expect_error_of(tensor, "rank 1 has ended");
    EXPECT_THROW(first.exchange({}), CommError);
  }
  for (const std::string why : {"the test says so", ""}) {
    const auto group = make_group();
    const std::string said = why.empty() ? "rank 1 has called abort()" : why;
    const Tensor x = filled(group[0].device(), 1, 4, 1), late = filled(group[1].device(), 1, 4, 1);
    group[0].recv(x, 1);
    group[1].abort(why);
    expect_error_of(x, said);
    EXPECT_THROW(group[0].exchange({}), AbortError);
    group[1].send(late, 0);
    group[1].all_reduce(late);
    expect_error_of(late, said);
  }
}

/// Expects that a group of two names the member that does not call, and is broken then.
template <class Group>
void expect_missing_member_to_be_named(const Group& group) {
  const Tensor x = filled(group[0].device(), 1, 4, 1), late = filled(group[1].device(), 1, 4, 1);
  group[0].all_reduce(x, Combine::sum, {.name = "gradients"});
  expect_error_of(x, "rank 1 has not called all_reduce 'gradients'");
  group[1].all_reduce(late);
  expect_error_of(late, "the group is broken");
  EXPECT_THROW(group[1].exchange(std::vector<std::int64_t>{1}), CommError);
}

/// Whether a wait for the tensor fails, and whether it leaves the error to another member.
enum class Fails : std::uint8_t { no, here, told, by_abort };
Fails how_fails(const Tensor& tensor);

/// All members call this at the same time, in threads or processes of their own. Expects that they exchange numbers and
/// combine whole numbers; that a sum out of place leaves what it reads; that a maximum is NaN where a member has NaN;
/// that messages and collectives may cross each other; and that a failed operand, calls that differ and numbers that
/// are not equally many fail that call alone, at all members, and by name (of a nested group, only a failed operand).
void expect_contract(const Communicator& member);

}  // namespace windrow::testing
