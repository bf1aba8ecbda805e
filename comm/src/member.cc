#include "windrow/comm/internal/member.h"

#include <algorithm>
#include <future>

#include "windrow/engine/internal/engine_use.h"

namespace windrow::comm {

std::string_view to_string(CallKind kind) {
  constexpr std::string_view names[] = {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
                                        "all_to_all", "send",   "recv",      "exchange"};
  return names[static_cast<std::size_t>(kind)];
}

namespace {

bool combines(CallKind kind) {
  return kind == CallKind::all_reduce || kind == CallKind::reduce || kind == CallKind::reduce_scatter;
}

std::string_view to_string(Combine combine) {
  constexpr std::string_view names[] = {"sum", "mean", "max"};
  return names[static_cast<std::size_t>(combine)];
}

}  // namespace

std::size_t Call::bytes() const {
  Index count = 0;
  for (const Shape& shape : shapes) count += shape.rows * shape.width;
  return 4 * static_cast<std::size_t>(count);
}

bool Call::fits(const Call& other) const {
  if (elements != other.elements || shapes != other.shapes) return false;
  if (kind == CallKind::send) return other.kind == CallKind::recv;
  if (kind == CallKind::recv) return other.kind == CallKind::send;
  if (priority != other.priority || part_bytes != other.part_bytes) return false;
  return kind == other.kind && out_of_place == other.out_of_place && peer == other.peer &&
         (!combines(kind) || combine == other.combine);
}

std::string Call::describe() const {
  if (kind == CallKind::exchange)
    return "exchange of " + std::to_string(bytes() / 8) + " numbers, call " + std::to_string(number);
  std::string text(comm::to_string(kind));
  if (!name.text().empty() && name.text() != text) text += " '" + std::string(name.text()) + "'";
  text += " (";
  if (combines(kind)) text += std::string(to_string(combine)) + " of ";
  text += elements == Elements::float32 ? "float32" : "int32";
  constexpr std::size_t most = 3;
  for (std::size_t i = 0; i < shapes.size() && i < most; ++i) {
    text += (i == 0 ? " " : ", ") + std::to_string(shapes[i].rows) + " x " + std::to_string(shapes[i].width);
  }
  if (shapes.size() > most) text += ", ... " + std::to_string(shapes.size()) + " tensors";
  if (out_of_place) text += ", out of place";
  if (kind == CallKind::reduce || kind == CallKind::broadcast) text += ", root " + std::to_string(peer);
  if (priority != 0) text += ", priority " + std::to_string(priority);
  if (part_bytes != 0) text += ", in parts of " + std::to_string(part_bytes) + " bytes";
  if (kind == CallKind::send) text += ", to rank " + std::to_string(peer);
  if (kind == CallKind::recv) text += ", from rank " + std::to_string(peer);
  return text + "), call " + std::to_string(number);
}

std::string Call::describe_for_others(int rank) const {
  if (kind == CallKind::exchange) return "exchange";
  if (kind < CallKind::send) return describe();
  Call other = *this;
  other.kind = kind == CallKind::send ? CallKind::recv : CallKind::send;
  other.peer = rank;
  return other.describe();
}

void require_countable(CallKind kind, Index elements, std::size_t part_bytes, Index most) {
  const bool in_parts = kind < CallKind::all_gather;
  const Index at_a_time =
      in_parts && part_bytes > 0 ? std::min(elements, static_cast<Index>(part_bytes / 4)) : elements;
  if (at_a_time <= most) return;
  throw MisuseError(std::string(to_string(kind)) + ": " + std::to_string(at_a_time) + " elements " +
                    (kind < CallKind::all_gather || kind >= CallKind::send ? "at a time" : "of each member") +
                    "; expected at most " + std::to_string(most) + ", as MPI counts" +
                    (in_parts ? ", or parts of so many (CollectiveOptions::part_bytes)" : ""));
}

namespace {

/// The result for the caller of exchange(), which makes the exception: so no thread destroys an exception that another
/// one reads.
struct Exchanged {
  std::vector<std::int64_t> numbers = {};
  Breakage broken = {};
};
/// Keeps the numbers, because transfers that cannot be cancelled still use them.
struct PartOfExchange final : Exchange {
  std::vector<std::int64_t> own, all;
  std::promise<Exchanged> result;

  void done(std::exception_ptr) override { result.set_value({.numbers = std::move(all)}); }
  void fail(const Breakage& why) override { result.set_value({.broken = why}); }
};

}  // namespace

std::vector<std::int64_t> Member::exchange(std::span<const std::int64_t> numbers) {
  auto part = std::make_unique<PartOfExchange>();
  part->own.assign(numbers.begin(), numbers.end());
  part->all.resize(numbers.size() * static_cast<std::size_t>(size()));
  const auto width = static_cast<Index>(2 * numbers.size());
  part->pieces = {{reinterpret_cast<std::byte*>(part->own.data()), 1, width, 4 * width},
                  {reinterpret_cast<std::byte*>(part->all.data()), size(), width, 4 * width}};
  part->call = {.kind = CallKind::exchange, .elements = Elements::int32, .shapes = {{1, width}}};
  auto result = part->result.get_future();
  part->call.number = number(CallKind::exchange, 0);
  take(std::move(part));
  try {
    while (result.wait_for(LookWhileWaiting::interval) != std::future_status::ready) LookWhileWaiting::look();
  } catch (...) {
    // The others may have all numbers, and may not. So members no longer agree about what has been done.
    break_up({.why = "rank " + std::to_string(rank()) + " has left a wait for the others in exchange",
              .reported_by = ReportedBy::aborter});
    throw;
  }
  Exchanged exchanged = result.get();
  if (exchanged.broken) std::rethrow_exception(exchanged.broken.error_of_exchange());
  return std::move(exchanged.numbers);
}

std::uint64_t Member::number(CallKind kind, int peer) {
  if (kind < CallKind::send) return next_[{CallKind::all_reduce, 0}]++;
  return next_[{kind, peer}]++;
}

void Member::not_made(CallKind kind, int peer) noexcept {
  --next_.at(kind < CallKind::send ? std::pair(CallKind::all_reduce, 0) : std::pair(kind, peer));
}

std::shared_ptr<void> CallClock::begin() {
  {
    const std::lock_guard lock(mutex_);
    if (under_way_++ == 0) since_ = Clock::now();
  }
  // Not under the lock: if there is no memory, the call counts as ended here.
  return {nullptr, [clock = shared_from_this()](void*) {
            const std::lock_guard locked(clock->mutex_);
            if (--clock->under_way_ == 0) clock->total_ += Clock::now() - clock->since_;
          }};
}

std::chrono::nanoseconds CallClock::total() const {
  const std::lock_guard lock(mutex_);
  return under_way_ == 0 ? total_ : total_ + (Clock::now() - since_);
}

}  // namespace windrow::comm
