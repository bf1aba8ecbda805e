// Communicators as Python sees them.
#pragma once
#include <memory>
#include <mutex>

#include "python.h"
#include "windrow/comm/communicator.h"

namespace windrow::python {

/// A communicator, with a mutex that lets one thread at a time use it without the GIL.
struct Member {
  explicit Member(Communicator of) : communicator(std::move(of)) {}

  const Communicator communicator;
  std::timed_mutex mutex;
};
using SharedMember = std::shared_ptr<Member>;

struct CommunicatorObject {
  SharedMember member;
};

/// This thread's turn with a communicator: locks its mutex. Begins with the GIL, and releases it while it waits.
class MemberTurn {
 public:
  explicit MemberTurn(Member& member);
  ~MemberTurn() { mutex_.unlock(); }
  MemberTurn(const MemberTurn&) = delete;
  MemberTurn& operator=(const MemberTurn&) = delete;

 private:
  std::timed_mutex& mutex_;
};

}  // namespace windrow::python
