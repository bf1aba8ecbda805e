#include "program/options/devices.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "program/commands/commands.h"
#include "program/output/program.h"
#include "windrow/engine/internal/system_limits.h"
#include "windrow/training/record.h"

namespace windrow::program {
namespace {

const std::string cuda_prefix = "cuda:";

constexpr std::pair<const char*, cuda::Levels> levels[] = {{"automatic", cuda::Levels::automatic},
                                                           {"launches", cuda::Levels::launches},
                                                           {"together", cuda::Levels::together},
                                                           {"groups", cuda::Levels::groups}};
constexpr std::pair<const char*, cuda::Precision> precisions[] = {
    {"float32", cuda::Precision::float32}, {"tf32", cuda::Precision::tf32}, {"bf16", cuda::Precision::bf16}};

template <class Values>
std::vector<std::string> names_of(const Values& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.emplace_back(name);
  return names;
}
/// The value of a name in the list.
template <class Values>
auto value_of(const Values& values, const std::string& name) {
  return std::ranges::find_if(values, [&](const auto& one) { return one.first == name; })->second;
}

double gib(std::uint64_t bytes) { return static_cast<double>(bytes) / static_cast<double>(std::size_t{1} << 30); }

/// The part of a container's memory that tensors may take. The rest is for data sets, graphs and the program itself.
std::uint64_t share_for_tensors(std::uint64_t bytes) { return bytes / 10 * 9; }

void print_devices_as_json() {
  print_record(
      Record().set("device", "cpu").set("hardware_threads", std::max(1u, std::thread::hardware_concurrency())));
  try {
    for (const cuda::DeviceInfo& info : cuda::list_devices()) {
      Record record;
      record.set("device", cuda_prefix + std::to_string(info.number));
      if (info.problem.empty()) {
        record.set("architecture", info.architecture).set("memory", info.memory).set("name", info.name);
      } else {
        record.set("problem", info.problem);
      }
      print_record(record);
    }
  } catch (const Error& e) {
    print_record(Record().set("device", "cuda").set("problem", e.what()));
  }
}

void print_devices() {
  print("device   architecture     memory  name\n");
  print("cpu      %-12s  %9s  %u hardware threads\n", "-", "-", std::max(1u, std::thread::hardware_concurrency()));
  const SystemLimits limits = system_limits();
  if (limits.cpus) {
    print("         limit of %g CPUs in %s: %d workers by default\n", limits.cpus->limit, limits.cpus->file.c_str(),
          limits.threads());
  }
  if (limits.memory) {
    print("         limit of %.1f GiB in %s: %.1f GiB for tensors by default\n", gib(limits.memory->limit),
          limits.memory->file.c_str(), gib(share_for_tensors(limits.memory->limit)));
  }
  try {
    for (const cuda::DeviceInfo& info : cuda::list_devices()) {
      const std::string name = cuda_prefix + std::to_string(info.number);
      if (!info.problem.empty()) {
        print("%-7s  cannot be used: %s\n", name.c_str(), info.problem.c_str());
        continue;
      }
      print("%-7s  %-12s  %5.1f GiB  %s\n", name.c_str(), info.architecture.c_str(), gib(info.memory),
            info.name.c_str());
    }
  } catch (const Error& e) {
    print("%s\n", e.what());
  }
}

}  // namespace

bool is_device(const std::string& name, const std::string& kind) {
  const std::string number = name.substr(std::min(kind.size(), name.size()));
  return name.starts_with(kind) && !number.empty() && number.size() <= 4 &&
         number.find_first_not_of("0123456789") == std::string::npos;
}

Check device_name() {
  const std::string expected = "cpu or cuda:N; windrow devices lists them";
  return accept("NAME", expected, "; expected " + expected,
                [](const std::string& text) { return text == "cpu" || is_device(text, cuda_prefix); });
}

void add_device_flags(CLI::App& command, DeviceFlags& to) {
  flag(command, "--device", to.device, "Device to compute on", device_name());
  flag(command, "--precision", to.precision, "How a CUDA device rounds the operands of products",
       one_of(names_of(precisions)));
}

void add_memory_flag(CLI::App& command, DeviceFlags& to) {
  flag(command, "--memory-limit", to.memory_limit,
       "The most bytes of the device's memory for tensors; minibatches are computed one at a time if it is tight; 0: "
       "no limit, or nine tenths of the container's on the host",
       whole_number(0, std::int64_t{1} << 48));
}

void add_levels_flags(CLI::App& command, DeviceFlags& to) {
  flag(command, "--levels", to.levels, "How a CUDA device computes levels: in separate launches, or all in one kernel",
       one_of(names_of(levels)));
  toggle(command, "--graphs", to.graphs, "Issue the calls of a pass as one CUDA graph");
}

Device open_device(Engine& engine, const DeviceFlags& flags) {
  if (flags.device == "cpu") {
    const auto of_container = flags.memory_limit == 0 ? system_limits().memory : std::nullopt;
    const std::size_t limit = of_container              ? share_for_tensors(of_container->limit)
                              : flags.memory_limit == 0 ? unlimited
                                                        : flags.memory_limit;
    if (flags.precision == "float32") return host_device(engine, limit);
    throw MisuseError("device cpu with --precision " + flags.precision + "; expected a device of CUDA");
  }
  const cuda::DeviceOptions options{.memory_limit = flags.memory_limit,
                                    .levels = value_of(levels, flags.levels),
                                    .graphs = flags.graphs,
                                    .precision = value_of(precisions, flags.precision)};
  return cuda::open_device(engine, std::stoi(flags.device.substr(cuda_prefix.size())), options).device;
}

void add_devices(CLI::App& app) {
  CLI::App& command =
      *app.add_subcommand("devices", "Lists the devices of this machine; or says why none of CUDA can be used.");
  const auto json = std::make_shared<bool>(false);
  toggle(command, "--json", *json, "Prints a line of JSON for each device");
  command.callback([json] { *json ? print_devices_as_json() : print_devices(); });
}

}  // namespace windrow::program
