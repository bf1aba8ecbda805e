#include "saved_model.h"

#include <cstdio>
#include <utility>

#include "windrow/training/file_error.h"

namespace windrow::program {
namespace {

// Where data came from.
const char *const generated = "generated", *const read = "read from files";

std::string text_of(const RecordValue& value) {
  Record record;
  record.set("value", value);
  const std::string json = record.json(JsonStyle::compact);
  const std::size_t begin = json.find_first_not_of(' ', json.find(':') + 1);
  return json.substr(begin, json.size() - begin - 1);
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
  record.set("vocabularies", vocabularies).set("data", options.data.empty() ? generated : read);
  if (!options.cell.empty()) record.set("cell", options.cell);
  return record;
}

void require_same_model(const Record& saved, const Record& made, const std::string& place) {
  for (const auto& [name, value] : made.values()) {
    const RecordValue& other = saved.at(name);
    if (other == value) continue;
    if (name == "sizes") require_same_model(other.record(), value.record(), place);
    if (name == "vocabularies") {
      throw FileError(place + ": a model with other vocabularies; expected those of this training set");
    }
    throw FileError(place + ": a model with " + name + " " + text_of(other) + "; expected " + text_of(value) +
                    ", as the flags say");
  }
}

SavedCheckpoint newest_checkpoint(const std::string& folder) {
  NewestCheckpoint newest = CheckpointFolder(folder).newest();
  for (const std::string& line : newest.skipped) std::fprintf(stderr, "skipped %s\n", line.c_str());
  if (!newest.checkpoint)
    throw FileError(folder + ": no checkpoint; expected one that windrow train --save has written");
  return std::move(*newest.checkpoint);
}

SavedModel saved_model(const SavedCheckpoint& checkpoint) {
  checkpoint.document.require_format(training_format);
  const Record& record = checkpoint.document.at("model").record();
  SavedModel model{.name = record.at("name").text(), .options = {}, .generated = record.at("data").text() == generated};
  WorkloadOptions& options = model.options;
  options.seed = record.at("seed").count();
  options.samples = record.at("samples").count();
  for (const auto& [name, size] : record.at("sizes").record().values()) options.sizes[name] = size.integer();
  if (record.contains("cell")) options.cell = record.at("cell").text();
  for (const auto& [name, words] : record.at("vocabularies").record().values()) {
    std::vector<std::string>& to = options.vocabularies[name];
    for (const RecordValue& word : words.list()) to.push_back(word.text());
  }
  return model;
}

}  // namespace windrow::program
