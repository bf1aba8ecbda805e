// After figure 10 and table 2 of Cavs: throughput of each model with each optimisation disabled, and the time of steps
// by what they do.
#include <algorithm>
#include <array>

#include "batching/tables.h"
#include "batching/turns.h"

namespace windrow::perf {
namespace {

struct Without {
  const char* name;
  const char* about;
  void (*leave_out)(RunnerOptions& options);
};

const Without each[] = {
    {"specialisation", "omit computation on children and inputs that a vertex lacks",
     [](RunnerOptions& options) { options.optimisations.specialisation = false; }},
    {"eager", "compute what depends on no child first, for all vertices at once",
     [](RunnerOptions& options) { options.optimisations.eager = false; }},
    {"lazy", "compute what no other vertex needs last, for all vertices at once; likewise parameter gradients",
     [](RunnerOptions& options) { options.optimisations.lazy = false; }},
    {"slots", "write a state directly to where its consumers read it",
     [](RunnerOptions& options) { options.optimisations.slots = false; }},
    {"in-place", "let attention read the states of children where they lie, without copies",
     [](RunnerOptions& options) { options.optimisations.in_place = false; }},
    {"sharing", "reuse the memory of values that are no longer needed",
     [](RunnerOptions& options) { options.optimisations.sharing = false; }},
    {"fusion", "run small steps one after another over tiles that stay in the cache",
     [](RunnerOptions& options) { options.optimisations.fusion = false; }},
    {"streaming", "overlap computation for all vertices with computation level by level",
     [](RunnerOptions& options) { options.optimisations.streaming = false; }},
    {"splitting", "cut large ops by rows for several workers",
     [](RunnerOptions& options) { options.optimisations.splitting = false; }},
    {"ahead", "keep two minibatches in flight", [](RunnerOptions& options) { options.ahead = 1; }}};

/// All optimisations on, then each one off alone, then all off.
std::vector<RunnerOptions> variants() {
  std::vector<RunnerOptions> all(1);
  RunnerOptions off;
  for (const Without& one : each) {
    one.leave_out(all.emplace_back());
    one.leave_out(off);
  }
  all.push_back(off);
  return all;
}

const struct {
  const char* name;
  Optimisations optimisations;
} timed_variants[] = {{"fused", {}}, {"fused, no slots", {.slots = false}}, {"unfused", {.fusion = false}}};

/// A variant of training, and the times of its steps in each repetition.
class TimedSteps {
 public:
  TimedSteps(LoadedModel& loaded, int batch, const Optimisations& optimisations)
      : trainer_(loaded.trainer(batch, {.optimisations = optimisations, .time_steps = true})),
        samples_(loaded.samples_of_a_turn(trainer_, loaded.samples())) {}

  double run() {
    const StepTimes before = trainer_.stats().times;
    const double rate = trainer_.train(samples_).units_per_second();
    StepTimes times = trainer_.stats().times;
    times -= before;
    const auto samples = static_cast<double>(samples_);
    products_.push_back(static_cast<double>(times.product_ns) / 1e6 / samples);
    arithmetic_.push_back(static_cast<double>(times.arithmetic_ns) / 1e6 / samples);
    moves_.push_back(static_cast<double>(times.move_ns) / 1e6 / samples);
    return rate;
  }
  /// Per sample: products, arithmetic, moves.
  std::array<double, 3> milliseconds() const {
    return {median_of(products_), median_of(arithmetic_), median_of(moves_)};
  }

 private:
  Trainer& trainer_;
  const std::size_t samples_;
  std::vector<double> products_, arithmetic_, moves_;
};

}  // namespace

std::vector<std::string> optimisation_names() {
  std::vector<std::string> names;
  for (const Without& one : each) names.push_back(one.name);
  return names;
}

std::string optimisations_text() {
  std::string text = "Optimisations:\n";
  for (const Without& one : each) {
    const std::string name = one.name;
    text += "  " + name + std::string(16 - name.size(), ' ') + one.about + "\n";
  }
  return text;
}

void leave_out(RunnerOptions& options, const std::string& optimisation) {
  const auto found =
      std::find_if(std::begin(each), std::end(each), [&](const auto& one) { return one.name == optimisation; });
  if (found == std::end(each))
    throw MisuseError("unknown optimisation '" + optimisation + "'; expected a name listed by --help");
  found->leave_out(options);
}

Table ablation(const TableOptions& options) {
  std::vector<Table::Column> columns = {{"model"}, {"batch", 0}, {"unit"}, {"all on", 0}};
  for (const Without& one : each) columns.push_back({std::string("no ") + one.name, 1, " %"});
  columns.push_back({"all off", 1, " %"});
  Table table("Throughput with each optimisation disabled",
              "Training throughput. All on: every optimisation of the runner (RunnerOptions::optimisations), with two "
              "minibatches in flight (ahead), in units/s. The other columns: one optimisation disabled, or all, as a "
              "share of the throughput with all on. " +
                  turns_text(options) + "." + sizes_text(options),
              columns);
  for (const std::string& model : options.models) {
    LoadedModel loaded(model, options);
    for (const int batch : options.batches) {
      Turns turns;
      for (const RunnerOptions& variant : variants()) {
        turns.add(loaded.turn(loaded.trainer(batch, variant), loaded.samples()));
      }
      turns.take(options.repetitions);
      std::vector<Table::Entry> row = {model, static_cast<double>(batch), loaded.workload().kind->unit + "/s",
                                       turns.median(0)};
      for (std::size_t i = 1; row.size() < columns.size(); ++i) row.push_back(100 * turns.ratio(i, 0));
      table.add(std::move(row));
    }
  }
  return table;
}

Table step_times(const TableOptions& options) {
  Table table(
      "Time of memory operations and of computation",
      "Worker time per training sample in ms, by kind of step: matrix products with parameters; other "
      "arithmetic; memory operations, that is lookups, gathers, scatters, copies and fills. Fused, the default: "
      "small steps run over tiles that stay in the cache. Unfused: each step runs over all of its rows. No "
      "slots: each vertex gathers the states of its children. The clock is read around each step "
      "(RunnerOptions::time_steps). " +
          turns_text(options) + "." + sizes_text(options),
      {{"model"},
       {"batch", 0},
       {"variant"},
       {"products ms", 3},
       {"arithmetic ms", 3},
       {"memory ms", 3},
       {"memory share", 1, " %"},
       {"units/s", 0}});
  for (const std::string& model : options.models) {
    LoadedModel loaded(model, options);
    for (const int batch : options.batches) {
      Turns turns;
      std::vector<std::unique_ptr<TimedSteps>> all;
      for (const auto& variant : timed_variants) {
        TimedSteps& timed = *all.emplace_back(std::make_unique<TimedSteps>(loaded, batch, variant.optimisations));
        turns.add([&timed] { return timed.run(); });
      }
      turns.take(options.repetitions);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const auto [products, arithmetic, moves] = all[i]->milliseconds();
        table.add({model, static_cast<double>(batch), timed_variants[i].name, products, arithmetic, moves,
                   100 * moves / (products + arithmetic + moves), turns.median(i)});
      }
    }
  }
  return table;
}

}  // namespace windrow::perf
