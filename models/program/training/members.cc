#include "program/training/members.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <set>
#include <thread>
#include <vector>

#include "program/output/program.h"
#include "windrow/comm/local.h"
#include "windrow/comm/mpi.h"
#include "windrow/comm/nccl.h"

namespace windrow::program {
namespace {

constexpr std::size_t most_devices = 64;

std::vector<std::string> names_in(const std::string& list) {
  return list.empty() ? std::vector<std::string>() : words_of(list);
}

/// "cpu:" or "cuda:" with a number below 64, in one form.
bool is_member(const std::string& name) {
  for (const std::string kind : {"cpu:", "cuda:"}) {
    if (!is_device(name, kind)) continue;
    const std::size_t number = std::stoul(name.substr(kind.size()));
    return number < most_devices && name == kind + std::to_string(number);
  }
  return false;
}

Check device_names() {
  const std::string expected = "cpu:N or cuda:N, with different numbers below 64, separated by commas";
  return accept("NAMES", expected, "; expected " + expected, [](const std::string& text) {
    const std::vector<std::string> names = words_of(text);
    const std::set<std::string> different(names.begin(), names.end());
    return different.size() == names.size() && names.size() <= most_devices && std::ranges::all_of(names, is_member);
  });
}

std::vector<Device> open_devices(Engine& engine, const DeviceFlags& flags, const std::vector<std::string>& names) {
  std::vector<Device> devices;
  const auto on_host = std::ranges::count_if(names, [](const std::string& name) { return name.starts_with("cpu:"); });
  std::vector<Device> of_host;
  if (on_host > 0) of_host = host_devices(engine, static_cast<int>(on_host));
  std::size_t next = 0;
  for (const std::string& name : names) {
    DeviceFlags one = flags;
    one.device = name.starts_with("cpu:") ? "cpu" : name;
    devices.push_back(one.device == "cpu" ? of_host[next++] : open_device(engine, one));
    devices.back().name = name;
  }
  return devices;
}

/// The error that a program should report: not one of a member that fails because another one did.
std::exception_ptr first_cause(const std::vector<std::exception_ptr>& errors) {
  std::exception_ptr first;
  for (const std::exception_ptr& error : errors) {
    if (!error) continue;
    if (!is<CommError>(error) && !is<ErrorsPrinted>(error)) return error;
    if (!first) first = error;
  }
  return first;
}

/// The communicators of all members of this process, and what combines their tensors.
struct MemberGroup {
  std::vector<Communicator> members;
  std::string collectives;
};

/// Uses NCCL if all are CUDA devices and NCCL is installed; otherwise the host combines.
MemberGroup group_of(const std::vector<Device>& devices, std::chrono::seconds patience) {
  const bool of_cuda = std::ranges::none_of(devices, &Device::on_host);
  const std::string why_not = of_cuda ? NcclGroup::unavailable() : "";
  const auto made = [&](const auto& group, const std::string& collectives) {
    MemberGroup all{{}, collectives};
    for (int rank = 0; rank < group.size(); ++rank) all.members.push_back(group[rank]);
    return all;
  };
  if (of_cuda && why_not.empty()) return made(NcclGroup(devices, {.patience = patience}), "NCCL");
  return made(LocalGroup(devices, {.patience = patience}), why_not.empty() ? "the host" : "the host; " + why_not);
}

int run_threads(const MemberGroup& group, const std::function<int(const Member&)>& body) {
  std::vector<std::exception_ptr> errors(group.members.size());
  int result = 0;
  const auto run = [&](std::size_t number) {
    const Communicator& own = group.members[number];
    const Member member{own.device(), own, own.rank() == 0, group.collectives};
    const Silence silence(number > 0);
    try {
      const int returned = body(member);
      if (number == 0) result = returned;
    } catch (...) {
      errors[number] = std::current_exception();
      // For these errors another member reports the cause, and an abort could arrive before it.
      if (is<ErrorsPrinted>(errors[number]) || is<PeerError>(errors[number])) return;
      own.abort("rank " + std::to_string(own.rank()) + " has failed: " + why(errors[number]));
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t number = 1; number < group.members.size(); ++number) threads.emplace_back(run, number);
  run(0);
  for (std::thread& thread : threads) thread.join();
  if (const std::exception_ptr error = first_cause(errors)) std::rethrow_exception(error);
  return result;
}

/// A group that NCCL connects: each process has a device of its own, and the members find each other by MPI.
Communicator nccl_group(MpiWorld& world, Engine& engine, const Member& process, DeviceFlags flags,
                        std::chrono::seconds patience) {
  const Communicator announcements = world.group(process.device);
  std::optional<Device> device;
  together(process, [&] {
    if (const std::string none = NcclGroup::unavailable(); !none.empty()) throw MisuseError("--comm nccl: " + none);
    if (flags.device == "cpu") flags.device = "cuda:" + std::to_string(MpiWorld::started().on_node);
    device.emplace(open_device(engine, flags));
  });
  return NcclGroup(*device, *process.group, announcements, {.patience = patience})[world.rank()];
}

void require_nestable(const MemberFlags& flags) {
  const auto refuse = [](const std::string& flag, bool given) {
    if (given) throw MisuseError("--devices, --comm and " + flag + "; expected only two of them");
  };
  refuse("--sharded", flags.sharded);
  refuse("--compress", flags.compress != "none");
  if (flags.comm == "mpi") return;
  throw MisuseError("--devices and --comm " + flags.comm +
                    "; expected --comm mpi, or --device of each process instead of --devices");
}

/// Several devices in each process.
MemberGroup nested_group(MpiWorld& world, Engine& engine, const Member& process, const DeviceFlags& flags,
                         const MemberFlags& members) {
  // The devices of a process wait longer, so that the error names the missing process.
  const auto patience = 2 * std::chrono::seconds(members.timeout) + std::chrono::seconds(10);
  std::optional<MemberGroup> inner;
  together(process, [&] {
    require_nestable(members);
    inner = group_of(open_devices(engine, flags, names_in(members.devices)), patience);
  });
  const NestedGroup nested(inner->members, world.group(inner->members.front().device()));
  MemberGroup group{{}, "MPI between processes, and within each by " + inner->collectives};
  for (int number = 0; number < nested.local_size(); ++number) group.members.push_back(nested[number]);
  return group;
}

/// Throws MisuseError at all processes if their groups would be of different kinds. Other flags are compared later, by
/// these groups.
void require_same_groups(const Member& process, const MemberFlags& flags) {
  const std::vector<std::string> kinds = {"mpi", "nccl"};
  const auto kind = std::ranges::find(kinds, flags.comm) - kinds.begin();
  const auto all = process.group->exchange(std::vector<std::int64_t>{kind, std::ssize(names_in(flags.devices))});
  const auto count = [](std::int64_t devices) { return devices == 0 ? std::string("none") : std::to_string(devices); };
  for (std::size_t rank = 1; rank < all.size() / 2; ++rank) {
    const bool same_kind = all[2 * rank] == all[0];
    if (same_kind && all[2 * rank + 1] == all[1]) continue;
    if (!process.leads) throw ErrorsPrinted();
    const std::string other = ", but rank " + std::to_string(rank) + " has ";
    if (same_kind) {
      throw MisuseError("--devices: rank 0 has " + count(all[1]) + other + count(all[2 * rank + 1]) +
                        "; expected equally many");
    }
    throw MisuseError("--comm: rank 0 has " + kinds[static_cast<std::size_t>(all[0])] + other +
                      kinds[static_cast<std::size_t>(all[2 * rank])] + "; expected the same");
  }
}

/// The members of this process.
MemberGroup group_in(MpiWorld& world, Engine& engine, const Member& process, const DeviceFlags& flags,
                     const MemberFlags& members) {
  require_same_groups(process, members);
  if (!members.devices.empty()) return nested_group(world, engine, process, flags, members);
  if (members.comm != "mpi") {
    return {{nccl_group(world, engine, process, flags, std::chrono::seconds(members.timeout))}, "NCCL"};
  }
  std::optional<Device> device;
  together(process, [&] { device.emplace(open_device(engine, flags)); });
  return {{world.group(*device)}, "MPI"};
}

/// The knowledge of a process that failed with this error.
Knows known_by(const std::exception_ptr& error) {
  if (is<ErrorsPrinted>(error) || is<PeerError>(error)) return Knows::nothing;
  return is<CommError>(error) ? Knows::failures : Knows::cause;
}

int run_in_world(Engine& engine, const DeviceFlags& flags, const MemberFlags& members,
                 const std::function<int(const Member&)>& body) {
  MpiWorld world({.patience = std::chrono::seconds(members.timeout)});
  if (const int started = MpiWorld::started().size; started > 1 && world.size() == 1) {
    throw MisuseError("--comm " + members.comm + ": " + std::to_string(started) +
                      " processes were started together, but MPI finds each of them alone; expected the mpirun of the "
                      "MPI library that windrow was built with");
  }
  const Silence silence(world.rank() > 0);
  const Device host = host_device(engine);
  std::optional<Communicator> processes, failed_processes;
  try {
    processes = world.group(host);
    failed_processes = world.group(host, std::chrono::seconds(1));
    const Member process{host, processes, world.rank() == 0};
    return run_threads(group_in(world, engine, process, flags, members), body);
  } catch (...) {
    const std::exception_ptr failed = std::current_exception();
    const Knows known = known_by(failed);
    const Heard heard = failed_processes ? agree_who_tells(*failed_processes, known) : Heard{};
    // If the processes could not agree, the other one may not know the cause.
    const bool told = heard.told && (heard.agreed || known != Knows::cause);
    const bool has_text = known != Knows::nothing || (!heard.missing.empty() && !is<ErrorsPrinted>(failed));
    if (told || !has_text) throw ErrorsPrinted();
    if (known == Knows::cause) throw printed(failed);
    std::string text = why(failed);
    if (members.comm == "nccl" && !heard.missing.empty()) text += "; " + heard.missing;
    throw printed(std::make_exception_ptr(CommError(naming_rank(world.rank(), text))));
  }
}

int run_process(Engine& engine, const DeviceFlags& flags, const MemberFlags& members,
                const std::function<int(const Member&)>& body) {
  if (!MpiWorld::under_mpirun()) {
    throw MisuseError("--comm " + members.comm + ": not started by mpirun; expected mpirun -n PROCESSES windrow ...");
  }
  try {
    return run_in_world(engine, flags, members, body);
  } catch (const ErrorsPrinted& by) {
    // mpirun ends all processes when the first one fails: the one that prints the error gets time to do so.
    if (!by.here) std::this_thread::sleep_for(std::chrono::seconds(2));
    throw;
  }
}

}  // namespace

void add_member_flags(CLI::App& command, MemberFlags& to) {
  flag(command, "--devices", to.devices,
       "Devices that train together, each on its part of every minibatch; with --comm mpi, those of each process",
       device_names())
      ->default_str("");
  flag(command, "--comm", to.comm,
       "How the processes that mpirun has started communicate; none: each trains alone. With nccl each process has a "
       "CUDA device of its own, by default the one with its local rank",
       one_of({"none", "mpi", "nccl"}));
  flag(command, "--comm-timeout", to.timeout, "Seconds that a collective waits for a missing device or process",
       whole_number(1, 86400));
  flag(command, "--compress", to.compress,
       "Compression of gradients between members: none, or rounding to 16 bits with error feedback",
       one_of({"none", "bfloat16"}));
  flag(command, "--local-steps", to.local_steps,
       "Local steps between averagings of the parameters (local SGD); 1: gradients are summed in each step",
       whole_number(1, 1 << 20));
  toggle(command, "--sharded", to.sharded,
         "Shard the optimiser's states over the members (ZeRO stage 1); the results are the same, up to rounding "
         "with --comm");
}

void set_members(TrainerOptions& options, const MemberFlags& flags) {
  const bool compress = flags.compress != "none", local = flags.local_steps > 1;
  const auto refuse = [](bool refused, const std::string& why) {
    if (refused) throw MisuseError(why);
  };
  refuse(local && compress, "--local-steps and --compress; expected one of both");
  refuse(local && options.optimiser.accumulate > 1, "--local-steps and --accumulate; expected one of both");
  refuse(flags.sharded && local, "--sharded and --local-steps; expected one of both");
  refuse(flags.sharded && compress, "--sharded and --compress; expected one of both");
  if (compress) options.data_parallel.compression.form = Compression::Form::bfloat16;
  options.local_steps = flags.local_steps;
  options.sharded = flags.sharded;
}

int run_members(Engine& engine, const DeviceFlags& device, const MemberFlags& flags,
                const std::function<int(const Member&)>& body) {
  const std::chrono::seconds patience(flags.timeout);
  if (!flags.devices.empty()) {
    if (device.device != "cpu") throw MisuseError("--device and --devices; expected one of both");
    if (device.memory_limit != 0) throw MisuseError("--memory-limit and --devices; expected one of both");
  }
  if (flags.comm != "none") return run_process(engine, device, flags, body);
  if (flags.devices.empty()) {
    const MemberFlags unused;
    for (const auto& [flag, given] :
         {std::pair("--compress", flags.compress != unused.compress),
          std::pair("--local-steps", flags.local_steps != unused.local_steps), std::pair("--sharded", flags.sharded),
          std::pair("--comm-timeout", flags.timeout != unused.timeout)}) {
      if (given) throw MisuseError(std::string(flag) + "; expected --devices or --comm mpi, too");
    }
    return body({open_device(engine, device)});
  }
  return run_threads(group_of(open_devices(engine, device, names_in(flags.devices)), patience), body);
}

std::string members_text(const MemberFlags& flags, const Member& member) {
  if (!member.group) return {};
  const auto size = static_cast<std::size_t>(member.group->size());
  const std::string by = "; gradients are summed by " + member.collectives;
  if (flags.comm == "none") return counted(size, "device") + " of one process: " + flags.devices + by;
  if (flags.devices.empty()) return std::to_string(size) + (size == 1 ? " process" : " processes") + by;
  const std::size_t each = names_in(flags.devices).size();
  return counted(size, "device") + ", " + std::to_string(each) + " in each of " + std::to_string(size / each) +
         " processes: " + flags.devices + by;
}

}  // namespace windrow::program
