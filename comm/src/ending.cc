#include "ending.h"

#include <algorithm>
#include <span>

#include "combine.h"
#include "windrow/engine/internal/engine_use.h"

namespace windrow::comm {
namespace {

std::size_t place(int rank) { return static_cast<std::size_t>(rank); }

/// Combines or copies the tensors, once all parts are there.
void compute(std::span<const PartOfRank> parts) {
  const Call& call = parts.front().exchange->call;
  const auto members = static_cast<Index>(parts.size());
  const auto piece = [&](std::size_t part, std::size_t i) -> Piece& { return parts[part].exchange->pieces[i]; };
  const auto block = [&](const Piece& whole, Index number) {
    const Index each = whole.rows / members;
    return rows(whole, number * each, (number + 1) * each);
  };
  Pieces of_all;
  switch (call.kind) {
    case CallKind::all_reduce:
    case CallKind::reduce:
      if (call.out_of_place) {
        Pieces targets;
        for (std::size_t part = 0; part < parts.size(); ++part) {
          of_all.push_back(piece(part, 0));
          targets.push_back(piece(part, 1));
        }
        return combine(call.combine, call.elements, {of_all.data(), of_all.size()}, {targets.data(), targets.size()});
      }
      for (std::size_t i = 0; i < call.shapes.size(); ++i) {
        of_all.clear();
        for (std::size_t part = 0; part < parts.size(); ++part) of_all.push_back(piece(part, i));
        const std::span<const Piece> at_root(&piece(place(call.peer), i), 1);
        const std::span<const Piece> all(of_all.data(), of_all.size());
        combine(call.combine, call.elements, all, call.kind == CallKind::reduce ? at_root : all);
      }
      return;
    case CallKind::broadcast:
      for (std::size_t i = 0; i < call.shapes.size(); ++i) {
        for (std::size_t part = 0; part < parts.size(); ++part) {
          if (part != place(call.peer)) copy(piece(place(call.peer), i), piece(part, i));
        }
      }
      return;
    case CallKind::all_gather:
    case CallKind::exchange:
      for (std::size_t to = 0; to < parts.size(); ++to) {
        for (std::size_t from = 0; from < parts.size(); ++from) {
          copy(piece(from, 0), block(piece(to, 1), static_cast<Index>(from)));
        }
      }
      return;
    case CallKind::reduce_scatter:
      for (std::size_t to = 0; to < parts.size(); ++to) {
        of_all.clear();
        for (std::size_t from = 0; from < parts.size(); ++from) {
          of_all.push_back(block(piece(from, 0), static_cast<Index>(to)));
        }
        combine(call.combine, call.elements, {of_all.data(), of_all.size()}, std::span<const Piece>(&piece(to, 1), 1));
      }
      return;
    case CallKind::all_to_all:
      for (std::size_t to = 0; to < parts.size(); ++to) {
        for (std::size_t from = 0; from < parts.size(); ++from) {
          copy(block(piece(from, 0), static_cast<Index>(to)), block(piece(to, 1), static_cast<Index>(from)));
        }
      }
      return;
    case CallKind::send:
    case CallKind::recv: {
      const bool first_sends = call.kind == CallKind::send;
      copy(piece(first_sends ? 0 : 1, 0), piece(first_sends ? 1 : 0, 0));
      return;
    }
  }
}

}  // namespace

std::string text_of(const std::exception& error) {
  const std::string text = error.what();
  return text.empty() ? "an exception without a text" : text;
}

CallName name_of(const Call& call, int rank) {
  if (call.kind == CallKind::send) return {rank, call.peer, call.number};
  if (call.kind == CallKind::recv) return {call.peer, rank, call.number};
  return {-1, call.kind == CallKind::exchange ? -2 : -1, call.number};
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
  switch (broken.reported_by) {
    case ReportedBy::this_member:
      return nesting<CommError>(broken.cause, text);
    case ReportedBy::another:
      return nesting<PeerError>(broken.cause, text);
    case ReportedBy::aborter:
      return nesting<AbortError>(broken.cause, text);
  }
  return broken.cause;
}

}  // namespace

std::exception_ptr Breakage::error(const std::string& what) const { return error_of(what + ": " + why, *this); }
std::exception_ptr Breakage::error_of_exchange() const {
  return why.find("exchange") == std::string::npos ? error("exchange") : error_of(why, *this);
}

void Exchange::fail(const Breakage& why) { done(why.error(call.describe())); }

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
  if (ms == 0) return std::to_string(time.count()) + " ns";
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

std::chrono::nanoseconds whole_seconds(std::chrono::nanoseconds time) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(time);
  return whole.count() > 0 ? std::chrono::nanoseconds(whole) : time;
}

namespace {

std::string list_of(const std::vector<int>& ranks, const std::vector<std::string>& remarks = {}) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    if (!remarks.empty()) text += " (" + remarks[i] + ")";
  }
  return text;
}

}  // namespace

void log_waiting(const Waiting& waiting) {
  log_warning(list_of(waiting.ranks) + (waiting.ranks.size() == 1 ? " waits " : " wait ") +
              seconds(whole_seconds(waiting.time)) + " in " + waiting.what + ", for " +
              list_of(waiting.missing, waiting.remarks));
}

Breakage reason_to_fail(std::span<const PartOfRank> parts) {
  const Call& first = parts.front().exchange->call;
  for (const auto& [rank, part] : parts.subspan(1)) {
    if (part->call.fits(first)) continue;
    return {.why = "rank " + std::to_string(parts.front().rank) + " calls " + first.describe() + ", but rank " +
                   std::to_string(rank) + " calls " + part->call.describe()};
  }
  for (const auto& [rank, part] : parts) {
    if (!part->failure.empty()) return operand_failed(rank, part->failure, part->origin);
  }
  return {};
}

void finish(std::span<const PartOfRank> parts) {
  Breakage failed = reason_to_fail(parts);
  if (!failed && !parts.front().exchange->pieces.empty()) {
    try {
      compute(parts);
    } catch (const std::exception& error) {
      failed = {.why = text_of(error)};
    }
  }
  for (const PartOfRank& part : parts) {
    if (failed) {
      part.exchange->fail(failed);
    } else {
      part.exchange->done();
    }
  }
}

}  // namespace windrow::comm
