// Training by several members: devices of this process (--devices), or processes (--comm).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "program/options/devices.h"
#include "windrow/comm/communicator.h"
#include "windrow/models/trainer.h"

namespace windrow::program {

/// The values of the flags. A value.
struct MemberFlags {
  std::string devices = {};  ///< names, separated by commas; empty: one member, on the device of --device
  std::string comm = "none";
  int timeout = 600;  ///< seconds
  std::string compress = "none";
  std::size_t local_steps = 1;
  bool sharded = false;
};
void add_member_flags(CLI::App& command, MemberFlags& to);

/// Sets how the members of a group train together. Throws MisuseError for flags that do not fit each other.
void set_members(TrainerOptions& options, const MemberFlags& flags);

/// The group and the role of one member.
struct Member {
  Device device;
  std::optional<Communicator> group = {};  ///< none if there is one member
  bool leads = true;                       ///< whether it prints and saves
  std::string collectives = {};            ///< what combines the tensors of the group, and why a faster way is not used
};

/// Calls `body` for each member of this process, each in a thread of its own, and returns its result for the first one.
/// Only the calling thread of the first process prints. If the body throws for a member, all members fail. Throws
/// MisuseError for devices that cannot be used, for --comm outside mpirun, and for flags that do not go together.
int run_members(Engine& engine, const DeviceFlags& device, const MemberFlags& flags,
                const std::function<int(const Member&)>& body);

/// Describes the members of the group and what combines their tensors; empty without a group.
std::string members_text(const MemberFlags& flags, const Member& member);

/// Calls `step` at all members. If that throws at some of them, together() throws at all: the first of these throws its
/// error, with its rank unless that is 0, and the others throw ErrorsPrinted.
void together(const Member& member, const std::function<void()>& step);

/// Throws MisuseError at all members if they were started with different flags or versions. Flags that say how and
/// where a member runs may differ.
void require_same_flags(const CLI::App& command, const Member& member);

/// Throws MisuseError at all members if the number of one of them, such as a fingerprint, differs from that of rank 0:
/// "rank 1 <what> than rank 0; expected <expected>".
void require_equal(std::int64_t number, const Member& member, const std::string& what, const std::string& expected);

/// Throws MisuseError at all members if their samples differ.
void require_same_data(const Workload& workload, const Member& member);

/// What a process knows about a failure: nothing to report, that others have failed, or why all fail.
enum class Knows : std::int64_t { nothing, failures, cause };
/// The answer that a failing process gets from the others. A value.
struct Heard {
  bool told = false;         ///< another process reports to the user
  bool agreed = false;       ///< all processes agreed, so the reporter has all that is known
  std::string missing = {};  ///< why they could not agree
};

/// Agrees on the process that reports to the user: the lowest rank among those that know most. Each failing process
/// calls it. Waits a second for the others. If one is missing, the lowest rank that waits reports, and names it.
Heard agree_who_tells(const Communicator& processes, Knows own);

}  // namespace windrow::program
