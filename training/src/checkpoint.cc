#include "windrow/training/checkpoint.h"

#include <set>
#include <utility>

#include "windrow/training/file_error.h"

namespace windrow {
namespace {

const std::string of_optimiser = "optimiser/", of_average = "average/";

TensorShape shape_of(Index rows, Index width) {
  return {static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(width)};
}

/// What is to be set once everything has been read.
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

Snapshot::Snapshot(const TrainingParts& parts) {
  const auto copy = [&](std::string name, const Tensor& from) {
    copies_.push_back({std::move(name), from.rows(), from.width(), from.get()});
  };
  const Parameters& parameters = parts.parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter parameter = parameters[i];
    copy(parameters.name(parameter), parameters.value(parameter));
  }
  training_.set("minibatches", parameters.minibatches());
  if (const Averages* averages = parts.averages) {
    for (const auto& [name, tensor] : averages->tensors()) copy(of_average + name, tensor);
    training_.set("averaged", averages->updates());
  }
  const Optimiser* const optimiser = parts.optimiser;
  if (optimiser == nullptr) return;
  if (optimiser->between_steps()) throw MisuseError("a snapshot between steps; expected one after a step");
  for (const auto& [name, tensor] : optimiser->tensors()) copy(of_optimiser + name, tensor);
  const Optimiser::Progress progress = optimiser->progress();
  training_.set("optimiser", optimiser->method().name)
      .set("steps", progress.steps)
      .set("rate_scale", progress.rate_scale);
}

CheckpointContents Snapshot::contents(std::uint64_t step) const {
  CheckpointContents contents{.step = step};
  for (const Copy& copy : copies_) {
    contents.tensors.push_back({copy.name, shape_of(copy.rows, copy.width), std::span(copy.elements)});
  }
  contents.document.set("training", training_);
  return contents;
}

void restore(const SavedCheckpoint& checkpoint, const TrainingParts& parts) {
  Parameters& parameters = parts.parameters;
  const TensorFile& file = checkpoint.tensors;
  const auto refuse = [&](const std::string& what) { throw FileError(file.path().string() + ": " + what); };
  Restoration restoration(file);
  std::set<std::string> names;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    names.insert(parameters.name(parameters[i]));
    restoration.add(parameters.name(parameters[i]), parameters.value(parameters[i]));
  }
  std::vector<std::string> kept;  // by the optimiser
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.name.starts_with(of_optimiser)) kept.push_back(tensor.name.substr(of_optimiser.size()));
    const bool of_caller = tensor.name.find('/') != std::string::npos;
    if (!names.contains(tensor.name) && !of_caller) {
      refuse("tensor '" + tensor.name + "', which is no parameter of the model; expected its parameters only");
    }
  }
  const Record& training = checkpoint.document.at("training").record();
  const std::uint64_t minibatches = training.at("minibatches").count();
  if (Optimiser* const optimiser = parts.optimiser) {
    const std::string& method = training.at("optimiser").text();
    if (method != optimiser->method().name) {
      refuse("of optimiser " + method + "; expected " + optimiser->method().name);
    }
    const Optimiser::Progress progress{training.at("steps").count(), training.at("rate_scale").number()};
    try {
      optimiser->restore(progress, kept);
    } catch (const MisuseError& error) {
      refuse(error.what());
    }
    for (const auto& [name, tensor] : optimiser->tensors()) restoration.add(of_optimiser + name, tensor);
  }
  if (Averages* const averages = parts.averages; averages != nullptr && training.contains("averaged")) {
    averages->restore(training.at("averaged").count());
    for (const auto& [name, tensor] : averages->tensors()) restoration.add(of_average + name, tensor);
  }
  parameters.set_minibatches(minibatches);
  restoration.finish();
}

void restore_for_use(const SavedCheckpoint& checkpoint, Parameters& parameters) {
  restore(checkpoint, {parameters});
  const Record& training = checkpoint.document.at("training").record();
  if (!training.contains("averaged") || training.at("averaged").count() == 0) return;
  Restoration averages(checkpoint.tensors);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    averages.add(of_average + parameters.name(parameters[i]), parameters.value(parameters[i]));
  }
  averages.finish();
}

}  // namespace windrow
