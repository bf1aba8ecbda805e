// Placed tensors on the device, beside a second device of its kind and the host.
#include <array>
#include <set>

#include "tests/devices/conformance.h"
#include "tests/seed.h"
#include "windrow/memory/pool.h"
#include "windrow/ops/placed_tensor.h"

namespace windrow::testing {
namespace {

/// The devices of one test.
struct Places {
  Places(Engine& engine, const DeviceUnderTest& first, const DeviceCase& of)
      : second(of.make(engine, std::size_t{64} << 20)), all{first.device, second.device, host_device(engine)} {}

  DeviceUnderTest second;
  std::array<Device, 3> all;
};

TEST_P(OnDevice, CopiesAPlacedTensorOncePerDeviceUntilItIsWrittenElsewhere) {
  const Places places(engine, under_test, GetParam());
  const auto& [one, two, host] = places.all;
  const PlacedTensor w(host, 3, 64, "w");
  w.set(Floats(3 * 64, 2));
  for (int i = 0; i < 3; ++i) {
    for (const Device& at : places.all) {
      EXPECT_EQ(apply(at, op::neg, {.in = {w.on(at)}}).get(), Floats(3 * 64, -2));
    }
  }
  EXPECT_EQ(w.copies(), 2u);
  apply(two, op::add, {.in = {w.on(two), w.on(two)}}, w.on(two));
  EXPECT_FALSE(w.valid_on(one));
  EXPECT_TRUE(w.valid_on(two));
  EXPECT_EQ(w.get(), Floats(3 * 64, 4));
  EXPECT_EQ(w.copies(), 2u);
  EXPECT_EQ(w.on(one).get(), Floats(3 * 64, 4));
  EXPECT_EQ(w.on(host).get(), Floats(3 * 64, 4));
  EXPECT_EQ(w.copies(), 4u);
  engine.wait_all();
}

/// A random program of ops on three values and three devices, beside an interpreter that knows neither tensors nor ops.
TEST_P(OnDevice, PlacedTensorsGiveTheResultOfASerialProgramWithTheFewestCopies) {
  const Places places(engine, under_test, GetParam());
  for (unsigned seed = first_seed(); seed < first_seed() + 5; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    const std::size_t elements = 65 * (1 + below(3));
    struct Model {
      Floats value;
      std::set<std::size_t> valid = {2};
      std::uint64_t copies = 0;

      void use(std::size_t device) { copies += valid.insert(device).second ? 1 : 0; }
      void write(std::size_t device, Floats to) {
        value = std::move(to);
        valid = {device};
      }
    };
    std::array<Model, 3> models;
    std::vector<PlacedTensor> values;
    for (Model& model : models) {
      model.value = Floats(elements, static_cast<float>(values.size()));
      values.push_back(PlacedTensor(places.all[2], static_cast<Index>(elements / 65), 65, "value"));
      values.back().set(model.value);
    }
    for (int step = 0; step < 60; ++step) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", step " + std::to_string(step));
      const std::size_t at = below(3), a = below(3), b = (a + 1 + below(2)) % 3;
      const Device& here = places.all[at];
      switch (below(5)) {
        case 0: {  // b = (a + a) / 4
          models[a].use(at);
          Floats sum = models[a].value;
          for (float& x : sum) x = (x + x) * 0.25f;
          models[b].write(at, std::move(sum));
          const Tensor twice = apply(here, op::add, {.in = {values[a].on(here), values[a].on(here)}});
          apply(here, op::scale, {.in = {twice}, .attributes = op::scaled_by(0.25)}, values[b].overwrite_on(here));
          break;
        }
        case 1: {  // b += a
          models[a].use(at);
          models[b].use(at);
          Floats sum = models[b].value;
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += models[a].value[i];
          models[b].write(at, std::move(sum));
          apply(here, op::scale, {.in = {values[a].on(here)}, .attributes = op::scaled_by(1), .write = Write::add},
                values[b].on(here));
          break;
        }
        case 2: {
          const Floats to(elements, static_cast<float>(step));
          models[a].write(2, to);
          values[a].set(to);
          break;
        }
        case 3:
          ASSERT_EQ(values[a].get(), models[a].value);
          break;
        default:
          if (!models[a].valid.contains(at)) {
            values[a].drop(here);
          } else if (models[a].valid.size() > 1) {
            values[a].drop(here);
            models[a].valid.erase(at);
          } else {
            expect_error<MisuseError>([&] { values[a].drop(here); }, "where its only copy is");
          }
      }
    }
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t d = 0; d < 3; ++d) {
        EXPECT_EQ(values[i].valid_on(places.all[d]), models[i].valid.contains(d));
      }
      EXPECT_EQ(values[i].get(), models[i].value) << "seed " << seed;
      EXPECT_EQ(values[i].copies(), models[i].copies) << "seed " << seed;
    }
    engine.wait_all();
  }
}

TEST_P(OnDevice, PassesAFailureOnThroughCopies) {
  const Places places(engine, under_test, GetParam());
  const auto& [one, two, host] = places.all;
  const PlacedTensor w(host, 1, 2, "w");
  w.set({1, 2});
  EXPECT_EQ(w.on(one).get(), (Floats{1, 2}));
  const Tensor here = w.on(one);
  engine.push([] { throw std::runtime_error("no"); }, {mutate(here.var())}, {.name = "fails"});
  expect_error<OpError>([&] { w.on(two).get(); }, "op 'fails'");
  expect_error<OpError>([&] { w.get(); }, "op 'fails'");
  w.set({3, 4});
  EXPECT_EQ(w.on(two).get(), (Floats{3, 4}));
  EXPECT_EQ(w.on(one).get(), (Floats{3, 4}));
  engine.wait_all();
}

TEST_P(OnDevice, EndsAPlacedTensorBeforeItsOpsRun) {
  const Places places(engine, under_test, GetParam());
  const auto& [one, two, host] = places.all;
  std::vector<Tensor> results;
  for (int i = 0; i < 20; ++i) {
    const PlacedTensor w(host, 10, 65, "w");
    w.set(Floats(650, static_cast<float>(i)));
    apply(one, op::neg, {.in = {w.on(one)}}, w.on(one));
    results.push_back(apply(two, op::neg, {.in = {w.on(two)}}));
  }
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(results[static_cast<std::size_t>(i)].get(), Floats(650, static_cast<float>(i)));
}

/// An op of the device's lane receives the device's addresses; one of the host is refused.
TEST_P(OnDevice, GivesTensorsToOpsOfItsLane) {
  const Tensor x = tensor(2, 2, {1, 2, 3, 4}, "x");
  auto seen = std::make_shared<Floats>(4);
  engine.push(
      [seen, view = x.view()](OpContext& op, Matrix<const float> rows) {
        EXPECT_EQ(rows.data, view.read(op.lane()).data);
        view.download(op.lane(), seen->data());
      },
      read(x), {.lane = device.lane});
  engine.wait({mutate(x.var())});
  EXPECT_EQ(*seen, (Floats{1, 2, 3, 4}));
  if (device.on_host()) return;
  engine.push([](Matrix<float>) { ADD_FAILURE(); }, mutate(x), {.name = "on the host"});
  expect_error<OpError>([&] { engine.wait(x.var()); }, "is accessed by an op on the host");
}

TEST_P(OnDevice, RefusesAPlaceOfAnotherEngine) {
  const PlacedTensor w(device, 1, 2, "w");
  Engine other({.policy = Policy::serial});
  const Device elsewhere = host_device(other);
  expect_error<MisuseError>([&] { w.on(elsewhere); }, "placed tensor 'w': on device 'host' of another engine");
}

/// 16 values of 100 kB take turns on a device that holds a few of them.
TEST_P(OnSmallDevice, DropsCopiesThatAreNotUsedBeforeMemoryRunsOut) {
  if (dynamic_cast<const Pool*>(device.memory.get()) == nullptr) return;  // nobody asks for the copies
  const Device small = device.on_host() ? host_device(engine, capacity) : device, host = host_device(engine);
  constexpr Index rows = 100, width = 255;
  constexpr std::size_t elements = rows * width;
  std::vector<PlacedTensor> values;
  for (int i = 0; i < 16; ++i) {
    values.push_back(PlacedTensor(host, rows, width, "value"));
    values.back().set(Floats(elements, static_cast<float>(i)));
  }
  const PlacedTensor sum(small, rows, width, "sum");
  sum.set(Floats(elements, 0));
  for (int pass = 0; pass < 3; ++pass) {
    for (const PlacedTensor& value : values) {
      apply(small, op::scale, {.in = {value.on(small)}, .attributes = op::scaled_by(1), .write = Write::add},
            sum.on(small));
      engine.wait(sum.on(small).var());
    }
  }
  EXPECT_EQ(sum.get(), Floats(elements, 3 * 120));
  EXPECT_EQ(sum.copies(), 0u);
  std::uint64_t copies = 0, there = 0;
  for (const PlacedTensor& value : values) {
    copies += value.copies();
    there += value.valid_on(small) ? 1u : 0u;
  }
  EXPECT_GT(copies, 32u);
  EXPECT_GT(there, 2u);
  EXPECT_LT(there, 11u);
  engine.wait_all();
}

/// What a program holds, and what it has changed there, stays.
TEST_P(OnSmallDevice, KeepsOwnersAndTensorsThatAreHeld) {
  if (dynamic_cast<const Pool*>(device.memory.get()) == nullptr) return;
  const Device small = device.on_host() ? host_device(engine, capacity) : device, host = host_device(engine);
  constexpr Index rows = 100, width = 255;
  const PlacedTensor held(host, rows, width, "held"), owned(small, rows, width, "owned");
  held.set(Floats(rows * width, 1));
  owned.set(Floats(rows * width, 2));
  const Tensor there = held.on(small);
  EXPECT_EQ(there.get(), Floats(rows * width, 1));
  std::vector<Tensor> all;
  for (int i = 0; i < 12; ++i) {
    all.push_back(Tensor(small, rows, width));
    all.back().set(Floats(rows * width, 0));
    try {
      engine.wait(all.back().var());
    } catch (const OpError&) {
      all.clear();
    }
  }
  EXPECT_EQ(there.get(), Floats(rows * width, 1));
  EXPECT_TRUE(held.valid_on(small));
  EXPECT_EQ(owned.get(), Floats(rows * width, 2));
  try {
    engine.wait_all();
  } catch (const OpError&) {
  }
}

/// Check mode watches what is on the host, where nothing is reclaimed.
TEST_P(OnCheckedDevice, CopiesPlacedTensors) {
  const Device host = host_device(engine);
  const PlacedTensor w(host, 2, 65, "w");
  w.set(Floats(130, 2));
  apply(device, op::neg, {.in = {w.on(device)}}, w.on(device));
  EXPECT_EQ(w.on(host).get(), Floats(130, -2));
  engine.wait_all();
}

}  // namespace
}  // namespace windrow::testing
