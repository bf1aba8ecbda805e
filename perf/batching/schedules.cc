// After table 1 of DyNet and section 5.1 of Cavs: throughput of each model without batching and with each schedule
// policy, by batch size.
#include <algorithm>

#include "batching/tables.h"
#include "batching/turns.h"

namespace windrow::perf {
namespace {

constexpr SchedulePolicy policies[] = {SchedulePolicy::depth, SchedulePolicy::agenda, SchedulePolicy::complete,
                                       SchedulePolicy::level};

/// The largest minibatch that is measured one vertex at a time: the cost per sample is the same in larger ones.
constexpr int largest_serial = 4;

}  // namespace

Table schedules(const TableOptions& options) {
  Table table("Throughput without batching and with each schedule policy",
              "Training throughput in units/s. No batching: schedule policy serial, one vertex at a time by the same "
              "kernels, in minibatches of at most four samples. Best speedup: the fastest policy over no batching. The "
              "parser builds its graphs while it runs, from lazy expressions. " +
                  turns_text(options) + "." + sizes_text(options),
              {{"model"},
               {"batch", 0},
               {"unit"},
               {"no batching", 0},
               {std::string(to_string(policies[0])), 0},
               {std::string(to_string(policies[1])), 0},
               {std::string(to_string(policies[2])), 0},
               {std::string(to_string(policies[3])), 0},
               {"best speedup", 1, " x"}});
  for (const std::string& model : options.models) {
    LoadedModel loaded(model, options);
    for (const int batch : options.batches) {
      Turns turns;
      const auto add = [&](SchedulePolicy policy, int size, std::size_t least) {
        turns.add(loaded.turn(loaded.trainer(size, {.schedule = policy}), least));
      };
      const int few = std::min(batch, largest_serial);
      add(SchedulePolicy::serial, few, static_cast<std::size_t>(few));
      for (const SchedulePolicy policy : policies) add(policy, batch, loaded.samples());
      turns.take(options.repetitions);
      std::vector<Table::Entry> row = {model, static_cast<double>(batch), loaded.workload().kind->unit + "/s",
                                       turns.median(0)};
      double best = 0;
      for (std::size_t i = 1; i <= std::size(policies); ++i) {
        row.push_back(turns.median(i));
        best = std::max(best, turns.ratio(i, 0));
      }
      row.push_back(best);
      table.add(std::move(row));
    }
  }
  return table;
}

}  // namespace windrow::perf
