// Groups of groups: several devices in each of several processes.
//
//   windrow::LocalGroup inner(devices);
//   windrow::NestedGroup group({inner[0], inner[1]}, world.group(devices[0]));
//   group[local].all_reduce(gradients[local]);
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <vector>

#include "windrow/comm/communicator.h"

namespace windrow {

/// Each call is one of the members of this process, one of the first members of all processes, and another one of this
/// process: so each process sends and receives as much as with one device. Ranks are those of the first process first.
/// If one of the groups breaks, both do. Give the inner group a longer `patience`, since its members wait while the
/// first one waits for other processes.
///
/// There are all_reduce, broadcast() from the first member of a process, exchange() and barrier(); other calls throw
/// MisuseError. Sums are those of the inner groups, added up as the outer group does it. Errors of the inner group name
/// ranks of that group.
///
/// A handle of the communicators.
class NestedGroup {
 public:
  /// `inner`: all members of a group of this process, by rank. `outer`: the member of this process in a group of all
  /// processes, on the device of inner[0]. Neither is used for anything else. All processes call it; throws CommError
  /// at all of them unless their inner groups have equally many members, and MisuseError where ranks or sizes of
  /// `inner` are not those of a whole group, which is a CommError at the others.
  NestedGroup(const std::vector<Communicator>& inner, const Communicator& outer);

  /// The number of members in this process.
  int local_size() const { return static_cast<int>(members_.size()); }
  /// A member of this process, by its number there. Throws MisuseError for others.
  const Communicator& operator[](int number) const;

 private:
  std::vector<Communicator> members_;
};

}  // namespace windrow
