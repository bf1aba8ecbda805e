#include "program/training/reporting.h"

#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include "program/output/program.h"
#include "windrow/training/internal/whole_file.h"

namespace windrow::program {
namespace {

// --- The machine

/// The name of the processor; empty if it is not known.
std::string processor() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.find(": ") + 2, line.size()));
  }
  return {};
}

/// Unknown facts are left out.
std::vector<Fact> about_machine() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  std::vector<Fact> facts = {{"processor", processor()},
                             {"hardware threads", formatted("%u; this process may use %d",
                                                            std::thread::hardware_concurrency(), default_workers())},
                             {"memory", pages > 0 && page > 0 ? bytes_text(std::int64_t{pages} * page) : ""},
                             {"windrow", version_text()}};
  std::erase_if(facts, [](const Fact& fact) { return fact.value.empty(); });
  return facts;
}

/// As "2026-03-14 15:09 UTC".
std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 40> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &parts));
  return text.data();
}

/// The largest resident memory of this process so far.
std::int64_t peak_process_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

// --- Flags and samples

/// The default of a flag that depends on the workload; empty if the workload has none.
std::optional<std::string> preset_of(const std::string& flag, const WorkloadOptions& options, double rate) {
  if (flag == "samples") return options.data.empty() ? std::to_string(options.samples) : "";
  if (flag == "cell") return options.cell;
  if (flag == "source") return options.source_language;
  if (flag == "target") return options.target_language;
  if (flag == "rate") return formatted("%.6g", rate);
  const auto size = options.sizes.find(flag);
  return size == options.sizes.end() ? std::nullopt : std::optional(std::to_string(size->second));
}

}  // namespace

Reporting::Reporting(const std::string& folder) {
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw Error(folder + ": cannot be created: " + error.message() + "; expected a folder for the report");
  file_ = std::filesystem::path(folder) / "report.html";
  const WholeFile can_be_written(file_);
}

void Reporting::watch(TrainerOptions& options, const Device& device) {
  if (!on()) return;
  memory_ = device.memory;
  report_.device = device.name;
  options.runner.time_steps = true;
  if (options.group) options.group->time_calls();
  options.each_loss = [this](double loss) { report_.minibatch_losses.push_back(loss); };
}

void Reporting::set_flags(const CLI::App& command, const WorkloadOptions& options, double rate) {
  if (!on()) return;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_name() == "--help") continue;
    const bool given = option->count() > 0;
    std::string value = given ? option->results().back() : option->get_default_str();
    if (option->get_expected_max() == 0) value = given ? "yes" : "no";
    const std::string name = option->get_single_name();
    const auto preset = given ? std::nullopt : preset_of(name, options, rate);
    if (preset) value = *preset;
    if (value == "see below") value.clear();  // it is a size of other models
    if (!value.empty()) report_.flags.push_back({option->get_name(), value + (given ? " *" : "")});
  }
}

void Reporting::begin(const Run& run, const Workload& workload, const Trainer& trainer, const TrainerOptions& options) {
  if (!on()) return;
  report_.model = workload.kind->name;
  report_.about = run.about;
  if (!run.about.empty()) {
    report_.about.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(run.about.front())));
  }
  report_.unit = workload.kind->unit;
  report_.workers = run.workers;
  report_.first_minibatch = trainer.minibatches();
  if (options.group) {
    group_ = options.group;
    in_collectives_ = group_->time_in_calls();
    report_.group = run.members;
  }
  const Parameters& parameters = *workload.parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& value = parameters.value(parameters[i]);
    report_.parameters += value.rows() * value.width();
  }
  report_.machine = about_machine();
  before_ = trainer.stats().times;
  mark_ = Clock::now();
}

void Reporting::set_epochs(const std::vector<Record>& epochs, const Workload& workload) {
  if (!on()) return;
  const std::vector<Metric> metrics = workload.network->learner({})->score()->metrics();  // their units
  for (const Record& record : epochs) {
    TrainingReport::Epoch& epoch = report_.epochs.emplace_back();
    epoch.number = record.at("epoch").count();
    epoch.training_loss = record.at("training_loss").number();
    epoch.units_per_second = record.at(workload.kind->unit + "_per_second").number();
    epoch.seconds = record.at("seconds").number();
    if (record.contains("validation_loss")) epoch.validation_loss = record.at("validation_loss").number();
    if (!record.contains("validation")) continue;
    for (const auto& [name, value, unit] : metrics) {
      epoch.metrics.push_back({name, record.at("validation").record().at(name).number(), unit});
    }
  }
}

void Reporting::trained(const Trainer& trainer, const Trainer::Pass& pass) {
  if (!on() || trainer.in_epoch()) return;
  const StepTimes times = trainer.stats().times - before_;
  const auto end = Clock::now();
  const auto in_collectives = group_ ? group_->time_in_calls() : std::chrono::nanoseconds(0);
  report_.epochs.push_back(
      {.number = trainer.epochs(),
       .training_loss = pass.loss,
       .units_per_second = pass.units_per_second(),
       .seconds = pass.seconds,
       .timed_seconds = std::chrono::duration<double>(end - mark_).count(),
       .times = times,
       .collective_seconds = std::chrono::duration<double>(in_collectives - in_collectives_).count()});
  mark_ = end;
  in_collectives_ = in_collectives;
}

void Reporting::evaluated(const Trainer& trainer, const std::vector<Metric>& metrics) {
  if (!on()) return;
  TrainingReport::Epoch& epoch = report_.epochs.back();
  epoch.validation_loss = trainer.validation_loss();
  epoch.metrics = metrics;
  mark_ = Clock::now();
  before_ = trainer.stats().times;
}

void Reporting::write(const Trainer& trainer, const std::string& outcome) {
  if (!on()) return;
  report_.about += " " + outcome + " on " + time_now() + ".";
  report_.minibatch_peak = trainer.stats().peak_bytes;
  report_.process_peak = peak_process_bytes();
  const MemoryUse use = memory_->use();
  report_.device_peak = static_cast<std::int64_t>(use.peak_live);
  report_.device_cached = static_cast<std::int64_t>(use.cached);
  WholeFile file(file_);
  file.write(html(report_));
  file.commit();
  print("report: %s\n", file_.string().c_str());
}

void Reporting::write_if_trained(const Trainer& trainer, const std::string& outcome) {
  if (!on() || trainer.minibatches() != report_.first_minibatch) return write(trainer, outcome);
  print("report: not written, since this run trained nothing%s\n",
        std::filesystem::exists(file_) ? "; that of an earlier run is kept" : "");
}

}  // namespace windrow::program
