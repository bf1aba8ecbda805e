#include "program/training/saving.h"

#include <csignal>
#include <cstdio>
#include <utility>

#include "program/options/flags.h"
#include "program/output/program.h"
#include "program/signals.h"
#include "windrow/comm/communicator.h"
#include "windrow/training/tensor_file.h"

namespace windrow::program {
namespace {

/// The number of best checkpoints to keep: a program that loads the best one while a better one is written still finds
/// it.
constexpr std::size_t keep_of_best = 2;

/// Whether one of the members has noted it.
bool one_of_all(const Trainer& trainer, bool noted) {
  using enum Trainer::Then;
  return trainer.agree(noted ? stop : go_on) == stop;
}

std::string text_of(const RecordValue& value) {
  Record record;
  record.set("value", value);
  const std::string json = record.json(JsonStyle::compact);
  const std::size_t begin = json.find_first_not_of(' ', json.find(':') + 1);
  return json.substr(begin, json.size() - begin - 1);
}

/// The value as typed for a flag.
std::string typed(const RecordValue& value) {
  std::string text = text_of(value);
  if (text.starts_with('"')) return value.text();
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

}  // namespace

void require_same_model(const Record& saved, const Record& made, const std::string& place) {
  // Models of two kinds differ in nearly all values, so a list of them would not help.
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
    if (name == "validation_file") continue;  // another file does not make another model
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

void add_saving_flags(CLI::App& command, SavingFlags& to) {
  flag(command, "--save", to.folder, "Folder for checkpoints, after each epoch", new_folder());
  flag(command, "--save-every", to.every, "Also save every N minibatches; 0: only after epochs",
       whole_number(0, 1 << 30));
  flag(command, "--keep", to.keep, "Number of newest checkpoints to keep", whole_number(1, 1 << 20));
  toggle(command, "--keep-best", to.keep_best,
         "Also keeps the checkpoint with the best validation score, in the folder best inside that of --save");
  toggle(command, "--resume", to.resume,
         "Continues from the newest checkpoint in the folder of --save, with the same bits (not with --compress or "
         "--local-steps)");
}

Saving::Saving(const SavingFlags& flags, bool leads) : flags_(flags) {
  if (flags.folder.empty()) {
    if (flags.resume) throw MisuseError("--resume: no --save; expected the folder of the checkpoints");
    for (const auto& [flag, given] :
         {std::pair("--save-every", flags.every > 0), std::pair("--keep", flags.keep != SavingFlags().keep),
          std::pair("--keep-best", flags.keep_best)}) {
      if (given) throw MisuseError(std::string(flag) + ": no --save; expected the folder for the checkpoints");
    }
    return;
  }
  if (!leads) return;
  // Before the writer makes the folder.
  std::error_code ignored;
  const bool there = std::filesystem::exists(flags.folder, ignored);
  if (flags.resume && (!there || CheckpointFolder(flags.folder).steps().empty())) {
    throw FileError(why_no_checkpoint(flags.folder, {}));
  }
  open(writer_, flags.folder, flags.keep);
  if (flags.keep_best) open(best_, flags.folder + "/best", keep_of_best);
}

/// Opens a folder for writing.
void Saving::open(std::optional<CheckpointWriter>& writer, const std::string& folder, std::size_t keep) const {
  writer.emplace(folder, CheckpointWriterOptions{.keep = keep, .resume = flags_.resume});
}

std::int64_t Saving::resume(Trainer& trainer, Scores& scores) {
  if (!flags_.resume) return 0;
  const SavedCheckpoint checkpoint = newest_checkpoint(flags_.folder);
  checkpoint.document.require_format(training_format);
  require_same_model(checkpoint.document.at("model").record(), contents.model, checkpoint.tensors.path().string());
  if (checkpoint.document.contains("data") && checkpoint.document.at("data").integer() != contents.data) {
    throw FileError(checkpoint.tensors.path().string() +
                    ": of a training on other data; expected the same samples, so that the same bits follow");
  }
  trainer.resume(checkpoint);
  scores.set(checkpoint.document.at("scores").record());
  saved_ = checkpoint.step;
  print("continuing from minibatch %s, in %s\n", grouped(checkpoint.step).c_str(),
        checkpoint.tensors.path().string().c_str());
  if (checkpoint.document.contains("flags")) {  // earlier versions saved none
    const std::string changes = changed_flags(checkpoint.document.at("flags").record(), contents.flags);
    if (!changes.empty()) print("continuing with %s\n", changes.c_str());
  }
  print("\n");
  return fingerprint(std::to_string(checkpoint.step) + ' ' + checkpoint.document.json());
}

void Saving::save(Trainer& trainer, const Scores& scores, std::optional<CheckpointWriter>& writer) const {
  if (!writer) return trainer.help_save();
  Record document;
  document.set_format(training_format)
      .set("model", contents.model)
      .set("flags", contents.flags)
      .set("data", contents.data)
      .set("scores", scores.record());
  trainer.save(*writer, std::move(document));
}

void Saving::after_stop(Trainer& trainer, const Scores& scores) {
  if (flags_.folder.empty() || saved_ == trainer.minibatches()) return;
  save(trainer, scores, writer_);
  saved_ = trainer.minibatches();
}

Trainer::Then Saving::after_step(Trainer& trainer, const Scores& scores) {
  using enum Trainer::Then;
  if (flags_.every > 0 && trainer.minibatches() - saved_ >= flags_.every) after_stop(trainer, scores);
  return noted_signal() != 0 ? stop : go_on;
}

void Saving::after_epoch(Trainer& trainer, const Scores& scores) {
  // Saves the best first: if the training is killed between both, it resumes from before this score and writes the best
  // again.
  if (flags_.keep_best && one_of_all(trainer, scores.last_is_best())) save(trainer, scores, best_);
  if (!flags_.folder.empty()) {
    save(trainer, scores, writer_);
    saved_ = trainer.minibatches();
  }
}

bool Saving::stops(const Trainer& trainer) const { return one_of_all(trainer, noted_signal() != 0); }

int Saving::stopped(const Trainer& trainer) {
  int signal = SIGTERM;
  for (const int other : {SIGHUP, SIGINT}) {
    if (one_of_all(trainer, noted_signal() == other)) signal = other;
  }
  print("stopped by %s after minibatch %s%s\n", signal_name(signal).c_str(), grouped(trainer.minibatches()).c_str(),
        writer_ ? "; --resume continues from there" : "");
  return signal;
}

}  // namespace windrow::program
