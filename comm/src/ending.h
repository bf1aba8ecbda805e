// How calls end.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "windrow/comm/internal/member.h"

namespace windrow::comm {

/// The text of an exception. Never empty, because a Breakage without a text counts as none.
std::string text_of(const std::exception& error);

/// Which parts are of one call: a collective (pair: -1, -1), an exchange of numbers (-1, -2), or the k-th message of a
/// pair of ranks.
struct CallName {
  int from, to;
  std::uint64_t number;
  friend auto operator<=>(const CallName&, const CallName&) = default;
};
CallName name_of(const Call& call, int rank);

struct PartOfRank {
  int rank;
  ExchangePtr exchange;
};
/// Why the call fails at all members (calls that do not fit each other, or a failed operand); false if it does not.
Breakage reason_to_fail(std::span<const PartOfRank> parts);
/// For a call that fails because an operand of this member has failed.
Breakage operand_failed(int rank, const std::string& failure, std::exception_ptr origin);

/// Computes a call in place, once all of its parts have come, and ends the parts. Those of a collective are in the
/// order of ranks. The call fails at all members if they do not fit each other, or if an operand has failed.
void finish(std::span<const PartOfRank> parts);

/// Throws MisuseError, whose text begins with `group`, unless the time is positive.
void require_positive(const char* group, const char* option, std::chrono::nanoseconds time);
/// What is left of a time limit that began at `since`, but at most an hour: a wait adds it to the present time, which
/// would overflow for an unlimited time. Zero or less if the limit is over.
std::chrono::nanoseconds time_left(std::chrono::nanoseconds limit, std::chrono::steady_clock::time_point since);

/// "10 s", "1500 ms" or "500 ns", for errors.
std::string seconds(std::chrono::nanoseconds time);

/// From 1 s on, seconds alone.
std::chrono::nanoseconds whole_seconds(std::chrono::nanoseconds time);

/// Logs "rank 2 waits 30 s in all_reduce 'w' (...), call 7, for ranks 0, 3".
struct Waiting {
  std::vector<int> ranks;  ///< those that wait
  std::chrono::nanoseconds time;
  std::string what;                       ///< the call that they wait in
  std::vector<int> missing;               ///< those that they wait for
  std::vector<std::string> remarks = {};  ///< on each of these; or none
};
void log_waiting(const Waiting& waiting);

}  // namespace windrow::comm
