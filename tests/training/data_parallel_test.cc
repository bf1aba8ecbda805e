// Data-parallel training, with members in threads of one process.
#include "windrow/training/data_parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <random>

#include "tests/batching/blocked_chain.h"
#include "tests/devices/simulated.h"
#include "tests/engine/support.h"
#include "tests/seed.h"
#include "tests/training/members.h"
#include "windrow/comm/mpi.h"
#include "windrow/training/internal/deal.h"
#include "windrow/training/optimiser.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;
constexpr std::size_t samples_a_step = 7;
constexpr int steps = 5;

struct Run {
  Method method = Method::sgd();
  EngineOptions engine = {};
  std::size_t bucket_bytes = 1;
  std::size_t part_bytes = 0;
  bool priority = true;
};

/// The parameters of all members after some steps. Sample i of a step goes to member i % members, or, in every second
/// step, to member 0.
std::vector<Floats> trained(int members, const Run& run) {
  std::vector<Floats> results(static_cast<std::size_t>(members));
  with_members(members, {.engine = run.engine}, [&](RowsModel& model, const Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    if (rank > 0) model.parameters.value(model.matrix).set(Floats(70 * 90, 3));  // rank 0 has the parameters
    DataParallel parallel(communicator, model.parameters,
                          {.bucket_bytes = run.bucket_bytes, .part_bytes = run.part_bytes, .priority = run.priority});
    Optimiser optimiser(model.parameters, run.method, {.rate = 0.1, .clip_norm = 50});
    for (int step = 0; step < steps; ++step) {
      std::vector<RowsModel::Sample> own;
      const auto all = model.draw_samples(samples_a_step);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::size_t owner = step % 2 == 0 ? i % static_cast<std::size_t>(members) : 0;
        if (owner == rank) own.push_back(all[i]);
      }
      model.differentiate(own);
      const std::size_t samples = parallel.combine(own.size());
      EXPECT_EQ(samples, samples_a_step);
      optimiser.step(samples);
    }
    results[rank] = model.values();
  });
  return results;
}

TEST(DataParallel, TakesTheStepsOfOneMemberWithAllSamples) {
  for (const Method& method : {Method::sgd(), Method::momentum(), Method::adam()}) {
    SCOPED_TRACE(method.name);
    const Floats expected = trained(1, {.method = method}).front();
    for (const int members : {2, 3, 4}) {
      for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{1} << 20}) {
        const auto results = trained(members, {.method = method, .bucket_bytes = bucket_bytes});
        for (const Floats& result : results) {
          ASSERT_EQ(result, results.front());
          for (std::size_t i = 0; i < result.size(); ++i) ASSERT_NEAR(result[i], expected[i], 2e-4) << "element " << i;
        }
      }
    }
  }
}

TEST(DataParallel, GivesTheSameBitsWithEveryPolicyAndNumberOfWorkers) {
  const Floats expected = trained(3, {.method = Method::adam()}).front();
  for (const EngineOptions& engine :
       {EngineOptions{.policy = Policy::serial}, EngineOptions{.policy = Policy::pool, .workers = 1},
        EngineOptions{.policy = Policy::per_device, .workers = 2},
        EngineOptions{.policy = Policy::chaos, .workers = 3}}) {
    EXPECT_EQ(trained(3, {.method = Method::adam(), .engine = engine}).back(), expected);
  }
  for (const bool priority : {false, true}) {
    for (const std::size_t part_bytes : {std::size_t{0}, std::size_t{64}}) {
      EXPECT_EQ(trained(3, {.method = Method::adam(), .part_bytes = part_bytes, .priority = priority}).back(), expected)
          << priority << ", " << part_bytes;
    }
  }
}

TEST(DataParallel, RefusesAParameterThatIsFrozenAtSomeMembers) {
  with_members(2, {.engine = {.workers = 2}}, [](RowsModel& model, const Communicator& communicator) {
    DataParallel parallel(communicator, model.parameters);
    if (communicator.rank() == 1) model.parameters.freeze(model.matrix);
    model.differentiate(model.draw_samples(2));
    const std::string refused = error_of<CommError>([&] { parallel.combine(2); });
    EXPECT_NE(refused.find("'" + model.parameters.name(model.matrix) + "' is not frozen at rank 0"), refused.npos)
        << refused;
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
  in_threads(2, [&](int rank) {
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
  in_threads(2, [&](int rank) {
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
  in_threads(2, [&](int rank) {
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
  Engine engine({.workers = 2});
  const std::vector<Device> devices = host_devices(engine, 2);
  const LocalGroup group(devices);
  in_threads(2, [&](int rank) {
    Parameters parameters(devices[static_cast<std::size_t>(rank)], 1);
    parameters.add("same", 2, 2, Initial::zeros());
    parameters.add(rank == 0 ? "left" : "right", 2, 2, Initial::zeros());
    try {
      DataParallel(group[rank], parameters);
      ADD_FAILURE() << "rank " << rank << " goes on";
    } catch (const CommError& error) {
      EXPECT_NE(std::string(error.what()).find("parameter 1 '"), std::string::npos) << error.what();
    }
    Parameters frozen(devices[static_cast<std::size_t>(rank)], 1);
    const Parameter one = frozen.add("one", 2, 2, Initial::zeros());
    if (rank == 1) frozen.freeze(one);
    EXPECT_THROW(DataParallel(group[rank], frozen), CommError);
    Parameters elsewhere(host_device(engine), 1);
    EXPECT_THROW(DataParallel(group[rank], elsewhere), MisuseError);
  });
}

}  // namespace
}  // namespace windrow::testing
