// Makes allocations and thread starts fail on purpose. A program that links faults.cc has operator new, mmap (not
// under ThreadSanitizer) and pthread_create replaced.
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

/// While it exists, allocations are counted and fail according to the plan. Only one may exist at a time.
class Armed {
 public:
  explicit Armed(const Plan& plan);
  ~Armed();
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;
};

/// Whether an allocation has failed since the last Armed was created.
bool struck();

/// For code that is not under test: while it exists, allocations of this thread neither count nor fail.
class Sheltered {
 public:
  Sheltered();
  ~Sheltered();
  Sheltered(const Sheltered&) = delete;
  Sheltered& operator=(const Sheltered&) = delete;
};

/// Ends the shelter for a section of code under test, within the scope of a Sheltered.
class Exposed {
 public:
  Exposed();
  ~Exposed();
  Exposed(const Exposed&) = delete;
  Exposed& operator=(const Exposed&) = delete;

 private:
  const int sheltered_;
};

/// The calls of operator new so far, by all threads, and the bytes that they requested. Those of oneDNN count only
/// until the first call of asked().
struct Asked {
  std::int64_t calls, bytes;
};
Asked asked();

/// The number of blocks that have been allocated and not freed.
std::int64_t live_blocks();

/// While it exists, only `but` more threads can be started.
class ThreadsRefused {
 public:
  explicit ThreadsRefused(int but);
  ~ThreadsRefused();
  ThreadsRefused(const ThreadsRefused&) = delete;
  ThreadsRefused& operator=(const ThreadsRefused&) = delete;
};

}  // namespace windrow::testing::faults
