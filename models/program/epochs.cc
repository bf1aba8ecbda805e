#include "epochs.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <sstream>
#include <system_error>

#include "program.h"
#include "report.h"
#include "windrow/training/file_calls.h"
#include "windrow/training/file_error.h"
#include "windrow/training/whole_file.h"

namespace windrow::program {

EpochTable::EpochTable(Trainer& trainer, const Workload& workload)
    : columns_{"epoch", "training loss"}, workload_(workload) {
  for (const std::string& name : trainer.metric_names()) {
    columns_.push_back((columns_.size() == 2 ? "validation: " : "") + name);
  }
  columns_.push_back(workload.kind->unit + "/s");
}

void EpochTable::print_epoch(std::uint64_t epoch, const Trainer::Pass& pass, const std::vector<Metric>& score) const {
  std::vector<std::string> cells = {std::to_string(epoch), loss_text(pass.loss)};
  for (const Metric& metric : score) {
    cells.push_back(workload_.validation.empty() ? "-" : metric_text(metric));  // there is no validation set
  }
  cells.push_back(std::to_string(std::llround(pass.units_per_second())));
  print_row(cells);
}

void EpochTable::print_row(const std::vector<std::string>& cells) const {
  std::string row;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::size_t width = i == 0 ? 5 : std::max<std::size_t>(columns_[i].size(), 8);
    row += (i == 0 ? "" : "  ") + std::string(width - std::min(width, cells[i].size()), ' ') + cells[i];
  }
  print("%s\n", row.c_str());
}

Record metrics_record(const std::vector<Metric>& metrics) {
  Record record;
  for (const Metric& metric : metrics) record.set(metric.name, metric.value);
  return record;
}

Record epoch_record(const Trainer& trainer, const Trainer::Pass& pass, const std::vector<Metric>& score,
                    const Workload& workload) {
  Record record;
  record.set("epoch", trainer.epochs()).set("minibatches", trainer.minibatches()).set("training_loss", pass.loss);
  record.set("seconds", pass.seconds).set(workload.kind->unit + "_per_second", pass.units_per_second());
  if (workload.validation.empty()) return record;
  if (trainer.validation_loss()) record.set("validation_loss", *trainer.validation_loss());
  return record.set("validation", metrics_record(score));
}

EpochLog::EpochLog(const std::filesystem::path& folder, std::uint64_t last) : file_(folder / "epochs.jsonl") {
  constexpr std::size_t most = std::size_t{1} << 30;
  std::string kept;
  if (std::filesystem::exists(file_)) {
    std::istringstream text(read_whole_file(file_, most));
    for (std::string line; std::getline(text, line);) {
      try {
        if (Record::parse(line, file_.string()).at("epoch").count() <= last) kept += line + "\n";
      } catch (const FileError&) {  // such as the begin of a line, which a program that was killed has left
      }
    }
  }
  WholeFile file(file_);
  file.write(kept);
  file.commit();
}

void EpochLog::add(const Record& epoch) {
  std::ofstream out(file_, std::ios::app | std::ios::binary);
  out << epoch.json(JsonStyle::compact) << '\n' << std::flush;
  if (!out) {
    throw FileError(file_.string() + ": cannot be written: " + std::generic_category().message(errno) +
                    "; expected a file to which epochs can be added");
  }
}

}  // namespace windrow::program
