// Gradients of which less than all bits travel.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "tests/seed.h"
#include "windrow/comm/local.h"
#include "windrow/training/data_parallel.h"

namespace windrow::testing {
namespace {

using Floats = std::vector<float>;
constexpr Index rows = 5, width = 128;  // rows of this width have gaps between them
constexpr std::size_t elements = rows * width;

/// The sums that each member gets in each step, for gradients that gradient(rank, step) returns.
using Gradient = std::function<Floats(int rank, int step)>;
std::vector<std::vector<Floats>> combined(int members, int steps, const Compression& compression,
                                          const Gradient& gradient, const EngineOptions& options = {.workers = 2}) {
  Engine engine(options);
  const LocalGroup group(host_devices(engine, members));
  std::vector<std::vector<Floats>> sums(static_cast<std::size_t>(members));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < members; ++rank) {
    threads.emplace_back([&, rank] {
      Parameters parameters(group[rank].device(), 1);
      const Parameter weight = parameters.add("weight", rows, width, Initial::zeros());
      DataParallel parallel(group[rank], parameters, {.compression = compression});
      for (int step = 0; step < steps; ++step) {
        const Tensor own(group[rank].device(), rows, width);
        own.set(gradient(rank, step));
        parameters.set_gradient(weight, own);
        EXPECT_EQ(parallel.combine(2), 2 * static_cast<std::size_t>(members));
        sums[static_cast<std::size_t>(rank)].push_back(parameters.dense_gradient(weight).get());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sums;
}

Floats random_gradient(int rank, int step) {
  std::mt19937 random(first_seed() + 100 * static_cast<unsigned>(step) + static_cast<unsigned>(rank));
  Floats gradient(elements);
  for (float& g : gradient) g = static_cast<float>(random() % 2001) / 1000 - 1;
  return gradient;
}

TEST(Compression, MembersGetEqualBitsWithEveryPolicy) {
  for (const auto form : {Compression::Form::bfloat16, Compression::Form::largest}) {
    const Compression compression{.form = form, .share = 0.3};
    const auto expected = combined(3, 4, compression, random_gradient);
    EXPECT_EQ(expected[1], expected[0]);
    EXPECT_EQ(expected[2], expected[0]);
    for (const Policy policy : {Policy::serial, Policy::chaos}) {
      EXPECT_EQ(combined(3, 4, compression, random_gradient, {.policy = policy}), expected);
    }
  }
}

TEST(Compression, RoundedSumsAreNearTheExactOnes) {
  for (const int members : {1, 2, 4}) {
    const auto rounded = combined(members, 3, {.form = Compression::Form::bfloat16}, random_gradient);
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < elements; ++i) {
        double exact = 0, sizes = 0;
        for (int rank = 0; rank < members; ++rank) {
          const double g = random_gradient(rank, step)[i];
          exact += g;
          sizes += std::abs(g) + 1;  // what was lost before of another one, 1 at most, is added
        }
        EXPECT_NEAR(rounded[0][static_cast<std::size_t>(step)][i], exact, sizes / 256) << members << " members";
      }
    }
  }
}

// With one member, sums are rounded no more than gradients. So over many steps nothing is lost but the last rest.
TEST(Compression, WhatRoundingLosesIsSentLater) {
  const Floats gradient = random_gradient(0, 0);
  constexpr int steps = 300;
  const auto sums = combined(1, steps, {.form = Compression::Form::bfloat16}, [&](int, int) { return gradient; });
  for (std::size_t i = 0; i < elements; ++i) {
    double total = 0;
    for (const Floats& sum : sums[0]) total += sum[i];
    EXPECT_NEAR(total, steps * double{gradient[i]}, std::abs(gradient[i]) / 64 + 1e-4);
  }
}

// Whole numbers, so that all sums are exact: after steps without gradients, everything has arrived.
TEST(Compression, WhatIsTooSmallIsSentLater) {
  constexpr int members = 3, steps = 40;
  const auto whole = [](int rank, int step) {
    Floats gradient = random_gradient(rank, step);
    for (float& g : gradient) g = step < 10 ? std::round(8 * g) : 0;
    return gradient;
  };
  for (const float threshold : {0.0f, 1.0f, 5.0f}) {
    const auto sums =
        combined(members, steps, {.form = Compression::Form::largest, .share = 0.1, .threshold = threshold}, whole);
    std::size_t sent = 0;
    for (std::size_t i = 0; i < elements; ++i) {
      float total = 0, expected = 0;
      for (int step = 0; step < steps; ++step) {
        total += sums[0][static_cast<std::size_t>(step)][i];
        for (int rank = 0; rank < members; ++rank) expected += whole(rank, step)[i];
      }
      EXPECT_NEAR(total, expected, threshold <= 1 ? 0 : threshold * members) << "threshold " << threshold;
    }
    for (const float g : sums[0][0]) sent += g != 0 ? 1 : 0;
    EXPECT_LE(sent, 64u * members);  // a tenth of each member
  }
}

TEST(Compression, OptionsOutOfRangeAreRefused) {
  Engine engine({.workers = 1});
  const LocalGroup group(host_devices(engine, 1));
  Parameters parameters(group[0].device(), 1);
  for (const Compression& bad : {Compression{.form = Compression::Form::largest, .share = 0},
                                 Compression{.form = Compression::Form::largest, .share = NAN},
                                 Compression{.form = Compression::Form::largest, .threshold = -1}}) {
    EXPECT_THROW(DataParallel(group[0], parameters, {.compression = bad}), MisuseError);
  }
}

TEST(DataParallel, AveragesParameters) {
  Engine engine({.workers = 2});
  const LocalGroup group(host_devices(engine, 2));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Parameters parameters(group[rank].device(), 1);
      const Parameter weight = parameters.add("weight", 1, 2, Initial::zeros());
      DataParallel parallel(group[rank], parameters);
      parameters.value(weight).set(rank == 0 ? Floats{1, 2} : Floats{4, 8});
      parallel.average();
      EXPECT_EQ(parameters.value(weight).get(), (Floats{2.5f, 5}));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace windrow::testing
