#include "windrow/models/saved_model.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "data/open_data.h"
#include "training/splits.h"
#include "windrow/models/datasets.h"
#include "windrow/training/checkpoint.h"
#include "windrow/training/tensor_file.h"

namespace windrow {
namespace {

// Sources of data.
const char *const from_generator = "generated", *const from_files = "read from files";
const char *const validation_file = "validation_file", *const source_language = "source_language",
                  *const target_language = "target_language", *const image_height = "image_height",
                  *const image_width = "image_width";

/// Refuses, before the training, a model that cannot be saved.
void require_utf8(const Workload& workload, const Record& record) {
  try {
    record.json();
  } catch (const MisuseError& error) {
    throw DataError(workload.kind->name + ": cannot be saved: " + error.what());
  }
}

}  // namespace

Record model_record(const Workload& workload) {
  const WorkloadOptions& options = workload.options;
  Record sizes, vocabularies;
  for (const auto& [name, size] : options.sizes) sizes.set(name, size);
  for (const auto& [name, words] : workload.vocabularies) {
    vocabularies.set(name, RecordValue::List(words.begin(), words.end()));
  }
  Record record;
  record.set("name", workload.kind->name).set("sizes", sizes).set("seed", options.seed);
  record.set("samples", options.samples);
  record.set("dropout", options.dropout.element).set("word_dropout", options.dropout.word);
  record.set("vocabularies", vocabularies).set("data", options.data.empty() ? from_generator : from_files);
  if (workload.kind->translates) {
    // The names of both files follow from this one, if they are not found without it.
    const std::filesystem::path part = options.validation_file;
    if (!part.empty()) record.set(validation_file, part.filename().string());
  } else if (!options.data.empty() && (workload.kind->files.size() > 1 || !options.validation_file.empty())) {
    record.set(validation_file, uncompressed_name(workload.validation_source.files.front()).filename().string());
  }
  if (!options.cell.empty()) record.set("cell", options.cell);
  if (!options.source_language.empty()) {
    record.set(source_language, options.source_language).set(target_language, options.target_language);
  }
  if (workload.image) record.set(image_height, workload.image->height).set(image_width, workload.image->width);
  RecordValue::List switches(options.switches.begin(), options.switches.end());
  if (!switches.empty()) record.set("switches", std::move(switches));
  require_utf8(workload, record);
  return record;
}

SavedModel saved_model(const SavedCheckpoint& checkpoint) {
  checkpoint.document.require_format(training_format);
  const Record& record = checkpoint.document.at("model").record();
  SavedModel model{
      .name = record.at("name").text(), .options = {}, .generated = record.at("data").text() == from_generator};
  WorkloadOptions& options = model.options;
  options.seed = record.at("seed").count();
  options.samples = record.at("samples").count();
  for (const auto& [name, size] : record.at("sizes").record().values()) options.sizes[name] = size.integer();
  if (record.contains("switches")) {
    for (const RecordValue& one : record.at("switches").list()) options.switches.insert(one.text());
  }
  if (record.contains(validation_file)) options.validation_file = record.at(validation_file).text();
  if (record.contains(image_height)) {
    options.image = {.height = record.at(image_height).integer(), .width = record.at(image_width).integer()};
    for (const Index side : {options.image->height, options.image->width}) {
      if (side >= 1 && side <= most_pixels_a_side) continue;
      throw FileError(checkpoint.tensors.path().string() + ": images of " + std::to_string(side) +
                      " pixels a side; expected 1 to " + std::to_string(most_pixels_a_side));
    }
  }
  if (record.contains("cell")) options.cell = record.at("cell").text();
  if (record.contains(source_language)) options.source_language = record.at(source_language).text();
  if (record.contains(target_language)) options.target_language = record.at(target_language).text();
  for (const auto& [name, words] : record.at("vocabularies").record().values()) {
    std::vector<std::string>& to = options.vocabularies[name];
    for (const RecordValue& word : words.list()) to.push_back(word.text());
  }
  return model;
}

SavedModel model_alone(const SavedCheckpoint& checkpoint) {
  SavedModel model = saved_model(checkpoint);
  model.options.samples = 1;
  model.options.validation_only = true;
  return model;
}

std::string why_no_checkpoint(const std::filesystem::path& folder, const NewestCheckpoint& newest) {
  if (newest.skipped.empty()) {
    return folder.string() + ": no checkpoint; expected one that windrow train --save has written";
  }
  const std::size_t older = newest.skipped.size() - 1;
  if (older == 0) return newest.skipped.front() + "; there is no older checkpoint";
  return newest.skipped.front() +
         (older == 1 ? "; the older checkpoint is" : "; the " + std::to_string(older) + " older checkpoints are") +
         " damaged, too";
}

Workload load_model(const Device& device, const SavedCheckpoint& checkpoint, const SavedModel& model) {
  Workload workload = make_workload(model.name, device, model.options);
  restore_for_use(checkpoint, *workload.parameters);
  return workload;
}

Workload load_model(const Device& device, const std::filesystem::path& folder) {
  const NewestCheckpoint newest = CheckpointFolder(folder).newest();
  if (!newest.checkpoint) {
    throw FileError(why_no_checkpoint(folder, newest));
  }
  return load_model(device, *newest.checkpoint, model_alone(*newest.checkpoint));
}

namespace {

constexpr std::size_t nowhere = static_cast<std::size_t>(-1);
/// For each row or column, its number in the other model, or `nowhere`.
using Origins = std::vector<std::size_t>;

/// Matches by name; those without a name in order.
Origins origins_of(const std::vector<std::string>& names, const std::vector<std::string>& others) {
  std::unordered_map<std::string_view, std::size_t> numbers;
  std::vector<std::size_t> unnamed;
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (others[i].empty()) {
      unnamed.push_back(i);
    } else {
      numbers.emplace(others[i], i);
    }
  }
  Origins origins;
  std::size_t next = 0;
  for (const std::string& name : names) {
    if (name.empty()) {
      origins.push_back(next < unnamed.size() ? unnamed[next] : nowhere);
      ++next;
    } else {
      const auto found = numbers.find(name);
      origins.push_back(found == numbers.end() ? nowhere : found->second);
    }
  }
  return origins;
}

const NamedAxis* find_axis(const Workload& workload, const std::string& parameter, NamedAxis::Of of) {
  const auto& axes = workload.named_axes;
  const auto found = std::ranges::find_if(axes, [&](const NamedAxis& axis) {
    return axis.of == of && workload.parameters->name(axis.parameter) == parameter;
  });
  return found == axes.end() ? nullptr : &*found;
}

/// The elements that a parameter takes from the parameter of the same name.
class Taking {
 public:
  Taking(const Workload& to, const Workload& from, const std::string& name)
      : name_(name),
        from_(from.parameters->value(from.parameters->find(name))),
        to_(to.parameters->value(to.parameters->find(name))) {
    rows_ = origins(to, from, NamedAxis::Of::rows);
    columns_ = origins(to, from, NamedAxis::Of::columns);
  }

  void take() {
    const std::vector<float> taken = from_.get();
    std::vector<float> values = to_.get();
    const auto from_width = static_cast<std::size_t>(from_.width());
    auto value = values.begin();
    for (const std::size_t row : rows_) {
      for (const std::size_t column : columns_) {
        if (row != nowhere && column != nowhere) *value = taken[row * from_width + column];
        ++value;
      }
    }
    to_.set(values);
  }

 private:
  Origins origins(const Workload& to, const Workload& from, NamedAxis::Of of) const {
    const bool rows = of == NamedAxis::Of::rows;
    const NamedAxis *const axis = find_axis(to, name_, of), *const other = find_axis(from, name_, of);
    if (axis != nullptr && other != nullptr) return origins_of(axis->names, other->names);
    const Index size = rows ? to_.rows() : to_.width(), other_size = rows ? from_.rows() : from_.width();
    if (size != other_size) {
      throw MisuseError("parameter '" + name_ + "' has " + std::to_string(other_size) + (rows ? " rows" : " columns") +
                        "; expected " + std::to_string(size));
    }
    Origins all(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }

  const std::string name_;
  const Tensor from_;
  Tensor to_;
  Origins rows_, columns_;
};

std::vector<std::string> parameter_names(const Workload& workload) {
  const Parameters& parameters = *workload.parameters;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parameters.size(); ++i) names.push_back(parameters.name(parameters[i]));
  return names;
}

void require_same_parameters(const Workload& to, const Workload& from) {
  if (to.kind != from.kind) throw MisuseError("a model " + from.kind->name + "; expected " + to.kind->name);
  const std::vector<std::string> names = parameter_names(to), others = parameter_names(from);
  for (const std::string& name : names) {
    if (std::ranges::find(others, name) == others.end()) throw MisuseError("no parameter '" + name + "'; expected one");
  }
  for (const std::string& name : others) {
    if (std::ranges::find(names, name) == names.end()) throw MisuseError("a parameter '" + name + "'; expected none");
  }
}

std::vector<TakenWeights::Names> found_names(const Workload& to, const Workload& from) {
  std::vector<TakenWeights::Names> all;
  for (const NamedAxis& axis : to.named_axes) {
    if (std::ranges::find(all, axis.what, &TakenWeights::Names::what) != all.end()) continue;
    const NamedAxis* const other = find_axis(from, to.parameters->name(axis.parameter), axis.of);
    const Origins origins = origins_of(axis.names, other == nullptr ? std::vector<std::string>() : other->names);
    TakenWeights::Names& names = all.emplace_back();
    names.what = axis.what;
    for (std::size_t i = 0; i < origins.size(); ++i) {
      if (axis.names[i].empty()) continue;
      ++names.of;
      names.found += origins[i] != nowhere;
    }
  }
  std::ranges::stable_partition(all, [](const TakenWeights::Names& names) { return names.what == "words"; });
  return all;
}

}  // namespace

TakenWeights take_weights(Workload& to, const Workload& from) {
  require_same_parameters(to, from);
  std::vector<Taking> all;
  for (const std::string& name : parameter_names(to)) all.emplace_back(to, from, name);
  for (Taking& one : all) one.take();
  return {.parameters = all.size(), .names = found_names(to, from)};
}

}  // namespace windrow
