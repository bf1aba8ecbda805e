// Makes allocations and thread starts fail on purpose. A program that links faults.cc has operator new and
// pthread_create replaced.
#pragma once

#include <cstdint>

namespace windrow::testing::faults {

enum class Where { any_thread, this_thread };
enum class Lasts { once, from_then_on };

/// Which allocation fails, counted from 1.
struct Plan {
  std::uint64_t at = 1;
  Where where = Where::any_thread;
  Lasts lasts = Lasts::once;
};

/// While it lives, allocations are counted and fail by the plan. One at a time.
class Armed {
 public:
  explicit Armed(const Plan& plan);
  ~Armed();
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;
};

/// Whether an allocation has failed since the last Armed was made.
bool struck();

/// What this thread allocates meanwhile is neither counted nor failed: for code that is not under test.
class Sheltered {
 public:
  Sheltered();
  ~Sheltered();
  Sheltered(const Sheltered&) = delete;
  Sheltered& operator=(const Sheltered&) = delete;
};

/// Within a shelter, a span of code under test.
class Exposed {
 public:
  Exposed();
  ~Exposed();
  Exposed(const Exposed&) = delete;
  Exposed& operator=(const Exposed&) = delete;

 private:
  const int sheltered_;
};

/// Calls of operator new so far, by any thread, and how many bytes these asked for.
struct Asked {
  std::int64_t calls, bytes;
};
Asked asked();

/// Blocks that were allocated and not freed yet.
std::int64_t live_blocks();

/// While it lives, so many more threads can be started and no others.
class ThreadsRefused {
 public:
  explicit ThreadsRefused(int but);
  ~ThreadsRefused();
  ThreadsRefused(const ThreadsRefused&) = delete;
  ThreadsRefused& operator=(const ThreadsRefused&) = delete;
};

}  // namespace windrow::testing::faults
