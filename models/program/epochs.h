// The epochs of a training: as a table, as JSON, and in a file of its folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "windrow/models/trainer.h"
#include "windrow/training/record.h"

namespace windrow::program {

/// The table of epochs, of at most 80 columns. A value.
class EpochTable {
 public:
  EpochTable(Trainer& trainer, const Workload& workload);

  void print_head() const { print_row(columns_); }
  void print_epoch(std::uint64_t epoch, const Trainer::Pass& pass, const std::vector<Metric>& score) const;

 private:
  void print_row(const std::vector<std::string>& cells) const;

  std::vector<std::string> columns_;
  const Workload& workload_;
};

/// An epoch that has ended and was scored. Scores are by the names of the metrics; there are none without a validation
/// set.
Record epoch_record(const Trainer& trainer, const Trainer::Pass& pass, const std::vector<Metric>& score,
                    const Workload& workload);
/// The values by their names.
Record metrics_record(const std::vector<Metric>& metrics);

/// The file epochs.jsonl in a folder, with a line for each epoch. An owner.
class EpochLog {
 public:
  /// Keeps the epochs up to `last` of an earlier run of the training, and drops later ones, which will come again.
  /// Throws FileError.
  EpochLog(const std::filesystem::path& folder, std::uint64_t last);
  /// Throws FileError.
  void add(const Record& epoch);

 private:
  const std::filesystem::path file_;
};

}  // namespace windrow::program
