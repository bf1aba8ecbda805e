#include <algorithm>
#include <cmath>
#include <memory>

#include "program/commands/commands.h"
#include "program/options/flags.h"
#include "program/output/program.h"
#include "windrow/training/internal/simulation.h"
#include "windrow/training/record.h"

namespace windrow::program {
namespace {

constexpr double mega = 1e6, giga = 1e9;

/// Parameters of a layer, and its multiplications for one sample.
struct Layer {
  double parameters, work;
};

std::vector<Layer> uniform(int layers, double parameters) {
  return std::vector<Layer>(static_cast<std::size_t>(layers), {parameters / layers, 1});
}

/// For 224 x 224 images; configuration D (Simonyan and Zisserman 2015).
std::vector<Layer> vgg16() {
  std::vector<Layer> layers;
  double from = 3, side = 224;
  for (const auto& [width, count] :
       std::vector<std::pair<double, int>>{{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}}) {
    for (int i = 0; i < count; ++i, from = width) {
      layers.push_back({9 * from * width + width, 9 * from * width * side * side});
    }
    side /= 2;
  }
  from *= side * side;
  for (const double width : {4096.0, 4096.0, 1000.0}) {
    layers.push_back({from * width + width, from * width});
    from = width;
  }
  return layers;
}

/// The embedding, which costs no multiplications, and 12 layers (Devlin et al. 2019).
std::vector<Layer> bert_base() {
  constexpr double words = 30522, positions = 512, segments = 2, width = 768, inner = 3072;
  constexpr double attention = 4 * (width * width + width), feed_forward = 2 * width * inner + inner + width;
  std::vector<Layer> layers = {{(words + positions + segments) * width + 2 * width, 0}};
  layers.insert(layers.end(), 12, {attention + feed_forward + 4 * width, attention + feed_forward});
  return layers;
}

struct SimulateArguments {
  std::string model = "uniform", devices = "1,4,16,64,256", bandwidths = "12.5", network = "ring";
  int layers = 12, steps = 3;
  bool json = false;
  double parameters = 75, computation = 100, update = 1, latency = 5, gap = 0.2, jitter = 0;
  double bucket = 4, part = 1, window = 4;  // MB
  std::string without;
  std::uint64_t seed = 1;
  bool compare = false;
};

const std::vector<std::string> techniques = {"overlap", "buckets", "parts", "priority"};
constexpr const char* all_but_overlap = "buckets,parts,priority";

std::size_t bytes_of(double megabytes) { return 4 * static_cast<std::size_t>(std::ceil(megabytes * mega / 4)); }

VirtualClock::Time nanoseconds(double milliseconds) { return VirtualClock::Time(std::llround(milliseconds * mega)); }

std::vector<SimulatedLayer> layers_of(const SimulateArguments& arguments) {
  std::vector<Layer> layers = arguments.model == "vgg16"       ? vgg16()
                              : arguments.model == "bert-base" ? bert_base()
                                                               : uniform(arguments.layers, arguments.parameters * mega);
  Layer all{0, 0};
  for (const Layer& layer : layers) all = {all.parameters + layer.parameters, all.work + layer.work};
  std::vector<SimulatedLayer> result;
  for (const Layer& layer : layers) {
    const double share = arguments.computation * layer.work / all.work;
    result.push_back({.bytes = bytes_of(4 * layer.parameters / mega),
                      .forward = nanoseconds(share / 3),
                      .backward = nanoseconds(share * 2 / 3),
                      .update = nanoseconds(arguments.update * layer.parameters / all.parameters)});
  }
  return result;
}

SimulationOptions options_of(const SimulateArguments& arguments, int devices, double bandwidth) {
  return {.layers = layers_of(arguments),
          .devices = devices,
          .network = {.algorithm =
                          arguments.network == "tree" ? NetworkModel::Algorithm::tree : NetworkModel::Algorithm::ring,
                      .bandwidth = bandwidth * giga,
                      .latency = nanoseconds(arguments.latency / 1000),
                      .gap = nanoseconds(arguments.gap / 1000),
                      .window_bytes = bytes_of(arguments.window)},
          .parallel = {.bucket_bytes = bytes_of(arguments.bucket), .part_bytes = bytes_of(arguments.part)},
          .jitter = arguments.jitter,
          .seed = arguments.seed,
          .steps = arguments.steps};
}

void leave_out(SimulationOptions& options, const std::string& technique) {
  if (technique == "overlap") options.overlap = false;
  if (technique == "buckets") options.parallel.bucket_bytes = 1;
  if (technique == "parts") options.parallel.part_bytes = 0;
  if (technique == "priority") options.parallel.priority = false;
}

/// A simulation: a row of the output.
struct StepRow {
  int devices;
  double bandwidth;
  std::string without;
  SimulationOptions options;
};

double ms(VirtualClock::Time time) { return static_cast<double>(time.count()) / mega; }

void print_json(const StepRow& row, const SimulatedStep& step) {
  Record record;
  record.set("devices", row.devices).set("gigabytes_per_second", row.bandwidth);
  record.set("without", row.without.empty() ? "-" : row.without);
  record.set("step_ms", ms(step.step)).set("computation_ms", ms(step.computation)).set("network_ms", ms(step.network));
  record.set("hidden", step.hidden()).set("efficiency", step.efficiency()).set("limit", step.limit());
  print_record(record.set("parts", static_cast<std::uint64_t>(step.parts)));
}

/// Prints 80 columns. With --compare, the last column names the technique that is left out.
void print_row(const StepRow& row, const SimulatedStep& step, bool compare) {
  print("%7d %5g %9.2f %10.2f %5.1f %% %8.1f %%  ", row.devices, row.bandwidth, ms(step.step), ms(step.network),
        100 * step.hidden(), 100 * step.efficiency());
  if (!compare) return print("%s\n", step.limit().c_str());
  print("%-11s  %s\n", step.limit().c_str(),
        row.without.empty()              ? "-"
        : row.without == all_but_overlap ? "overlap only"
                                         : row.without.c_str());
}

std::string number_of_parameters(double parameters) {
  if (parameters < mega) return grouped(static_cast<std::size_t>(parameters)) + " parameters";
  return formatted("%.1f million parameters", parameters / mega);
}

void print_heading(const SimulateArguments& arguments) {
  const auto layers = layers_of(arguments);
  double parameters = 0;
  for (const SimulatedLayer& layer : layers) parameters += static_cast<double>(layer.bytes) / 4;
  print("%s: %s, %s; %g ms of computation per step\n", arguments.model.c_str(), counted(layers.size(), "layer").c_str(),
        number_of_parameters(parameters).c_str(), arguments.computation);
  print("%s, latency %g us, gap %g us; jitter %g, seed %llu\n", arguments.network.c_str(), arguments.latency,
        arguments.gap, arguments.jitter, static_cast<unsigned long long>(arguments.seed));
  if (!arguments.without.empty()) print("without %s\n", arguments.without.c_str());
  print("\ndevices  GB/s   step ms network ms  hidden efficiency  limit%s\n",
        arguments.compare ? "        without" : "");
}

void run(const SimulateArguments& arguments) {
  std::vector<std::string> left_out = {arguments.without};  // one row for each
  if (arguments.compare) {
    left_out = {""};
    left_out.insert(left_out.end(), techniques.begin(), techniques.end());
    left_out.push_back(all_but_overlap);
  }
  std::vector<StepRow> rows;
  for (const std::string& bandwidth : words_of(arguments.bandwidths)) {
    for (const int devices : numbers_of(arguments.devices)) {
      for (const std::string& without : left_out) {
        SimulationOptions options = options_of(arguments, devices, std::stod(bandwidth));
        for (const std::string& technique : words_of(without)) leave_out(options, technique);
        check(options);
        rows.push_back({devices, std::stod(bandwidth), without, std::move(options)});
      }
    }
  }
  if (!arguments.json) print_heading(arguments);
  for (const StepRow& row : rows) {
    const SimulatedStep step = simulate(row.options);
    arguments.json ? print_json(row, step) : print_row(row, step, arguments.compare);
  }
}

}  // namespace

void add_simulate(CLI::App& app) {
  const auto to = std::make_shared<SimulateArguments>();
  CLI::App& command = *app.add_subcommand(
      "simulate", "Predicts data-parallel steps on many devices: the real schedule, in virtual time.");
  flag(command, "--devices", to->devices, "Number of devices; several numbers give a row each", whole_numbers(1, 4096));
  flag(command, "--model", to->model, "Model to simulate", one_of({"uniform", "vgg16", "bert-base"}));
  const auto* const layers = flag(command, "--layers", to->layers, "Layers of model uniform", whole_number(1, 1000));
  const auto* const parameters = flag(command, "--parameters", to->parameters,
                                      "Parameters of model uniform, in millions", number_within(0.001, 100000));
  flag(command, "--computation", to->computation, "Time of the forward and backward pass on one device, in ms",
       number_within(0.001, 100000));
  flag(command, "--update", to->update, "Time to update all parameters, in ms", number_within(0, 100000));
  flag(command, "--network", to->network, "Algorithm of all-reduce", one_of({"ring", "tree"}));
  flag(command, "--bandwidth", to->bandwidths,
       "Bandwidth of a device's link in each direction, in GB/s; several numbers give a row each",
       several(number_within(0.001, 100000), ", separated by commas"));
  flag(command, "--latency", to->latency, "Latency of a message between two devices, in us", number_within(0, 10000));
  flag(command, "--gap", to->gap, "Per-message overhead of the sender (LogGP g), in us", number_within(0, 10000));
  flag(command, "--jitter", to->jitter, "Multiply each op's duration by a random factor from 1 - X to 1 + X",
       fraction());
  flag(command, "--seed", to->seed, "Seed of the jitter", whole_number(0, 1 << 30));
  flag(command, "--bucket", to->bucket, "Bucket size: gradients that one collective sums, in MB",
       number_within(0.001, 100000));
  flag(command, "--part", to->part, "Chunk size of a collective, in MB", number_within(0.01, 100000));
  flag(command, "--window", to->window, "Limit on the bytes in flight at a time, in MB; one chunk is always admitted",
       number_within(0.001, 100000));
  flag(command, "--steps", to->steps, "Steps; the first one does not count", whole_number(2, 100));
  auto* const without = flag(command, "--without", to->without, "Techniques to disable", some_of(techniques));
  without->default_str("");
  toggle(command, "--compare", to->compare, "Also simulate with each technique disabled")->excludes(without);
  toggle(command, "--json", to->json, "Prints a line of JSON for each row; shares are from 0 to 1");
  command.footer(
      "Techniques:\n"
      "  overlap   sums begin while the backward pass still runs\n"
      "  buckets   small gradients are summed together; without: a call for each layer\n"
      "  parts     large sums move in parts\n"
      "  priority  sums that the next forward pass needs first move first\n"
      "\n"
      "Columns:\n"
      "  step         time of a step, when the pipeline is filled\n"
      "  network      time in which the network moves something\n"
      "  hidden       share of the network's time in which devices compute\n"
      "  efficiency   speed-up over one device, divided by the number of devices\n"
      "  limit        what costs most: computation, stragglers (devices that wait for slower ones), bandwidth, "
      "latency\n"
      "With --json also the step with a network that takes no time, and the parts that moved.\n"
      "\n"
      "The engine, the buckets, the parts and the queue of collectives are those of 'windrow train'. Devices and\n"
      "network are simulated; the model is described in docs/scaling.md.");
  command.callback([to, sizes = std::vector<const CLI::Option*>{layers, parameters}] {
    for (const CLI::Option* size : sizes) {
      if (size->count() == 0 || to->model == "uniform") continue;
      throw MisuseError(size->get_name() + ": --model " + to->model + " has its own; expected --model uniform");
    }
    run(*to);
  });
}

}  // namespace windrow::program
