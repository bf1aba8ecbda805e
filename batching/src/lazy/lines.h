// The lines of the program that recorded what a flush computes.
#pragma once

#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "lazy/runs.h"
#include "run/origins.h"

namespace windrow::lazy {

/// The lines of the runs of one flush. Copies what it needs from the record, since ops may use it after clear().
class Lines final : public Origins {
 public:
  Lines(const Record& record, const std::vector<Run>& runs);
  void add_rows(const std::string& tensor, std::vector<std::source_location> rows) { rows_[tensor] = std::move(rows); }

  std::string of(std::int32_t vertex, const Operator* op) const override;
  std::string of_row(const std::string& tensor, Index row) const override;

 private:
  struct Line {
    std::uint32_t key;
    std::source_location from;
  };
  std::vector<const Operator*> ops_;  // by key; null for an input
  std::vector<Line> lines_;           // by node, run after run; one for a call
  std::vector<std::size_t> begin_;    // by run; the number of lines at the end
  std::map<std::string, std::vector<std::source_location>> rows_;
};

}  // namespace windrow::lazy
