#include "devices.h"

#include <algorithm>
#include <thread>

#include "program.h"

namespace windrow::program {
namespace {

constexpr std::string_view cuda_prefix = "cuda:";

void print_devices() {
  print("device   architecture     memory  name\n");
  print("cpu      %-12s  %9s  %u hardware threads\n", "-", "-", std::max(1u, std::thread::hardware_concurrency()));
  try {
    for (const cuda::DeviceInfo& info : cuda::list_devices()) {
      const std::string name = std::string(cuda_prefix) + std::to_string(info.number);
      print("%-7s  %-12s  %5.1f GiB  %s\n", name.c_str(), info.architecture.c_str(),
            static_cast<double>(info.memory) / static_cast<double>(std::size_t{1} << 30), info.name.c_str());
    }
  } catch (const Error& e) {
    print("%s\n", e.what());
  }
}

}  // namespace

Check device_name() {
  const std::string expected = "cpu or cuda:N; windrow devices lists them";
  return {"NAME", expected, [expected](std::string& text) -> std::string {
            const std::string_view number = std::string_view(text).substr(std::min(cuda_prefix.size(), text.size()));
            const bool numbered = !number.empty() && number.size() <= 4 &&
                                  std::ranges::all_of(number, [](char c) { return '0' <= c && c <= '9'; });
            if (text == "cpu" || (text.starts_with(cuda_prefix) && numbered)) return "";
            return "'" + text + "'; expected " + expected;
          }};
}

Device open_device(Engine& engine, const std::string& name, const cuda::DeviceOptions& options) {
  if (name == "cpu") return host_device(engine);
  return cuda::open_device(engine, std::stoi(name.substr(cuda_prefix.size())), options).device;
}

std::function<void()> add_devices(CLI::App& app) {
  app.add_subcommand("devices", "Lists the devices of this machine; or says why none of CUDA can be used.");
  return print_devices;
}

}  // namespace windrow::program
