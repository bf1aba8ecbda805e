// A training step of a multilayer perceptron, written with operators and a tape; and a fixture for tests of recordings
// that run with every policy, and replay in every order.
#pragma once

#include "tests/engine/support.h"
#include "windrow/ops/random.h"
#include "windrow/ops/static.h"
#include "windrow/ops/tape.h"

namespace windrow::testing {

/// Three layers with relu and dropout, cross entropy, and momentum, whose numbers lie in a tensor.
class Mlp {
 public:
  explicit Mlp(const Device& device, std::vector<Index> widths = {12, 20, 16, 4})
      : device_(device), draws_(*device.engine, 7), numbers_(device, 1, StepNumbers::count, "numbers") {
    for (std::size_t k = 0; k + 1 < widths.size(); ++k) {
      add_parameter(widths[k], widths[k + 1]);
      add_parameter(1, widths[k + 1]);
    }
    set_rate(0.05f);
  }

  /// From the next step on.
  void set_rate(float rate) const {
    const StepNumbers numbers{.rate = rate, .scale = 1.0f / 16, .first = 0.9f};
    numbers_.set({numbers.begin(), numbers.begin() + StepNumbers::count});
  }

  /// The losses of a batch of images and labels, as a tensor.
  std::vector<Tensor> step(const StaticInputs& batch) {
    Tape tape(device_);
    for (const Tensor& value : values) tape.watch(value);
    Tensor x = batch.in.front();
    for (std::size_t k = 0; k < values.size(); k += 2) {
      x = tape.apply(op::add_bias, {.in = {tape.apply(op::matmul, {.in = {x, values[k]}}), values[k + 1]}});
      if (k + 2 == values.size()) break;
      const IntTensor keys(device_, x.rows(), 3, "keys");
      draws_.dropout_keys(keys);
      x = tape.apply(op::relu, {.in = {x}});
      x = tape.apply(op::dropout, {.in = {x}, .indices = {keys}, .attributes = op::dropout_by(0.25, 3, 0)});
    }
    const Tensor losses = tape.apply(op::softmax_cross_entropy, {.in = {x}, .indices = batch.indices});
    tape.backward(losses);
    for (std::size_t k = 0; k < values.size(); ++k) {
      apply(device_, op::momentum_step,
            {.in = {*tape.gradient(values[k]), numbers_}, .write = Write::add, .states = {states_[k]}}, values[k]);
    }
    return {losses};
  }

  std::vector<Tensor> values;

 private:
  void add_parameter(Index rows, Index width) {
    values.emplace_back(device_, rows, width, OpName("parameter"));
    draws_.uniform(values.back(), -0.5f, 0.5f);
    states_.emplace_back(device_, rows, width, OpName("state"));
    states_.back().set(std::vector<float>(static_cast<std::size_t>(rows * width), 0));
  }

  const Device device_;
  Generator draws_;
  const Tensor numbers_;
  std::vector<Tensor> states_;
};

/// Batch number `step` of a task that can be learned.
struct Batches {
  explicit Batches(const Device& host, Index rows = 16)
      : images(host, rows, 12, "images"), labels(host, rows, 1, "labels") {}

  StaticInputs next(int step) const {
    std::vector<float> pixels;
    std::vector<std::int32_t> classes;
    for (Index r = 0; r < images.rows(); ++r) {
      const auto label = static_cast<std::int32_t>((r + step) % 4);
      classes.push_back(label);
      for (Index c = 0; c < 12; ++c) {
        pixels.push_back(static_cast<float>((r * 7 + c * 3 + step) % 11) / 11 + (c % 4 == label ? 1.0f : 0.0f));
      }
    }
    images.set(pixels);
    labels.set(classes);
    return {.in = {images}, .indices = {labels}};
  }

  Tensor images;
  IntTensor labels;
};

/// All values and the last losses after `steps` steps with a learning rate that changes.
template <class Step>
std::vector<float> trained(const Device& host, Mlp& mlp, int steps, const Step& step) {
  const Batches batches(host);
  std::vector<float> all;
  for (int i = 0; i < steps; ++i) {
    if (i % 50 == 0) mlp.set_rate(0.05f / static_cast<float>(1 + i / 50));
    const std::vector<Tensor> losses = step(batches.next(i));
    if (i % 100 == 0 || i + 1 == steps) all = losses.front().get();
  }
  for (const Tensor& value : mlp.values) {
    const std::vector<float> values = value.get();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

inline constexpr StaticOptions::Order every_order[] = {StaticOptions::Order::parallel, StaticOptions::Order::serial,
                                                       StaticOptions::Order::breadth_first};

class InEveryOrder : public ::testing::TestWithParam<std::tuple<testing::Setup, StaticOptions::Order>> {
 protected:
  static int workers() { return std::get<testing::Setup>(GetParam()).workers; }

  Engine engine{{.policy = std::get<testing::Setup>(GetParam()).policy, .workers = workers()}};
  const Device host = host_device(engine);

  Static recorded(Static::Body body, StaticOptions options = {}) const {
    options.order = std::get<StaticOptions::Order>(GetParam());
    return {host, std::move(body), options};
  }
};

}  // namespace windrow::testing

#define WINDROW_EVERY_ORDER(fixture)                                                              \
  INSTANTIATE_TEST_SUITE_P(All, fixture,                                                          \
                           ::testing::Combine(::testing::ValuesIn(windrow::testing::every_setup), \
                                              ::testing::ValuesIn(windrow::testing::every_order)))
