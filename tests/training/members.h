// Members of a group of data-parallel training, in threads of one process.
#pragma once

#include <filesystem>

#include "tests/training/rows_model.h"
#include "windrow/comm/local.h"
#include "windrow/training/checkpoint.h"
#include "windrow/training/data_parallel.h"

namespace windrow::testing {

/// Calls body(model, communicator) in a thread for each member; each has an engine of its own. The matrices are so
/// large that their sums are cut.
inline void with_members(int members, RowsModel::Options options,
                         const std::function<void(RowsModel&, const Communicator&)>& body) {
  options.rows = 70;
  options.width = 90;
  std::vector<std::unique_ptr<RowsModel>> models;
  std::vector<Device> devices;
  for (int rank = 0; rank < members; ++rank) {
    models.push_back(std::make_unique<RowsModel>(options));
    devices.push_back(models.back()->host);
  }
  const LocalGroup group(devices);
  on_threads(members, [&](int rank) { body(*models[static_cast<std::size_t>(rank)], group[rank]); });
}

/// The same with parameters of each member, on one engine.
inline void with_parameters(int members, const std::function<void(Parameters&, const Communicator&)>& body,
                            const EngineOptions& options = {.workers = 2}) {
  Engine engine(options);
  const LocalGroup group(host_devices(engine, members));
  on_threads(members, [&](int rank) {
    Parameters parameters(group[rank].device(), 1);
    body(parameters, group[rank]);
  });
}

/// How a group trains, with seven samples a step: sample i of a minibatch goes to member i % members, or, if they take
/// turns, to member 0 in every second step.
struct GroupRun {
  int members = 3;
  Method method = Method::adam();
  OptimiserOptions optimiser = {.rate = 0.1, .clip_norm = 50};
  DataParallelOptions parallel = {};
  bool sharded = false;
  EngineOptions engine = {};
  int steps = 5;
  bool take_turns = false;
  std::filesystem::path from = {}, to = {};  // folders of checkpoints, if there are some
  bool restores_first = false;               // before the members are made equal
};
struct GroupResult {
  Floats values;
  std::vector<std::string> states;
};

/// What members have after some steps. At first, member 0 alone has the right parameters.
inline std::vector<GroupResult> trained(const GroupRun& run) {
  std::vector<GroupResult> results(static_cast<std::size_t>(run.members));
  with_members(run.members, {.engine = run.engine}, [&](RowsModel& model, const Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank()), members = results.size();
    if (rank > 0) model.parameters.value(model.matrix).set(Floats(70 * 90, 3));
    Optimiser optimiser(model.parameters, run.method, run.optimiser);
    const TrainingParts parts{.parameters = model.parameters, .optimiser = &optimiser};
    const auto restore_all = [&] { restore(*CheckpointFolder(run.from).newest().checkpoint, parts); };
    if (run.restores_first) restore_all();
    DataParallelOptions how = run.parallel;
    if (run.sharded) how.sharded = &optimiser;
    DataParallel parallel(communicator, model.parameters, how);
    if (!run.from.empty() && !run.restores_first) restore_all();
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(run.steps) * run.optimiser.accumulate; ++i) {
      std::vector<RowsModel::Sample> own;
      const auto all = model.draw_samples(7);
      for (std::size_t k = 0; k < all.size(); ++k) {
        if ((run.take_turns && i % 2 == 1 ? 0 : k % members) == rank) own.push_back(all[k]);
      }
      model.differentiate(own);
      if (optimiser.takes_step()) {
        EXPECT_EQ(parallel.combine(own.size()), 7U);
      }
      optimiser.step(7);
    }
    for (const auto& [name, tensor] : optimiser.tensors()) results[rank].states.push_back(name);
    if (!run.to.empty() && rank == 0) {
      CheckpointWriter(run.to).write(Snapshot(parts).contents(1));
    } else if (!run.to.empty()) {
      optimiser.tensors_of_all();
    }
    results[rank].values = model.values();
  });
  return results;
}

}  // namespace windrow::testing
