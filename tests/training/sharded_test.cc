// Sharded updates, with members in threads of one process.
#include <algorithm>
#include <functional>
#include <limits>
#include <memory>

#include "tests/engine/support.h"
#include "tests/training/files.h"
#include "tests/training/members.h"
#include "windrow/training/checkpoint.h"
#include "windrow/training/data_parallel.h"
#include "windrow/training/internal/simulation.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;
using Names = std::vector<std::string>;
constexpr std::size_t samples_of_a_step = 7;

struct ShardedRun {
  int members = 3;
  bool sharded = true;
  Method method = Method::adam();
  OptimiserOptions optimiser = {.rate = 0.1, .clip_norm = 50};
  std::size_t bucket_bytes = std::size_t{1} << 20;
  EngineOptions engine = {};
  int steps = 4;
  std::filesystem::path from = {}, to = {};  // folders of checkpoints, if there are some
  bool restores_first = false;               // before the update is sharded
};
struct Result {
  Floats values;
  Names states;
};

/// What members have after some steps. Sample i of a minibatch goes to member i % members.
std::vector<Result> trained(const ShardedRun& run) {
  std::vector<Result> results(static_cast<std::size_t>(run.members));
  with_members(run.members, {.engine = run.engine}, [&](RowsModel& model, const Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank()), members = results.size();
    Optimiser optimiser(model.parameters, run.method, run.optimiser);
    const auto restore_all = [&] {
      restore(*CheckpointFolder(run.from).newest().checkpoint,
              {.parameters = model.parameters, .optimiser = &optimiser});
    };
    if (run.restores_first) restore_all();
    DataParallel parallel(communicator, model.parameters,
                          {.bucket_bytes = run.bucket_bytes, .sharded = run.sharded ? &optimiser : nullptr});
    if (!run.from.empty() && !run.restores_first) restore_all();
    for (int step = 0; step < run.steps; ++step) {
      for (std::uint64_t i = 0; i < run.optimiser.accumulate; ++i) {
        std::vector<RowsModel::Sample> own;
        const auto all = model.draw_samples(samples_of_a_step);
        for (std::size_t k = rank; k < all.size(); k += members) own.push_back(all[k]);
        model.differentiate(own);
        if (optimiser.takes_step()) parallel.combine(own.size());
        optimiser.step(samples_of_a_step);
      }
    }
    for (const auto& [name, tensor] : optimiser.tensors()) results[rank].states.push_back(name);
    if (!run.to.empty() && rank == 0) {
      CheckpointWriter(run.to).write(Snapshot({.parameters = model.parameters, .optimiser = &optimiser}).contents(1));
    } else if (!run.to.empty()) {
      optimiser.tensors_of_all();
    }
    results[rank].values = model.values();
  });
  return results;
}

/// All members have the bits of members that do not shard the update, and each state is at one member.
void expect_equal(ShardedRun run) {
  const std::vector<Result> sharded = trained(run);
  run.sharded = false;
  const std::vector<Result> whole = trained(run);
  Names states;
  for (const Result& result : sharded) {
    ASSERT_EQ(result.values, whole.front().values);
    states.insert(states.end(), result.states.begin(), result.states.end());
  }
  Names all = whole.front().states;
  if (run.members > 1 && !all.empty()) {
    EXPECT_LT(sharded.front().states.size(), all.size());
  }
  std::ranges::sort(states);
  std::ranges::sort(all);
  EXPECT_EQ(states, all);
}

TEST(ShardedUpdate, GivesTheBitsOfOneThatIsNotWithEachStateAtOneMember) {
  for (const Method& method : {Method::sgd(), Method::momentum(), Method::adam()}) {
    for (const int members : {2, 3, 4}) {
      SCOPED_TRACE(method.name + ", " + std::to_string(members));
      expect_equal({.members = members, .method = method});
    }
  }
  SCOPED_TRACE("options");
  expect_equal({.optimiser = {.rate = 0.1}, .bucket_bytes = 1});
  expect_equal({.optimiser = {.rate = 0.1, .decay = 0.1, .clip_norm = 2, .accumulate = 3}});
  expect_equal({.optimiser = {.rate = 0.1, .clip_norm = 2, .tables = OptimiserOptions::Tables::dense}});
  expect_equal({.optimiser = {.rate = 0.1, .penalty = 0.1}, .engine = {.policy = Policy::chaos, .workers = 3}});
}

class ShardedCheckpoints : public FileTest {};

TEST_F(ShardedCheckpoints, AreThoseOfAnUpdateThatIsNotShardedAndGoOnWithAnyNumberOfMembers) {
  const auto sharded = folder / "sharded", whole = folder / "whole", later = folder / "later";
  trained({.to = sharded});
  trained({.sharded = false, .to = whole});
  const std::string file = "000000000001.safetensors";
  EXPECT_EQ(content_of(sharded / file), content_of(whole / file));
  for (const int members : {1, 2, 4}) {
    SCOPED_TRACE(members);
    expect_equal({.members = members, .steps = 3, .from = sharded});
  }
  expect_equal({.members = 3, .steps = 3, .from = sharded, .restores_first = true});
  trained({.members = 2, .steps = 0, .from = sharded, .to = later});
  EXPECT_EQ(content_of(later / file), content_of(whole / file));
}

/// Also if it is not sharded.
TEST(ShardedUpdate, FailsAtAllMembersIfTheMinibatchOfOneFails) {
  for (const bool sharded : {false, true}) {
    with_members(3, {}, [sharded](RowsModel& model, const Communicator& communicator) {
      Optimiser optimiser(model.parameters, Method::adam(), {.clip_norm = 1});
      DataParallel parallel(communicator, model.parameters, {.sharded = sharded ? &optimiser : nullptr});
      auto samples = model.draw_samples(2);
      if (communicator.rank() == 2) samples[0].of_matrix[0] = std::numeric_limits<float>::quiet_NaN();
      model.differentiate(samples);
      optimiser.step(parallel.combine(samples.size()));
      for (const Parameter& parameter : {model.matrix, model.table}) {
        try {
          model.parameters.value(parameter).get();
          ADD_FAILURE() << "rank " << communicator.rank() << " goes on";
        } catch (const OpError& error) {
          EXPECT_NE(std::string(error.what()).find("loss"), std::string::npos) << error.what();
        }
      }
    });
  }
}

TEST(ShardedUpdate, RefusesWhatItCannotDo) {
  with_members(2, {}, [](RowsModel& model, const Communicator& communicator) {
    Optimiser optimiser(model.parameters, Method::adam());
    RowsModel other;
    Optimiser of_others(other.parameters, Method::adam());
    const auto made = [&](const DataParallelOptions& options) {
      DataParallel(communicator, model.parameters, options);
    };
    EXPECT_EQ(error_of<MisuseError>(
                  [&] { made({.compression = {.form = Compression::Form::bfloat16}, .sharded = &optimiser}); }),
              "DataParallelOptions: compression, and a sharded update; expected one of both");
    EXPECT_EQ(error_of<MisuseError>([&] { made({.sharded = &of_others}); }),
              "DataParallelOptions.sharded: an optimiser of other parameters; expected one of these");
    const auto refused_at_1 = [&] { made({.sharded = communicator.rank() == 1 ? &of_others : &optimiser}); };
    if (communicator.rank() == 1) {
      EXPECT_THROW(refused_at_1(), MisuseError);
    } else {
      EXPECT_EQ(error_of<CommError>(refused_at_1), "DataParallel: rank 1 was refused its options");
    }
    const bool shards = communicator.rank() == 1;
    const std::string differ = error_of<CommError>([&] { made({.sharded = shards ? &optimiser : nullptr}); });
    EXPECT_EQ(differ, shards ? "DataParallel: rank 1 has a sharded update, unlike rank 0"
                             : "DataParallel: rank 0 has no sharded update, unlike rank 1");
    DataParallel parallel(communicator, model.parameters, {.sharded = &optimiser});
    EXPECT_EQ(error_of<MisuseError>([&] { parallel.average(); }),
              "DataParallel::average: a sharded update; expected combine() in each step");
    EXPECT_EQ(error_of<MisuseError>([&] { simulate({.layers = {{.bytes = 4}}, .parallel = {.sharded = &optimiser}}); }),
              "simulate: a sharded update; expected none");
    model.differentiate(model.draw_samples(2));
    const std::string alone = error_of<MisuseError>([&] { optimiser.step(2); });
    EXPECT_NE(alone.find("gradients that were not combined"), std::string::npos) << alone;
    optimiser.step(parallel.combine(2));
    EXPECT_THROW(optimiser.step(2), MisuseError);
    model.parameters.add("later", 2, 2, Initial::zeros());
    EXPECT_EQ(error_of<MisuseError>([&] { optimiser.tensors_of_all(); }),
              "sharded update: parameter 'later' was added after DataParallel was made; expected it before");
  });
}

}  // namespace
}  // namespace windrow::testing
