// Gradients of which less than all bits travel.

#include "tests/memory/counting_allocator.h"
#include "tests/training/members.h"

namespace windrow::testing {
namespace {

constexpr Index rows = 5, width = 128;  // rows of this width have gaps between them
constexpr std::size_t elements = rows * width;

const Compression rounded{.form = Compression::Form::bfloat16};

Tensor on(const Communicator& communicator, const Floats& values) {
  const Tensor made(communicator.device(), rows, width);
  made.set(values);
  return made;
}

/// The sums that each member gets in each step, for gradients that gradient(rank, step) returns.
using Gradient = std::function<Floats(int rank, int step)>;
std::vector<std::vector<Floats>> combined(int members, int steps, const Gradient& gradient,
                                          const EngineOptions& options = {.workers = 2}) {
  std::vector<std::vector<Floats>> sums(static_cast<std::size_t>(members));
  const auto body = [&](Parameters& parameters, const Communicator& communicator) {
    const int rank = communicator.rank();
    const Parameter weight = parameters.add("weight", rows, width, Initial::zeros());
    DataParallel parallel(communicator, parameters, {.compression = rounded});
    for (int step = 0; step < steps; ++step) {
      parameters.set_gradient(weight, on(communicator, gradient(rank, step)));
      EXPECT_EQ(parallel.combine(2), 2 * static_cast<std::size_t>(members));
      sums[static_cast<std::size_t>(rank)].push_back(parameters.dense_gradient(weight).get());
    }
  };
  with_parameters(members, body, options);
  return sums;
}

Floats random_gradient(int rank, int step) {
  std::mt19937 random(first_seed() + 100 * static_cast<unsigned>(step) + static_cast<unsigned>(rank));
  Floats gradient(elements);
  for (float& g : gradient) g = static_cast<float>(random() % 2001) / 1000 - 1;
  return gradient;
}

TEST(Compression, MembersGetEqualBitsWithEveryPolicy) {
  const auto expected = combined(3, 4, random_gradient);
  EXPECT_EQ(expected[1], expected[0]);
  EXPECT_EQ(expected[2], expected[0]);
  for (const Policy policy : {Policy::serial, Policy::chaos}) {
    EXPECT_EQ(combined(3, 4, random_gradient, {.policy = policy}), expected);
  }
}

TEST(Compression, RoundedSumsAreNearTheExactOnes) {
  for (const int members : {1, 2, 4}) {
    const auto sums = combined(members, 3, random_gradient);
    for (int step = 0; step < 3; ++step) {
      std::vector<Floats> gradients;
      for (int rank = 0; rank < members; ++rank) gradients.push_back(random_gradient(rank, step));
      for (std::size_t i = 0; i < elements; ++i) {
        double exact = 0, sizes = 0;
        for (const Floats& of_rank : gradients) {
          const double g = of_rank[i];
          exact += g;
          sizes += std::abs(g) + 1;  // what was lost before of another one, 1 at most, is added
        }
        EXPECT_NEAR(sums[0][static_cast<std::size_t>(step)][i], exact, sizes / 256) << members << " members";
      }
    }
  }
}

// Steps have different parameters, as those of dynamic models; the last ones have all, with gradients of zero.
TEST(Compression, WhatAParameterIsOwedArrivesWhicheverOthersAStepHas) {
  constexpr int members = 3, steps = 100, parameters_in_all = 6;
  const auto uses = [](int step, int parameter) {
    std::mt19937 random(first_seed() + static_cast<unsigned>(step * 64 + parameter));
    random();
    return step >= steps || random() % 2 == 0;
  };
  const auto gradient = [](int rank, int step, int parameter) {
    Floats all = random_gradient(rank, step * parameters_in_all + parameter);
    for (float& g : all) g = step < steps ? std::round(1000 * g) : 0;
    return all;
  };
  Engine engine({.workers = 2});
  std::vector<Device> devices = host_devices(engine, members);
  const auto memory = std::make_shared<CountingAllocator>();
  for (Device& device : devices) device.memory = memory;
  const LocalGroup group(devices);
  std::size_t first = 0, last = 0;  // bytes in use
  on_threads(members, [&](int rank) {
    Parameters parameters(group[rank].device(), 1);
    for (int p = 0; p < parameters_in_all; ++p) parameters.add(std::to_string(p), rows, width, Initial::zeros());
    DataParallel parallel(group[rank], parameters, {.compression = rounded});
    std::vector<std::vector<double>> total(parameters_in_all, std::vector<double>(elements, 0)), expected = total;
    for (int step = 0; step < steps + 20; ++step) {
      parameters.begin_minibatch();
      for (int p = 0; p < parameters_in_all; ++p) {
        if (!uses(step, p)) continue;
        parameters.add_gradient(parameters[static_cast<std::size_t>(p)], on(group[rank], gradient(rank, step, p)));
      }
      parallel.combine(1);
      for (std::size_t p = 0; p < parameters_in_all; ++p) {
        if (!uses(step, static_cast<int>(p))) continue;
        const Floats sum = parameters.dense_gradient(parameters[p]).get();
        for (std::size_t i = 0; i < elements; ++i) total[p][i] += static_cast<double>(sum[i]);
        for (int member = 0; member < members; ++member) {
          const Floats of_member = gradient(member, step, static_cast<int>(p));
          for (std::size_t i = 0; i < elements; ++i) expected[p][i] += static_cast<double>(of_member[i]);
        }
      }
      if (step != 20 && step != steps) continue;
      parameters.forget_gradients();
      group[rank].barrier();
      if (rank == 0) (step == 20 ? first : last) = memory->held.load();
      group[rank].barrier();
    }
    for (std::size_t p = 0; p < parameters_in_all; ++p) {
      for (std::size_t i = 0; i < elements; ++i) ASSERT_NEAR(total[p][i], expected[p][i], 0.01) << p << ", " << i;
    }
  });
  EXPECT_LE(last, first + elements);  // that is less than one more tensor
}

TEST(Compression, AFailedStepDoesNotFailTheNextOnes) {
  with_parameters(2, [](Parameters& parameters, const Communicator& communicator) {
    const Parameter weight = parameters.add("weight", rows, width, Initial::zeros());
    DataParallel parallel(communicator, parameters, {.compression = rounded});
    for (const float value : {1.0f, -1.0f, 2.0f}) {
      const Tensor own = on(communicator, Floats(elements, value));
      if (value < 0 && communicator.rank() == 1) {
        communicator.device().engine->push([] { throw std::runtime_error("no gradient today"); }, {mutate(own.var())});
      }
      parameters.set_gradient(weight, own);
      parallel.combine(1);
      const Tensor sum = parameters.dense_gradient(weight);
      if (value < 0) {
        EXPECT_THROW(sum.get(), OpError);
      } else {
        EXPECT_EQ(sum.get(), Floats(elements, 2 * value));
      }
    }
  });
}

TEST(Compression, OptionsOutOfRangeAreRefused) {
  with_parameters(1, [](Parameters& parameters, const Communicator& communicator) {
    for (const int form : {2, 7}) {  // 2 was one of the largest elements
      const Compression bad{.form = static_cast<Compression::Form>(form)};
      EXPECT_THROW(DataParallel(communicator, parameters, {.compression = bad}), MisuseError);
    }
  });
}

TEST(DataParallel, AveragesParameters) {
  with_parameters(3, [](Parameters& parameters, const Communicator& communicator) {
    const Parameter weight = parameters.add("weight", 1, 2, Initial::zeros()),
                    frozen = parameters.add("frozen", 1, 1, Initial::constant(0.1f));
    parameters.freeze(frozen);
    DataParallel parallel(communicator, parameters);
    parameters.value(weight).set(communicator.rank() == 0 ? Floats{1, 2} : Floats{4, 8});
    parallel.average();
    EXPECT_EQ(parameters.value(weight).get(), (Floats{3, 6}));
    EXPECT_EQ(parameters.value(frozen).get(), Floats{0.1f});  // (x + x + x) / 3 is another number
  });
}

}  // namespace
}  // namespace windrow::testing
