// The number of bytes that pending ops hold.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

namespace windrow {

/// All members may be called by any thread. This class never blocks; back_pressure.cc decides who waits for room.
class PendingBytes {
 public:
  /// An owner of some of the bytes, which count until it ends.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept : of_(std::exchange(other.of_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&&) = delete;
    ~Share() {
      if (of_ != nullptr) of_->sum_.fetch_sub(bytes_, std::memory_order_relaxed);
    }

   private:
    friend PendingBytes;
    Share(PendingBytes& of, std::uint64_t bytes) : of_(&of), bytes_(bytes) {}

    PendingBytes* of_ = nullptr;
    std::uint64_t bytes_ = 0;
  };

  explicit PendingBytes(std::uint64_t limit) : limit_(limit) {}
  PendingBytes(const PendingBytes&) = delete;
  PendingBytes& operator=(const PendingBytes&) = delete;

  std::uint64_t sum() const { return sum_.load(std::memory_order_relaxed); }

  /// To be called in a forked child, in which nothing is pending. Bytes of pushes by other threads no longer count.
  void forget_threads() { sum_.store(0, std::memory_order_relaxed); }

  /// The number of bytes that must be released before try_take_again() succeeds; at least 1.
  std::uint64_t too_many() const { return std::max(sum(), limit_ / 2 + 1) - limit_ / 2; }

  /// An op counts as this many bytes at most, so that the sum does not overflow.
  static constexpr std::uint64_t most_of_op = std::uint64_t{1} << 44;

  /// Takes the bytes even if there is no room.
  Share take(std::uint64_t bytes) {
    bytes = std::min(bytes, most_of_op);
    sum_.fetch_add(bytes, std::memory_order_relaxed);
    return {*this, bytes};
  }
  /// Takes the bytes if the sum stays within the limit, or no other bytes are pending.
  std::optional<Share> try_take(std::uint64_t bytes) { return try_take(bytes, limit_); }
  /// For a thread that try_take() has refused. As try_take(), but also requires that half of the limit is free, so that
  /// threads are not held back one op at a time.
  std::optional<Share> try_take_again(std::uint64_t bytes) { return try_take(bytes, limit_ / 2); }

 private:
  std::optional<Share> try_take(std::uint64_t bytes, std::uint64_t most_before) {
    bytes = std::min(bytes, most_of_op);
    std::uint64_t sum = sum_.load(std::memory_order_relaxed);
    while (sum == 0 || (sum <= most_before && bytes <= limit_ - sum)) {
      if (sum_.compare_exchange_weak(sum, sum + bytes, std::memory_order_relaxed)) return Share(*this, bytes);
    }
    return std::nullopt;
  }

  const std::uint64_t limit_;
  std::atomic<std::uint64_t> sum_{0};  // relaxed: orders nothing, since ops are ordered by their variables
};

}  // namespace windrow
