// Groups whose calls take virtual time: schedules of many devices, on one thread of one machine.
//
//   windrow::VirtualClock clock;  // virtual_time.h
//   const windrow::SimulatedGroup group(clock, 1024, {.bandwidth = 12.5e9, .latency = 5us});
//   group[rank].all_reduce(gradients[rank]);
//   clock.run();
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "windrow/comm/communicator.h"
#include "windrow/comm/internal/virtual_time.h"

namespace windrow {

/// How long the parts of a call take, in the terms of LogGP (Alexandrov et al. 1995). A part occupies the network for
/// its gaps and its transfer; the next part follows, while the latency of this one passes. With N members, gap g,
/// bandwidth B, latency L and a part of S bytes:
///
///   ring   gaps 2 (N - 1) g,        transfer 2 (N - 1) / N * S / B,  latency 2 (N - 1) L     (Patarasuk and Yuan 2009)
///   tree   gaps 2 ceil(log2(N)) g,  transfer 2 S / B,                latency 2 ceil(log2(N)) L   (up and down, piped)
///
/// A value.
struct NetworkModel {
  enum class Algorithm : std::uint8_t { ring, tree };
  using Time = VirtualClock::Time;

  Algorithm algorithm = Algorithm::ring;
  double bandwidth = 12.5e9;            ///< bytes per second of a member's link, in each direction
  Time latency{5000};                   ///< of a message between two members
  Time gap{200};                        ///< for which a message occupies its sender, besides its bytes
  std::size_t window_bytes = 4u << 20;  ///< see MpiOptions

  int messages(int members) const;  ///< the number of messages of a part, one after the other
  Time gaps(int members) const;
  Time transfer(int members, std::size_t bytes) const;
  Time delay(int members) const;
};

/// The use of the network so far. A value.
struct NetworkUse {
  std::uint64_t calls = 0, parts = 0;
  NetworkModel::Time transfer{0};  ///< sum over parts
  NetworkModel::Time busy{0};      ///< time with at least one part under way
};

/// A group on one simulated network, with a device for each member. Only all_reduce is simulated; other calls fail.
/// Calls begin as those of MpiWorld do, with the same queue for those with a priority or parts; announcements and
/// decisions take no time. No element is read or written, and tensors need no memory: Device::memory gives places that
/// must not be touched. exchange() assumes that all members pass the same numbers: it returns size() copies of those of
/// this member.
///
/// A handle of the communicators. The clock must live longer.
class SimulatedGroup {
 public:
  SimulatedGroup(VirtualClock& clock, int size, const NetworkModel& network);

  int size() const { return static_cast<int>(members_.size()); }
  const Communicator& operator[](int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  NetworkUse use() const;

 private:
  class Network;
  class Member;
  std::shared_ptr<Network> network_;
  std::vector<Communicator> members_;
};

}  // namespace windrow
