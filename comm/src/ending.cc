#include "ending.h"

#include <algorithm>
#include <span>

#include "combine.h"

namespace windrow::comm {
namespace {

std::size_t place(int rank) { return static_cast<std::size_t>(rank); }

/// What is combined where, once all parts are there. `parts` are in the order of ranks.
void compute(std::vector<Exchange>& parts) {
  const Call& call = parts.front().call;
  const auto members = static_cast<Index>(parts.size());
  const auto block = [&](const Piece& piece, Index number) {
    const Index each = piece.rows / members;
    return rows(piece, number * each, (number + 1) * each);
  };
  // Piece i of all members.
  const auto all = [&](std::size_t i) {
    std::vector<Piece> pieces;
    for (const Exchange& part : parts) pieces.push_back(part.pieces[i]);
    return pieces;
  };
  switch (call.kind) {
    case Kind::all_reduce:
      for (std::size_t i = 0; i < call.shapes.size(); ++i) combine(call.combine, call.elements, all(i), all(i));
      return;
    case Kind::reduce:
      for (std::size_t i = 0; i < call.shapes.size(); ++i) {
        combine(call.combine, call.elements, all(i), std::span<const Piece>(&parts[place(call.peer)].pieces[i], 1));
      }
      return;
    case Kind::broadcast:
      for (std::size_t i = 0; i < call.shapes.size(); ++i) {
        for (std::size_t rank = 0; rank < parts.size(); ++rank) {
          if (rank != place(call.peer)) copy(parts[place(call.peer)].pieces[i], parts[rank].pieces[i]);
        }
      }
      return;
    case Kind::all_gather:
      for (Exchange& to : parts) {
        for (Index from = 0; from < members; ++from) {
          copy(parts[static_cast<std::size_t>(from)].pieces[0], block(to.pieces[1], from));
        }
      }
      return;
    case Kind::reduce_scatter:
      for (Index to = 0; to < members; ++to) {
        std::vector<Piece> blocks;
        for (const Exchange& from : parts) blocks.push_back(block(from.pieces[0], to));
        combine(call.combine, call.elements, blocks,
                std::span<const Piece>(&parts[static_cast<std::size_t>(to)].pieces[1], 1));
      }
      return;
    case Kind::all_to_all:
      for (Index to = 0; to < members; ++to) {
        for (Index from = 0; from < members; ++from) {
          copy(block(parts[static_cast<std::size_t>(from)].pieces[0], to),
               block(parts[static_cast<std::size_t>(to)].pieces[1], from));
        }
      }
      return;
    case Kind::send:
    case Kind::recv: {
      const bool first_sends = call.kind == Kind::send;
      copy(parts[first_sends ? 0 : 1].pieces[0], parts[first_sends ? 1 : 0].pieces[0]);
      return;
    }
  }
}

}  // namespace

std::string text_of(const std::exception& error) {
  const std::string text = error.what();
  return text.empty() ? "an exception without a text" : text;
}

Breakage reason_to_fail(std::span<const Said> parts) {
  for (std::size_t i = 0; i < parts.size() && parts.size() > 1; ++i) {
    const Said& other = parts[i == 0 ? 1 : 0];
    if (parts[i].call->fits(*other.call)) continue;
    return {.why = "rank " + std::to_string(other.rank) + " calls " + other.call->describe() + ", but rank " +
                   std::to_string(parts[i].rank) + " calls " + parts[i].call->describe()};
  }
  for (const Said& part : parts) {
    if (part.failure->empty()) continue;
    return operand_failed(part.rank, *part.failure, part.origin);
  }
  return {};
}

Breakage operand_failed(int rank, const std::string& failure, std::exception_ptr origin) {
  Breakage failed{.why = "the operand of rank " + std::to_string(rank) + " failed: " + failure};
  if (origin) failed.cause = std::move(origin);
  return failed;
}

namespace {

template <class E>
std::exception_ptr nesting(const std::exception_ptr& cause, const std::string& text) {
  try {
    try {
      std::rethrow_exception(cause);
    } catch (...) {
      std::throw_with_nested(E(text));
    }
  } catch (...) {
    return std::current_exception();
  }
}

std::exception_ptr error_of(const std::string& text, const Breakage& broken) {
  switch (broken.told) {
    case Told::here:
      return nesting<CommError>(broken.cause, text);
    case Told::elsewhere:
      return nesting<ToldError>(broken.cause, text);
    case Told::by_abort:
      return nesting<AbortError>(broken.cause, text);
  }
  return broken.cause;
}

}  // namespace

std::exception_ptr Breakage::error(const std::string& what) const { return error_of(what + ": " + why, *this); }
std::exception_ptr Breakage::error_of_exchange() const {
  return why.find("exchange") == std::string::npos ? error("exchange") : error_of(why, *this);
}

void fail(Exchange& part, const Breakage& broken) { part.done(broken.error(part.call.describe())); }

void require_positive(const char* group, const char* option, std::chrono::nanoseconds time) {
  if (time > time.zero()) return;
  throw MisuseError(std::string(group) + ": " + option + " = " + std::to_string(time.count()) +
                    " ns; expected a positive time");
}

std::chrono::nanoseconds time_left(std::chrono::nanoseconds limit, std::chrono::steady_clock::time_point since) {
  return std::min<std::chrono::nanoseconds>(limit - (std::chrono::steady_clock::now() - since), std::chrono::hours(1));
}

std::string seconds(std::chrono::nanoseconds time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

void finish(std::vector<Exchange>& parts, const std::vector<int>& ranks) {
  std::vector<Said> said;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    said.push_back({ranks[i], &parts[i].call, &parts[i].failure, parts[i].origin});
  }
  Breakage failed = reason_to_fail(said);
  if (!failed) {
    try {
      compute(parts);
    } catch (const std::exception& error) {
      failed = {.why = text_of(error)};
    }
  }
  for (Exchange& part : parts) {
    if (failed) {
      fail(part, failed);
    } else {
      part.done();
    }
  }
}

}  // namespace windrow::comm
