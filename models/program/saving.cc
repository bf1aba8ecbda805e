#include "saving.h"

#include <csignal>
#include <utility>

#include "flags.h"
#include "program.h"
#include "signals.h"
#include "windrow/comm/communicator.h"
#include "windrow/training/file_error.h"

namespace windrow::program {
namespace {

/// Of the best checkpoints: a program that loads the best one while a better one is written still finds it.
constexpr std::size_t keep_of_best = 2;

/// Whether one of the members has noted it.
bool one_of_all(const Trainer& trainer, bool noted) {
  using enum Trainer::Then;
  return trainer.agree(noted ? stop : go_on) == stop;
}

}  // namespace

void add_saving_flags(CLI::App& command, SavingFlags& to) {
  flag(command, "--save", to.folder, "Folder for checkpoints, after each epoch", new_folder());
  flag(command, "--save-every", to.every, "Also saves after so many minibatches; 0: only after epochs",
       whole_number(0, 1 << 30));
  flag(command, "--keep", to.keep, "Checkpoints to keep: the newest ones", whole_number(1, 1 << 20));
  command
      .add_flag("--keep-best", to.keep_best,
                "Also keeps the checkpoint with the best validation score, in the folder best inside that of --save")
      ->disable_flag_override();
  command
      .add_flag(
          "--resume", to.resume,
          "Continues from the newest checkpoint in the folder of --save, with the same bits (not with --compress or "
          "--local-steps)")
      ->disable_flag_override();
}

Saving::Saving(const SavingFlags& flags, bool leads) : flags_(flags) {
  if (flags.folder.empty()) {
    if (flags.resume) throw MisuseError("--resume: no --save; expected the folder of the checkpoints");
    if (flags.every > 0) throw MisuseError("--save-every: no --save; expected the folder for the checkpoints");
    if (flags.keep != SavingFlags().keep)
      throw MisuseError("--keep: no --save; expected the folder for the checkpoints");
    if (flags.keep_best) throw MisuseError("--keep-best: no --save; expected the folder for the checkpoints");
    return;
  }
  if (!leads) return;
  const std::filesystem::path parent = std::filesystem::path(flags.folder).parent_path();
  // Before the writer makes the folder.
  std::error_code ignored;
  const bool there = std::filesystem::exists(flags.folder, ignored);
  if (flags.resume && (!there || CheckpointFolder(flags.folder).steps().empty())) {
    throw FileError(why_no_checkpoint(flags.folder, {}));
  }
  std::error_code error;
  if (!parent.empty()) std::filesystem::create_directories(parent, error);
  if (error) throw FileError(parent.string() + ": cannot be created: " + error.message() + "; expected a folder");
  open(writer_, flags.folder, flags.keep);
  if (flags.keep_best) open(best_, flags.folder + "/best", keep_of_best);
}

/// Opens a folder for writing.
void Saving::open(std::optional<CheckpointWriter>& writer, const std::string& folder, std::size_t keep) const {
  writer.emplace(folder, CheckpointWriterOptions{.keep = keep});
  if (!flags_.resume && !CheckpointFolder(folder).steps().empty()) {
    throw FileError(folder + ": has checkpoints of another training; expected --resume, or another folder");
  }
}

std::int64_t Saving::resume(Trainer& trainer, Scores& scores) {
  if (!flags_.resume) return 0;
  const SavedCheckpoint checkpoint = newest_checkpoint(flags_.folder);
  checkpoint.document.require_format(training_format);
  require_same_model(checkpoint.document.at("model").record(), model_, checkpoint.tensors.path().string());
  if (checkpoint.document.contains("data") && checkpoint.document.at("data").integer() != data_) {
    throw FileError(checkpoint.tensors.path().string() +
                    ": of a training on other data; expected the same samples, so that the same bits follow");
  }
  trainer.resume(checkpoint);
  scores.set(checkpoint.document.at("scores").record());
  if (reporting_ != nullptr && checkpoint.document.contains("epochs")) {
    reporting_->set_epochs(checkpoint.document.at("epochs").list());
  }
  saved_ = checkpoint.step;
  print("continuing from minibatch %s, in %s\n", grouped(checkpoint.step).c_str(),
        checkpoint.tensors.path().string().c_str());
  if (checkpoint.document.contains("flags")) {  // earlier versions saved none
    const std::string changes = changed_flags(checkpoint.document.at("flags").record(), training_flags_);
    if (!changes.empty()) print("continuing with %s\n", changes.c_str());
  }
  print("\n");
  return fingerprint(std::to_string(checkpoint.step) + ' ' + checkpoint.document.json());
}

void Saving::save(Trainer& trainer, const Scores& scores, std::optional<CheckpointWriter>& writer) const {
  if (!writer) return trainer.help_save();
  Record document;
  document.set_format(training_format)
      .set("model", model_)
      .set("flags", training_flags_)
      .set("data", data_)
      .set("scores", scores.record());
  if (reporting_ != nullptr && reporting_->on()) document.set("epochs", reporting_->epochs());
  trainer.save(*writer, std::move(document));
}

/// Unless it is saved already.
void Saving::save_newest(Trainer& trainer, const Scores& scores) {
  if (flags_.folder.empty() || saved_ == trainer.minibatches()) return;
  save(trainer, scores, writer_);
  saved_ = trainer.minibatches();
}

Trainer::Then Saving::after_step(Trainer& trainer, const Scores& scores) {
  using enum Trainer::Then;
  if (flags_.every > 0 && trainer.minibatches() - saved_ >= flags_.every) save_newest(trainer, scores);
  return noted_signal() != 0 ? stop : go_on;
}

void Saving::after_stop(Trainer& trainer, const Scores& scores) { save_newest(trainer, scores); }

void Saving::after_epoch(Trainer& trainer, const Scores& scores) {
  // The best first: a training that is killed between both goes on from before the score, and writes the best again.
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
