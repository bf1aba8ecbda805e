// Data-parallel training and sharded updates, with members in threads of one process.
#include "windrow/training/data_parallel.h"

#include "tests/batching/blocked_chain.h"
#include "tests/devices/simulated.h"
#include "tests/filled.h"
#include "tests/training/files.h"
#include "tests/training/members.h"
#include "windrow/comm/mpi.h"
#include "windrow/training/internal/deal.h"
#include "windrow/training/internal/simulation.h"
#include "windrow/training/optimiser.h"

namespace windrow::testing {
namespace {

constexpr int steps = 5;

TEST(DataParallel, TakesTheStepsOfOneMemberWithAllSamples) {
  for (const Method& method : {Method::sgd(), Method::momentum(), Method::adam()}) {
    SCOPED_TRACE(method.name);
    const Floats expected = trained({.members = 1, .method = method}).front().values;
    for (const int members : {2, 3, 4}) {
      for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{1} << 20}) {
        const auto results = trained(
            {.members = members, .method = method, .parallel = {.bucket_bytes = bucket_bytes}, .take_turns = true});
        for (const auto& [values, states] : results) {
          ASSERT_EQ(values, results.front().values);
          for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 2e-4) << "element " << i;
        }
      }
    }
  }
}

TEST(DataParallel, GivesTheSameBitsWithEveryPolicyAndNumberOfWorkers) {
  const DataParallelOptions small{.bucket_bytes = 1, .part_bytes = 0};
  const Floats expected = trained({.parallel = small, .take_turns = true}).front().values;
  for (const EngineOptions& engine :
       {EngineOptions{.policy = Policy::serial}, EngineOptions{.policy = Policy::pool, .workers = 1},
        EngineOptions{.policy = Policy::per_device, .workers = 2},
        EngineOptions{.policy = Policy::chaos, .workers = 3}}) {
    EXPECT_EQ(trained({.parallel = small, .engine = engine, .take_turns = true}).back().values, expected);
  }
  for (const bool priority : {false, true}) {
    for (const std::size_t part_bytes : {std::size_t{0}, std::size_t{64}}) {
      const DataParallelOptions how{.bucket_bytes = 1, .part_bytes = part_bytes, .priority = priority};
      EXPECT_EQ(trained({.parallel = how, .take_turns = true}).back().values, expected)
          << priority << ", " << part_bytes;
    }
  }
}

TEST(DataParallel, RefusesAParameterThatIsFrozenAtSomeMembers) {
  with_members(2, {.engine = {.workers = 2}}, [](RowsModel& model, const Communicator& communicator) {
    DataParallel parallel(communicator, model.parameters);
    if (communicator.rank() == 1) model.parameters.freeze(model.matrix);
    model.differentiate(model.draw_samples(2));
    expect_error<CommError>([&] { parallel.combine(2); },
                            "'" + model.parameters.name(model.matrix) + "' is not frozen at rank 0");
    if (communicator.rank() == 0) model.parameters.freeze(model.matrix);
    model.differentiate(model.draw_samples(2));
    EXPECT_EQ(parallel.combine(2), 4u);
  });
}

/// Of all members, after steps of which two are bad, and are skipped or not taken.
std::vector<Floats> values_after_bad_steps(bool skip, bool sharded, const EngineOptions& engine) {
  constexpr int without_number = 1, without_loss = 3;
  std::vector<Floats> results(3);
  const auto body = [&](RowsModel& model, const Communicator& communicator) {
    const int rank = communicator.rank();
    Optimiser optimiser(model.parameters, Method::adam(), {.rate = 0.1, .clip_norm = 50});
    DataParallel parallel(communicator, model.parameters, {.sharded = sharded ? &optimiser : nullptr});
    for (int step = 0; step < steps; ++step) {
      auto samples = model.draw_samples(4);
      std::swap(samples[0], samples[static_cast<std::size_t>(rank)]);
      if (step == without_number && rank == 1) samples[0].of_matrix[0] = std::numeric_limits<float>::quiet_NaN();
      if (step == without_loss && rank == 2) samples[0].of_table[1] = 1e30f;  // whose gradient is finite
      if (!skip && (step == without_number || step == without_loss)) continue;
      model.differentiate({samples[0]});
      optimiser.step(parallel.combine(1));
    }
    results[static_cast<std::size_t>(rank)] = model.values();
    EXPECT_EQ(optimiser.progress().steps, 3u);
    const SkippedSteps skipped = model.parameters.skipped_steps();
    ASSERT_EQ(skipped.count, skip ? 2u : 0u);
    if (!skip) return;
    EXPECT_EQ(skipped.last[0].step, 1u);
    EXPECT_EQ(skipped.last[1].step, 3u);
    const auto says = [&](std::size_t i, const std::string& text) {
      EXPECT_NE(skipped.last[i].why.find(text), std::string::npos) << "rank " << rank << ": " << skipped.last[i].why;
    };
    if (rank == 1) says(0, "loss");
    says(1, rank == 2 ? "loss" : "a loss or gradient of rank 2 is not finite");
  };
  with_members(3, {.engine = engine, .non_finite = skip ? NonFinite::skip : NonFinite::fail}, body);
  return results;
}

TEST(DataParallel, AllMembersSkipTheStepInWhichOneIsNotFinite) {
  for (const bool sharded : {false, true}) {
    const std::vector<Floats> expected = values_after_bad_steps(false, sharded, {.workers = 2});
    for (const EngineOptions& engine : {EngineOptions{.policy = Policy::serial}, EngineOptions{.workers = 2}}) {
      const std::vector<Floats> skipping = values_after_bad_steps(true, sharded, engine);
      for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(skipping[rank], expected[0]) << rank;
    }
  }
  with_members(2, {.non_finite = NonFinite::skip}, [](RowsModel& model, const Communicator& communicator) {
    EXPECT_THROW(DataParallel(communicator, model.parameters, {.compression = {.form = Compression::Form::bfloat16}}),
                 MisuseError);
  });
}

/// Both members of a group take a step. Their backward passes wait at the `call`-th call of each device until that
/// parameter's gradients are summed.
void expect_sums_while_passes_wait(const Parameter BlockedChain::*parameter, int call,
                                   Device (*open)(Engine&) = BlockedChain::blocked_host) {
  BlockedChain zero({.workers = 2}, open), one({.workers = 2}, open);
  std::array<BlockedChain*, 2> chains = {&zero, &one};
  const LocalGroup group({zero.device, one.device});
  std::array<Awaited, 2> sums;
  const DuringBackward wait([&] {
    static thread_local int calls = 0;  // a device's lane has a thread of its own
    if (++calls < call) return;
    for (const Awaited& sum : sums) sum.wait();
  });
  on_threads(2, [&](int rank) {
    BlockedChain& chain = *chains[static_cast<std::size_t>(rank)];
    DataParallel parallel(group[rank], chain.parameters, {.bucket_bytes = 1});
    Optimiser optimiser(chain.parameters, Method::sgd(), {.rate = 0.1});
    const Minibatch minibatch = chain.differentiate();
    const std::size_t samples = parallel.combine(3);
    chain.tell(chain.*parameter, sums[static_cast<std::size_t>(rank)]);
    optimiser.step(samples);
    EXPECT_NO_THROW(EXPECT_GT(minibatch.loss(), 0));
  });
  for (const auto each : {&BlockedChain::w, &BlockedChain::u, &BlockedChain::head}) {
    EXPECT_EQ(zero.parameters.value(zero.*each).get(), one.parameters.value(one.*each).get());
  }
}

TEST(DataParallel, SumsAGradientWhileTheBackwardPassRuns) { expect_sums_while_passes_wait(&BlockedChain::head, 1); }

Kernel<float> tanh_gradient_of_lane;

/// The work of its lane waits, and not the thread that issues it.
Device blocked_simulated_device(Engine& engine) {
  Device device = simulated_device(engine).device;
  device.copy_out = engine.add_lane(std::make_shared<SimLane>("copies out"));
  device.collectives = engine.add_lane(std::make_shared<SimLane>("collectives"));
  tanh_gradient_of_lane = device.kernels.find(op::tanh_gradient);
  device.kernels.add(op::tanh_gradient, [](const KernelCall<float>& call) {
    dynamic_cast<SimLane&>(*call.lane).launch([] {
      if (during_backward != nullptr) (*during_backward)();
    });
    tanh_gradient_of_lane(call);
  });
  return device;
}

TEST(DataParallel, SumsGradientsOfDevicesWhileTheirBackwardPassRuns) {
  expect_sums_while_passes_wait(&BlockedChain::head, 1, blocked_simulated_device);
  // At the first vertices of the sequences, which have no product with u.
  expect_sums_while_passes_wait(&BlockedChain::u, 6, blocked_simulated_device);
}

TEST(DataParallel, FailsTheStepOfAllIfTheBackwardPassOfOneFailsAfterASum) {
  BlockedChain zero, one;
  std::array<BlockedChain*, 2> chains = {&zero, &one};
  const LocalGroup group({zero.device, one.device});
  Awaited sum;
  std::atomic<bool> failed = false;
  const DuringBackward fail([&] {
    sum.wait();
    if (!failed.exchange(true)) throw Error("the backward pass fails");
  });
  on_threads(2, [&](int rank) {
    BlockedChain& chain = *chains[static_cast<std::size_t>(rank)];
    DataParallel parallel(group[rank], chain.parameters, {.bucket_bytes = 1});
    Optimiser optimiser(chain.parameters, Method::sgd(), {.rate = 0.1});
    chain.differentiate();
    const std::size_t samples = parallel.combine(3);
    if (rank == 0) chain.tell(chain.head, sum);
    optimiser.step(samples);
    EXPECT_THROW(chain.parameters.value(chain.w).get(), OpError) << "rank " << rank << " goes on";
    EXPECT_EQ(optimiser.progress().steps, 1u);  // it can be restored
  });
}

TEST(Deal, GivesMembersEqualWork) {
  std::mt19937 random(first_seed());
  for (const int members : {1, 2, 4, 7}) {
    std::vector<std::int64_t> work;  // of 256 trees as large as those of sentences
    for (int i = 0; i < 256; ++i) work.push_back(1 + 2 * static_cast<std::int64_t>(random() % 40));
    const auto dealt = deal(work, members);
    ASSERT_EQ(dealt.size(), static_cast<std::size_t>(members));
    std::vector<int> owners(work.size(), 0);
    std::int64_t most = 0, all = 0;
    for (const auto& numbers : dealt) {
      std::int64_t load = 0;
      for (const std::size_t number : numbers) {
        ++owners[number];
        load += work[number];
      }
      EXPECT_TRUE(std::ranges::is_sorted(numbers));
      most = std::max(most, load);
      all += load;
    }
    EXPECT_EQ(owners, std::vector<int>(work.size(), 1));
    EXPECT_LE(static_cast<double>(most) * members, 1.03 * static_cast<double>(all));
  }
  EXPECT_EQ(deal({}, 3), (std::vector<std::vector<std::size_t>>(3)));
}

TEST(DataParallel, RefusesWhatANestedGroupLacksWhenItIsMade) {
  Engine engine({.workers = 2});
  const LocalGroup inner(host_devices(engine, 2)), outer(host_devices(engine, 1));
  const NestedGroup nested({inner[0], inner[1]}, outer[0]);
  on_threads(2, [&](int rank) {
    Parameters parameters(nested[rank].device(), 1);
    Optimiser optimiser(parameters, Method::sgd());
    const auto made = [&](const DataParallelOptions& options) {
      return error_of<MisuseError>([&] { DataParallel(nested[rank], parameters, options); });
    };
    EXPECT_EQ(made({.compression = {.form = Compression::Form::bfloat16}}),
              "DataParallelOptions: compression in a NestedGroup; expected none, or another group");
    EXPECT_EQ(made({.sharded = &optimiser}),
              "DataParallelOptions: a sharded update in a NestedGroup; expected none, or another group");
    EXPECT_NO_THROW(DataParallel(nested[rank], parameters));
  });
}

TEST(DataParallel, RefusesMembersWhoseParametersDiffer) {
  with_parameters(2, [](Parameters& parameters, const Communicator& communicator) {
    const int rank = communicator.rank();
    parameters.add("same", 2, 2, Initial::zeros());
    parameters.add(rank == 0 ? "left" : "right", 2, 2, Initial::zeros());
    expect_error<CommError>([&] { DataParallel(communicator, parameters); }, "parameter 1 '");
    Parameters frozen(communicator.device(), 1), elsewhere(host_device(*communicator.device().engine), 1);
    const Parameter one = frozen.add("one", 2, 2, Initial::zeros());
    if (rank == 1) frozen.freeze(one);
    EXPECT_THROW(DataParallel(communicator, frozen), CommError);
    EXPECT_THROW(DataParallel(communicator, elsewhere), MisuseError);
  });
}

TEST(DataParallel, SumsATensorThatIsTheGradientOfSeveralParametersOnceForEach) {
  for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{1} << 20}) {
    with_parameters(3, [&](Parameters& parameters, const Communicator& communicator) {
      std::vector<Parameter> all;
      for (const char* const name : {"a", "b", "upper", "lower"}) {
        all.push_back(parameters.add(name, 2, 3, Initial::zeros()));
      }
      DataParallel parallel(communicator, parameters, {.bucket_bytes = bucket_bytes});
      const float own = static_cast<float>(communicator.rank() + 1);
      const Tensor shared = filled(communicator.device(), 2, 3, own), slices = filled(communicator.device(), 3, 3, own);
      parameters.begin_minibatch();
      for (const int i : {0, 1}) parameters.add_gradient(all[static_cast<std::size_t>(i)], shared);
      parameters.add_gradient(all[2], slices.row_range(0, 2));
      // At one member they overlap, at the others not: all make the same calls.
      parameters.add_gradient(
          all[3], communicator.rank() == 0 ? slices.row_range(1, 3) : filled(communicator.device(), 2, 3, own));
      parallel.combine(1);
      for (const Parameter& one : all) {
        EXPECT_EQ(parameters.gradient(one).all->get(), Floats(6, 6)) << parameters.name(one);
      }
    });
  }
}

TEST(DataParallel, RefusesParametersThatShareMemory) {
  with_parameters(2, [](Parameters& parameters, const Communicator& communicator) {
    const Tensor table = filled(communicator.device(), 4, 2, 1);
    parameters.add("upper", table.row_range(0, 2));
    parameters.add("lower", table.row_range(2, 4));
    EXPECT_NO_THROW(DataParallel(communicator, parameters));
    parameters.add("tied", table.row_range(1, 3));
    EXPECT_EQ(error_of<MisuseError>([&] { DataParallel(communicator, parameters); }),
              "DataParallel: parameters 'upper' and 'tied' share memory; expected one parameter that is used in both "
              "places, so that it takes one step");
  });
}

using Names = std::vector<std::string>;

/// All members have the bits of members that do not shard the update, and each state is at one member.
void expect_equal(GroupRun run) {
  run.sharded = true;
  const std::vector<GroupResult> sharded = trained(run);
  run.sharded = false;
  const std::vector<GroupResult> whole = trained(run);
  Names states;
  for (const GroupResult& result : sharded) {
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
  expect_equal({.optimiser = {.rate = 0.1}, .parallel = {.bucket_bytes = 1}});
  expect_equal({.optimiser = {.rate = 0.1, .decay = 0.1, .clip_norm = 2, .accumulate = 3}});
  expect_equal({.optimiser = {.rate = 0.1, .clip_norm = 2, .tables = OptimiserOptions::Tables::dense}});
  expect_equal({.optimiser = {.rate = 0.1, .penalty = 0.1}, .engine = {.policy = Policy::chaos, .workers = 3}});
}

class ShardedCheckpoints : public FileTest {};

TEST_F(ShardedCheckpoints, AreThoseOfAnUpdateThatIsNotShardedAndGoOnWithAnyNumberOfMembers) {
  const auto sharded = folder / "sharded", whole = folder / "whole", later = folder / "later";
  trained({.sharded = true, .to = sharded});
  trained({.to = whole});
  const std::string file = "000000000001.safetensors";
  EXPECT_EQ(read_file(sharded / file), read_file(whole / file));
  for (const int members : {1, 2, 4}) {
    SCOPED_TRACE(members);
    expect_equal({.members = members, .steps = 3, .from = sharded});
  }
  expect_equal({.members = 3, .steps = 3, .from = sharded, .restores_first = true});
  trained({.members = 2, .sharded = true, .steps = 0, .from = sharded, .to = later});
  EXPECT_EQ(read_file(later / file), read_file(whole / file));
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
        expect_error<OpError>([&] { model.parameters.value(parameter).get(); }, "loss");
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
    expect_error<MisuseError>([&] { optimiser.step(2); }, "gradients that were not combined");
    optimiser.step(parallel.combine(2));
    EXPECT_THROW(optimiser.step(2), MisuseError);
    model.parameters.add("later", 2, 2, Initial::zeros());
    EXPECT_EQ(error_of<MisuseError>([&] { optimiser.tensors_of_all(); }),
              "sharded update: parameter 'later' was added after DataParallel was made; expected it before");
  });
}

}  // namespace
}  // namespace windrow::testing
