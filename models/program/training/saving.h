// Checkpoints of a training that a program runs, and how programs find and check them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "program/options/training_flags.h"
#include "windrow/models/saved_model.h"
#include "windrow/models/trainer.h"

namespace windrow::program {

/// Throws FileError unless `saved` is the model that the flags and the data have made. `place` names the source of
/// `saved`.
void require_same_model(const Record& saved, const Record& made, const std::string& place);

/// "--batch 32 (was 64), --rate 0.01 (was 0.002)": the flags in both records whose values differ; empty if there is
/// none.
std::string changed_flags(const Record& saved, const Record& now);

/// Loads the newest checkpoint that is not damaged; prints a line on standard error for each that is. Throws FileError
/// if there is none.
SavedCheckpoint newest_checkpoint(const std::string& folder);

/// The values of the flags. A value.
struct SavingFlags {
  std::string folder = {};  ///< empty: nothing is saved
  std::uint64_t every = 0;  ///< minibatches; 0: after each epoch only
  std::size_t keep = 3;
  bool keep_best = false;
  bool resume = false;
};

void add_saving_flags(CLI::App& command, SavingFlags& to);

/// Saves a training: also when a signal is noted (signals.h), which ends the training after the current step. An owner.
class Saving {
 public:
  /// Throws MisuseError for --resume without --save, and FileError as CheckpointWriter does.
  /// A member of a group that does not lead resumes, but saves nothing.
  explicit Saving(const SavingFlags& flags, bool leads = true);

  /// The records about the training in checkpoints, which must match when it resumes. Set it before the following
  /// calls.
  struct Contents {
    Record model = {}, flags = {};  ///< with --save: model_record(); training_record()
    std::int64_t data = 0;          ///< the fingerprint of the samples
  } contents;
  /// With --resume, continues from the newest checkpoint, and prints which one and which flags have changed since;
  /// prints those that are damaged. Returns a number that identifies the checkpoint; 0 without --resume. Throws
  /// FileError if there is none, or if it is of another model.
  std::int64_t resume(Trainer& trainer, Scores& scores);
  // All members of a group call the following together.

  /// Saves if it is time. Returns whether a signal came to this member; the trainer stops if one came to any member.
  Trainer::Then after_step(Trainer& trainer, const Scores& scores);
  /// Saves when the trainer has stopped, unless it has saved already.
  void after_stop(Trainer& trainer, const Scores& scores);
  /// Saves, and also among the best if the last score was the best one.
  void after_epoch(Trainer& trainer, const Scores& scores);
  /// Whether a signal came to any member.
  bool stops(const Trainer& trainer) const;
  /// Prints that a signal has stopped the training. Returns the signal: SIGINT, or else SIGHUP, if that came to any
  /// member.
  int stopped(const Trainer& trainer);

 private:
  void open(std::optional<CheckpointWriter>& writer, const std::string& folder, std::size_t keep) const;
  /// Saves if this member leads; otherwise helps the one that does.
  void save(Trainer& trainer, const Scores& scores, std::optional<CheckpointWriter>& writer) const;

  const SavingFlags flags_;
  std::optional<CheckpointWriter> writer_, best_;
  std::uint64_t saved_ = 0;  // minibatches at the last checkpoint
};

}  // namespace windrow::program
