#include <algorithm>

#include "batching/tables.h"

namespace windrow::perf {
namespace {

bool has(const WorkloadKind& kind, const std::string& size) {
  return std::any_of(kind.sizes.begin(), kind.sizes.end(), [&](const WorkloadSize& one) { return one.name == size; });
}

WorkloadOptions fitting(const std::string& model, WorkloadOptions options) {
  const WorkloadKind& kind = workload_kind(model);
  std::erase_if(options.sizes, [&](const auto& size) { return !has(kind, size.first); });
  return options;
}

}  // namespace

LoadedModel::LoadedModel(const std::string& model, const TableOptions& options)
    : engine_({.workers = options.workers.front()}),
      workload_(make_workload(model, device(), fitting(model, options.workload))),
      samples_(options.workload.samples == 0 ? workload_.training.size()
                                             : std::min(options.workload.samples, workload_.training.size())),
      turn_seconds_(options.turn_ms / 1e3) {}

std::size_t LoadedModel::samples_of_a_turn(Trainer& trainer, std::size_t least) const {
  constexpr double most_times = 1e4;
  trainer.train(least);  // warms up memory, plans and caches
  const double times = std::clamp(turn_seconds_ / trainer.train(least).seconds, 1.0, most_times);
  return least * static_cast<std::size_t>(times + 0.5);
}

Trainer& LoadedModel::trainer(int batch, const RunnerOptions& runner) {
  const TrainerOptions options{
      .minibatch = static_cast<std::size_t>(batch), .optimiser = {.rate = 0}, .runner = runner};
  return *trainers_.emplace_back(std::make_unique<Trainer>(device(), workload_, options));
}

std::string sizes_text(const TableOptions& options) {
  std::string text;
  for (const std::string& model : options.models) {
    std::string sizes;
    for (const WorkloadSize& size : workload_kind(model).sizes) {
      const auto given = options.workload.sizes.find(size.name);
      const Index value = given == options.workload.sizes.end() ? size.preset : given->second;
      sizes += (sizes.empty() ? "" : ", ") + size.name + " " + std::to_string(value);
    }
    text += " " + model + ": " + sizes + ".";
  }
  return text;
}

std::string turns_text(const TableOptions& options) {
  const int workers = options.workers.front();
  return std::to_string(options.workload.samples) + " samples, " + std::to_string(workers) +
         (workers == 1 ? " worker" : " workers") + ", medians of " + std::to_string(options.repetitions) +
         " repetitions, in each of which all variants ran in turn";
}

}  // namespace windrow::perf
