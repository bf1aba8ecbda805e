#include "saved_model.h"

#include <cstdio>
#include <utility>

#include "program.h"
#include "windrow/training/file_error.h"

namespace windrow::program {
namespace {

std::string text_of(const RecordValue& value) {
  Record record;
  record.set("value", value);
  const std::string json = record.json(JsonStyle::compact);
  const std::size_t begin = json.find_first_not_of(' ', json.find(':') + 1);
  return json.substr(begin, json.size() - begin - 1);
}

/// As it is typed for a flag.
std::string typed(const RecordValue& value) {
  std::string text = text_of(value);
  if (text.starts_with('"')) return value.text();
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

}  // namespace

void require_same_model(const Record& saved, const Record& made, const std::string& place) {
  // Models of two kinds differ in nearly everything, which would not say why.
  if (made.contains("name") && saved.at("name") != made.at("name")) {
    throw FileError(place + ": a model " + text_of(saved.at("name")) + "; expected " + text_of(made.at("name")) +
                    ", as the flags say");
  }
  if (saved.contains("switches") != made.contains("switches")) {
    const bool too_many = made.contains("switches");
    throw FileError(place + ": a model " +
                    (too_many ? "without switches" : "with switches " + text_of(saved.at("switches"))) + "; expected " +
                    (too_many ? text_of(made.at("switches")) : "none") + ", as the flags say");
  }
  for (const auto& [name, value] : made.values()) {
    if (name == "validation_file") continue;  // another one is no other model
    // As in older checkpoints.
    if ((name.ends_with("_language") || name.starts_with("image_")) && !saved.contains(name)) continue;
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

std::string changed_flags(const Record& saved, const Record& now) {
  std::string changes;
  for (const auto& [name, value] : now.values()) {
    if (!saved.contains(name) || saved.at(name) == value) continue;
    changes += changes.empty() ? "--" : ", --";
    changes += name + " " + typed(value) + " (was " + typed(saved.at(name)) + ")";
  }
  return changes;
}

SavedCheckpoint newest_checkpoint(const std::string& folder) {
  NewestCheckpoint newest = CheckpointFolder(folder).newest();
  if (!newest.checkpoint) throw FileError(why_no_checkpoint(folder, newest));
  if (!Silence::here()) {
    for (const std::string& line : newest.skipped) std::fprintf(stderr, "skipped %s\n", line.c_str());
  }
  return std::move(*newest.checkpoint);
}

}  // namespace windrow::program
