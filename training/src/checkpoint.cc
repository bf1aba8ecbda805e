#include "windrow/training/checkpoint.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "windrow/training/tensor_file.h"

namespace windrow {
namespace {

const std::string of_optimiser = "optimiser/", of_average = "average/";

TensorShape shape_of(Index rows, Index width) {
  return {static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(width)};
}

/// The prefix of all names of a set. Throws MisuseError for a name of a set that would make others ambiguous.
std::string prefix_of(const std::string& set) {
  if (set.find('/') != std::string::npos || set + "/" == of_optimiser || set + "/" == of_average) {
    throw MisuseError("a set of parameters named '" + set + "' in a checkpoint; expected a name without a slash, and " +
                      "not optimiser or average");
  }
  return set.empty() ? set : set + "/";
}

/// The names of parameters that were frozen. Refuses names that the model lacks, and a parameter that is frozen only
/// now.
std::set<std::string> frozen_of(const Record& training, const Parameters& parameters, const auto& refuse) {
  std::set<std::string> names;
  if (training.contains("frozen")) {
    for (const RecordValue& name : training.at("frozen").list()) names.insert(name.text());
  }
  std::size_t found = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters.name(parameters[i]);
    if (names.contains(name)) {
      ++found;
    } else if (parameters.frozen(parameters[i])) {
      refuse("of a training that changed parameter '" + name + "'; expected one in which it was frozen, as it is now");
    }
  }
  if (found < names.size()) refuse("frozen parameters that the model has not; expected its parameters only");
  return names;
}

using CountsByName = std::map<std::string, std::uint64_t>;

/// Sets nothing if there are none, as in older checkpoints.
void set_counts(Record& training, const std::string& name, const CountsByName& counts) {
  Record record;
  for (const auto& [of, count] : counts) record.set(of, count);
  if (!counts.empty()) training.set(name, record);
}

CountsByName counts(const Record& training, const std::string& name) {
  CountsByName result;
  if (!training.contains(name)) return result;
  for (const auto& [of, count] : training.at(name).record().values()) result[of] = count.count();
  return result;
}

/// Collects the values to set once everything has been read.
class Restoration {
 public:
  explicit Restoration(const TensorFile& file) : file_(file) {}

  void add(const std::string& name, const Tensor& to) {
    std::vector<float> elements(static_cast<std::size_t>(to.rows() * to.width()));
    file_.read(name, shape_of(to.rows(), to.width()), std::span(elements));
    read_.emplace_back(to, std::move(elements));
  }
  void finish() {
    for (auto& [to, elements] : read_) to.set(std::move(elements));
  }

 private:
  const TensorFile& file_;
  std::vector<std::pair<Tensor, std::vector<float>>> read_;
};

}  // namespace

void Snapshot::add(const TrainingParts& parts) {
  const std::string prefix = prefix_of(parts.name);
  const auto taken = [&](const auto& training) { return training.first == prefix + "training"; };
  if (std::any_of(trainings_.begin(), trainings_.end(), taken)) {
    throw MisuseError("two sets of parameters named '" + parts.name + "' in a checkpoint; expected different names");
  }
  Record training;
  const auto copy = [&](const std::string& name, const Tensor& from) {
    copies_.push_back({prefix + name, from.rows(), from.width(), from.get()});
  };
  const Parameters& parameters = parts.parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters.name(parameters[i]);
    if (name.starts_with(of_optimiser) || name.starts_with(of_average)) {
      throw MisuseError("a parameter named '" + name + "' in a checkpoint; expected a name that begins with neither " +
                        of_optimiser + " nor " + of_average);
    }
    copy(name, parameters.value(parameters[i]));
  }
  training.set("minibatches", parameters.minibatches());
  RecordValue::List frozen;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters.frozen(parameters[i])) frozen.push_back(parameters.name(parameters[i]));
  }
  if (!frozen.empty()) training.set("frozen", std::move(frozen));
  if (const Averages* averages = parts.averages) {
    for (const auto& [name, tensor] : averages->tensors()) copy(of_average + name, tensor);
    const Averages::Progress progress = averages->progress();
    training.set("averaged", progress.updates);
    set_counts(training, "averaged_of", progress.updates_of);
  }
  if (const Optimiser* const optimiser = parts.optimiser) {
    if (optimiser->between_steps()) throw MisuseError("a snapshot between steps; expected one after a step");
    for (const auto& [name, tensor] : optimiser->tensors_of_all()) copy(of_optimiser + name, tensor);
    const Optimiser::Progress progress = optimiser->progress();
    training.set("optimiser", optimiser->method().name)
        .set("steps", progress.steps)
        .set("rate_scale", progress.rate_scale);
    set_counts(training, "steps_of", progress.steps_of);
  }
  trainings_.emplace_back(prefix + "training", std::move(training));
}

CheckpointContents Snapshot::contents(std::uint64_t step) const {
  CheckpointContents contents{.step = step};
  for (const Copy& copy : copies_) {
    contents.tensors.push_back({copy.name, shape_of(copy.rows, copy.width), std::span(copy.elements)});
  }
  for (const auto& [name, training] : trainings_) contents.document.set(name, training);
  return contents;
}

void restore(const SavedCheckpoint& checkpoint, const TrainingParts& parts) {
  Parameters& parameters = parts.parameters;
  const TensorFile& file = checkpoint.tensors;
  const auto refuse = [&](const std::string& what) { throw FileError(file.path().string() + ": " + what); };
  const std::string prefix = prefix_of(parts.name);
  Restoration restoration(file);
  std::set<std::string> names;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    names.insert(parameters.name(parameters[i]));
    restoration.add(prefix + parameters.name(parameters[i]), parameters.value(parameters[i]));
  }
  std::vector<std::string> kept;  // by the optimiser
  for (const StoredTensor& tensor : file.tensors()) {
    if (!tensor.name.starts_with(prefix)) continue;
    const std::string name = tensor.name.substr(prefix.size());
    if (name.starts_with(of_optimiser)) kept.push_back(name.substr(of_optimiser.size()));
    const bool of_caller = name.find('/') != std::string::npos;
    if (!names.contains(name) && !of_caller) {
      refuse("tensor '" + tensor.name + "', which is no parameter of the model; expected its parameters only");
    }
  }
  const Record& training = checkpoint.document.at(prefix + "training").record();
  const std::uint64_t minibatches = training.at("minibatches").count();
  std::set<std::string> frozen;
  if (Optimiser* const optimiser = parts.optimiser) {
    frozen = frozen_of(training, parameters, refuse);
    const std::string& method = training.at("optimiser").text();
    if (method != optimiser->method().name) {
      refuse("of optimiser " + method + "; expected " + optimiser->method().name);
    }
    const Optimiser::Progress progress{training.at("steps").count(), training.at("rate_scale").number(),
                                       counts(training, "steps_of")};
    try {
      optimiser->restore(progress, kept);
    } catch (const MisuseError& error) {
      refuse(error.what());
    }
    for (const auto& [name, tensor] : optimiser->tensors()) restoration.add(prefix + of_optimiser + name, tensor);
  }
  if (Averages* const averages = parts.averages; averages != nullptr && training.contains("averaged")) {
    averages->restore({training.at("averaged").count(), counts(training, "averaged_of")});
    for (const auto& [name, tensor] : averages->tensors()) restoration.add(prefix + of_average + name, tensor);
  }
  for (const std::string& name : frozen) parameters.freeze(parameters.find(name));
  parameters.set_minibatches(minibatches);
  restoration.finish();
}

void restore_for_use(const SavedCheckpoint& checkpoint, Parameters& parameters, const std::string& name) {
  restore(checkpoint, {.parameters = parameters, .name = name});
  const std::string prefix = prefix_of(name);
  const Record& training = checkpoint.document.at(prefix + "training").record();
  if (!training.contains("averaged") || training.at("averaged").count() == 0) return;
  Restoration averages(checkpoint.tensors);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    averages.add(prefix + of_average + parameters.name(parameters[i]), parameters.value(parameters[i]));
  }
  averages.finish();
}

}  // namespace windrow
