// Checkpoints of a training that a program runs.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "reporting.h"
#include "saved_model.h"
#include "training_flags.h"
#include "windrow/models/trainer.h"

namespace windrow::program {

/// What the flags say. A value.
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

  /// With --save, call it before the following; see model_record().
  void set_model(Record model) { model_ = std::move(model); }
  /// Call it before the following: the fingerprint of the samples. A training goes on only with the same samples.
  void set_data(std::int64_t fingerprint) { data_ = fingerprint; }
  /// Call it before the following; see training_record().
  void set_flags(Record flags) { training_flags_ = std::move(flags); }
  /// Call it before the following: checkpoints have the epochs of this report. It must outlive this object.
  void set_reporting(Reporting& reporting) { reporting_ = &reporting; }
  /// With --resume, continues from the newest checkpoint, and prints which one and which flags have changed since;
  /// prints those that are damaged. Returns a number that tells checkpoints apart; 0 without --resume. Throws FileError
  /// if there is none, or if it is of another model.
  std::int64_t resume(Trainer& trainer, Scores& scores);
  // All members of a group call the following together.

  /// Saves when it is time. Says whether a signal came to this member: the trainer stops if one came to any of them.
  Trainer::Then after_step(Trainer& trainer, const Scores& scores);
  /// Saves when the trainer has stopped.
  void after_stop(Trainer& trainer, const Scores& scores);
  /// Saves, and also among the best if the last score was the best one.
  void after_epoch(Trainer& trainer, const Scores& scores);
  /// Whether a signal came to any member.
  bool stops(const Trainer& trainer) const;
  /// Says that a signal has stopped the training. Returns the signal: SIGINT, or else SIGHUP, if that came to any
  /// member.
  int stopped(const Trainer& trainer);

 private:
  void open(std::optional<CheckpointWriter>& writer, const std::string& folder, std::size_t keep) const;
  void save_newest(Trainer& trainer, const Scores& scores);
  /// Saves if this member leads; otherwise helps the one that does.
  void save(Trainer& trainer, const Scores& scores, std::optional<CheckpointWriter>& writer) const;

  const SavingFlags flags_;
  Record model_, training_flags_;
  std::int64_t data_ = 0;
  std::optional<CheckpointWriter> writer_, best_;
  Reporting* reporting_ = nullptr;  // null for none
  std::uint64_t saved_ = 0;         // minibatches at the last checkpoint
};

}  // namespace windrow::program
