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

/// What the flags say. A value.
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

/// What one member trains with.
struct Member {
  Device device;
  std::optional<Communicator> group = {};  ///< none if there is one member
  bool leads = true;                       ///< it prints and saves
  std::string collectives = {};            ///< what combines the tensors of the group, and why not something faster
};

/// Calls body for each member of this process, each in a thread of its own, and returns what it returned for the first
/// one. Other threads than the one that calls, and other processes than the first one, print nothing. If the body
/// throws for a member, all members fail. Throws MisuseError for devices that cannot be used, for --comm outside
/// mpirun, and for flags that do not go together.
int run_members(Engine& engine, const DeviceFlags& device, const MemberFlags& flags,
                const std::function<int(const Member&)>& body);

/// What the members of the group are, and what combines their tensors; empty without a group.
std::string members_text(const MemberFlags& flags, const Member& member);

/// Calls step at all members. If it throws at some of them, it throws at all: the error at the first of these, which
/// names its rank unless that is 0, and ErrorsPrinted at the others.
void together(const Member& member, const std::function<void()>& step);

/// Throws MisuseError at all members if they were started with different flags or versions. Those that say how and
/// where a member runs may differ.
void require_same_flags(const CLI::App& command, const Member& member);

/// Throws MisuseError at all members if the number of one of them, such as a fingerprint, differs from that of rank 0:
/// "rank 1 <what> than rank 0; expected <expected>".
void require_equal(std::int64_t number, const Member& member, const std::string& what, const std::string& expected);

/// Throws MisuseError at all members if their samples differ.
void require_same_data(const Workload& workload, const Member& member);

/// What a process knows of a failure: nothing that it should tell, that others have failed, or why all fail.
enum class Knows : std::int64_t { nothing, failures, cause };
/// What a process that fails hears from the others. A value.
struct Heard {
  bool told = false;         ///< another process tells the user
  bool agreed = false;       ///< of all processes, so that it tells what is known
  std::string missing = {};  ///< why they could not agree
};

/// Agrees on the process that tells the user: the one of the lowest rank among those that know most. Each process that
/// fails calls it. Waits a second for the others. If one is missing, it is the lowest rank that waits, and names it.
Heard agree_who_tells(const Communicator& processes, Knows own);

}  // namespace windrow::program
