// Images that a convolutional network sees, one after the other, and an LSTM that watches: as one graph of two kinds,
// as operators on tensors in front of a minibatch, and as lazy expressions. All are the same function.
#include <gtest/gtest.h>

#include "tests/batching/check_minibatch.h"
#include "tests/batching/lstm.h"
#include "tests/batching/seeing_cell.h"
#include "windrow/batching/lazy.h"
#include "windrow/ops/apply.h"

namespace windrow {
namespace {

using testing::check_minibatch;
using testing::dense;
using testing::expect_close;
using testing::Graphs;
using testing::Lstm;
using testing::Oracle;
using testing::OracleVertex;

struct Watcher {
  static constexpr op::Window2d around{
      .channels = 1, .height = 6, .width = 6, .window_height = 3, .window_width = 3, .padding = 1};
  static constexpr op::Window2d halves{
      .channels = 2, .height = 6, .width = 6, .window_height = 2, .window_width = 2, .stride = 2};
  static constexpr Index pixels = 36, seen = 18, h = 4, classes = 3;
  static constexpr std::int32_t image = 0, moment = 1;
  Parameter filters, bias, out;
  Lstm lstm;

  explicit Watcher(Parameters& p)
      : filters(p.add("filters", halves.channels, around.window(), Initial::uniform(-1, 1))),
        bias(p.add("bias", 1, halves.channels, Initial::uniform(-0.5f, 0.5f))),
        out(p.add("out", h, classes, Initial::uniform(-1, 1))),
        lstm(p, "lstm", seen, h) {}

  auto see(const auto& shown) const {
    return max_pool2d(relu(add_channel_bias(conv2d(shown, filters, around), bias)), halves);
  }
  void judge(auto& v, const auto& own) const {
    const auto logits = matmul(own.h, out);
    v.push("logits", logits);
    v.loss(softmax_cross_entropy(logits, v.pull_index("label")));
  }
  void of_image(auto& v) const { v.scatter(v.state("seen", seen), see(v.pull("pixels", pixels))); }
  /// Child 0 is the image, child 1 the moment before.
  void of_moment(auto& v) const { judge(v, lstm.step(v, v.gather(0, v.state("seen", seen)), 1)); }
  void operator()(auto& v) const { return v.kind() == image ? of_image(v) : of_moment(v); }
};

struct Film {
  std::vector<std::vector<float>> images;
  std::vector<std::int32_t> labels;
};

class ImageSequence : public ::testing::Test {
 protected:
  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, 1};
  Watcher model{parameters};
  std::vector<Film> films;
  VertexFunction function{"film",
                          {VertexFunction("image", {}, [&](Vertex& v) { model.of_image(v); }),
                           VertexFunction("moment", {.arity = 2}, [&](Vertex& v) { model.of_moment(v); })}};
  std::vector<GraphData> graphs;

  ImageSequence() {
    std::mt19937 random(3);
    for (int i = 0; i < 12; ++i) {
      Film& film = films.emplace_back();
      for (std::size_t length = 1 + random() % 7; length > 0; --length) {
        auto& pixels = film.images.emplace_back();
        for (Index p = 0; p < Watcher::pixels; ++p) pixels.push_back(static_cast<float>(random() % 2001) / 1000 - 1);
        film.labels.push_back(static_cast<std::int32_t>(random() % Watcher::classes));
      }
      graphs.push_back(graph_of(film));
    }
  }

  /// All images, then all moments.
  static GraphData graph_of(const Film& film) {
    const auto length = static_cast<std::int32_t>(film.images.size());
    GraphData graph;
    graph.child_begin.assign(film.images.size() + 1, 0);
    graph.kinds.assign(film.images.size(), Watcher::image);
    graph.kinds.resize(2 * film.images.size(), Watcher::moment);
    for (std::int32_t t = 0; t < length; ++t) {
      graph.children.insert(graph.children.end(), {t, t == 0 ? no_child : length + t - 1});
      graph.child_begin.push_back(static_cast<std::int32_t>(graph.children.size()));
    }
    auto& pixels = graph.values["pixels"];
    for (const auto& image : film.images) pixels.insert(pixels.end(), image.begin(), image.end());
    pixels.resize(2 * pixels.size());
    auto& labels = graph.indices["label"];
    labels.assign(film.images.size(), -1);
    labels.insert(labels.end(), film.labels.begin(), film.labels.end());
    return graph;
  }

  struct Result {
    double loss;
    std::vector<std::vector<double>> gradients;
  };
  Result in_one_graph() {
    Runner runner(host, function, parameters);
    const Graphs all(function, graphs);
    Result result{.loss = runner.differentiate(all.pointers).loss(), .gradients = {}};
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      result.gradients.push_back(dense(parameters, parameters[p]));
    }
    return result;
  }
};

TEST_F(ImageSequence, IsAGraphOfTwoKinds) {
  Runner runner(host, function, parameters, {.groups = 2, .group_flops = 1});
  Oracle oracle(parameters, [&](OracleVertex& v) { model(v); });
  check_minibatch(runner, parameters, oracle, function, graphs);
}

/// The images are one tensor, and the network in front of the LSTM a few ops, forward and backward.
TEST_F(ImageSequence, IsOperatorsInFrontOfAMinibatch) {
  const Result expected = in_one_graph();
  const VertexFunction watch("watch", {.arity = 1}, [&](Vertex& v) {
    model.judge(v, model.lstm.step(v, v.pull_row("seen", Watcher::seen), 0));
  });
  std::vector<float> pixels;
  std::vector<GraphData> chains;
  for (const Film& film : films) {
    GraphData& chain = chains.emplace_back();
    for (std::size_t t = 0; t < film.images.size(); ++t) {
      pixels.insert(pixels.end(), film.images[t].begin(), film.images[t].end());
      chain.children.push_back(t == 0 ? no_child : static_cast<std::int32_t>(t) - 1);
      chain.child_begin.push_back(static_cast<std::int32_t>(t) + 1);
    }
    chain.indices["label"] = film.labels;
  }
  const Tensor filters = parameters.value(model.filters), bias = parameters.value(model.bias);
  const Attributes around = op::sliding(Watcher::around), halves = op::sliding(Watcher::halves);
  const Tensor images(host, static_cast<Index>(pixels.size()) / Watcher::pixels, Watcher::pixels);
  images.set(pixels);
  const Tensor filtered = apply(host, op::conv2d, {.in = {images, filters}, .attributes = around});
  const Tensor moved = apply(host, op::add_channel_bias, {.in = {filtered, bias}});
  const Tensor positive = apply(host, op::relu, {.in = {moved}});
  const Tensor seen = apply(host, op::max_pool2d, {.in = {positive}, .attributes = halves});

  Runner runner(host, watch, parameters);
  const Graphs all(watch, chains);
  const Minibatch minibatch = runner.differentiate(all.pointers, {{"seen", {seen}}});

  const Tensor of_positive =
      apply(host, op::max_pool2d_gradient, {.in = {positive, minibatch.gradient("seen")}, .attributes = halves});
  const Tensor of_moved = apply(host, op::relu_gradient, {.in = {positive, of_positive}});
  const Tensor of_bias = apply(host, op::add_channel_bias_gradient,
                               {.in = {of_moved}, .attributes = op::to_width(Watcher::halves.channels)});
  const Tensor of_filters = apply(host, op::conv2d_filter_gradient, {.in = {images, of_moved}, .attributes = around});
  EXPECT_NEAR(minibatch.loss(), expected.loss, 1e-5 * expected.loss);
  const auto expect_gradient = [&](std::vector<double> found, std::size_t p) {
    SCOPED_TRACE(parameters.name(parameters[p]));
    expect_close(found, expected.gradients[p], 1e-5);
  };
  const std::vector<float> filter_values = of_filters.get(), bias_values = of_bias.get();
  expect_gradient({filter_values.begin(), filter_values.end()}, 0);
  expect_gradient({bias_values.begin(), bias_values.end()}, 1);
  for (std::size_t p = 2; p < parameters.size(); ++p) expect_gradient(dense(parameters, parameters[p]), p);
}

TEST_F(ImageSequence, IsWrittenAsLazyExpressions) {
  const Result expected = in_one_graph();
  LazyGraph graph(host, parameters);
  std::vector<LazyExpr> losses;
  for (const Film& film : films) {
    const LazyExpr zero = graph.input({0, 0, 0, 0});
    Lstm::State<LazyExpr> state = {zero, zero};
    for (std::size_t t = 0; t < film.images.size(); ++t) {
      state = model.lstm(model.see(graph.input(film.images[t])), state);
      losses.push_back(softmax_cross_entropy(matmul(state.h, model.out), graph.index(film.labels[t])));
    }
  }
  graph.backward(losses);
  double loss = 0;
  for (const LazyExpr& one : losses) loss += one.scalar();
  EXPECT_NEAR(loss, expected.loss, 1e-5 * expected.loss);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    expect_close(dense(parameters, parameters[p]), expected.gradients[p], 1e-5);
  }
  EXPECT_LE(graph.stats().kinds, 5);
}

}  // namespace
}  // namespace windrow
