// Several sets of parameters in one program: what belongs to each set alone.
#include "tests/batching/support.h"
#include "tests/training/files.h"
#include "windrow/training/checkpoint.h"

namespace windrow::testing {
namespace {

/// loss = sum over x of (x * encoder w) * decoder w.
struct Program {
  explicit Program(NonFinite non_finite = NonFinite::fail)
      : encoder(host, 1, {.non_finite = non_finite, .name = "encoder"}),
        decoder(host, 2, {.non_finite = non_finite, .name = "decoder"}) {}

  void differentiate(const Floats& x) { runner.differentiate(Graphs(function, {leaves(1, x)}).pointers); }
  Floats in() const { return encoder.value(of_encoder).get(); }
  Floats out() const { return decoder.value(of_decoder).get(); }

  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters encoder, decoder;
  Parameter of_encoder = encoder.add("w", 2, 2, Initial::uniform(-1, 1)),
            of_decoder = decoder.add("w", 2, 1, Initial::uniform(-1, 1));
  VertexFunction function{
      "f", {}, [this](Vertex& v) { v.loss(square(matmul(matmul(v.pull("x", 2), of_encoder), of_decoder))); }};
  Runner runner{host, function, {encoder, decoder}};
};

TEST(ParameterSets, AreRefusedIfTheyCannotBeToldApart) {
  Program program;
  Parameters same(program.host, 1, {.name = "encoder"}), skips(program.host, 1, {.non_finite = NonFinite::skip});
  const auto made = [&](const std::vector<std::reference_wrapper<Parameters>>& sets) {
    return error_of<MisuseError>([&] { Runner(program.host, program.function, ParameterSets(sets)); });
  };
  EXPECT_EQ(made({}), "ParameterSets: no sets; expected one or more");
  EXPECT_EQ(made({program.encoder, program.encoder}), "ParameterSets: set 'encoder' is given twice; expected once");
  EXPECT_EQ(made({program.encoder, same}),
            "ParameterSets: two sets are named 'encoder'; expected different names, see "
            "ParametersOptions::name");
  EXPECT_EQ(made({program.encoder, skips}),
            "ParameterSets: sets 'encoder' and '' differ in non_finite; expected the same");
  EXPECT_EQ(made({program.encoder}), "f: parameter 'decoder/w' of another set; expected one of set 'encoder'");
  EXPECT_EQ(made({skips}), "f: parameter 'encoder/w' of another set; expected one of this");
  LazyGraph graph(program.host, program.encoder);
  EXPECT_EQ(error_of<MisuseError>([&] {
              matmul(graph.input({1, 2}), program.of_decoder);
            }),
            "parameter 'decoder/w' of another set; expected one of set 'encoder'");
}

TEST(ParameterSets, AreNamedInErrors) {
  Program program;
  LazyGraph graph(program.host, {program.encoder, program.decoder});
  const LazyExpr loss = matmul(matmul(graph.input({1, 2}), program.of_encoder), program.of_decoder);
  loss.value();
  program.decoder.value(program.of_decoder).set({1, 1});
  const std::string said = error_of<MisuseError>([&] { graph.backward(std::array{loss}); });
  EXPECT_EQ(said.find("backward(): parameter 'decoder/w' was modified in place"), 0u) << said;
}

/// One optimiser steps each time, the other one for two minibatches together.
TEST(ParameterSets, KeepAndForgetTheirGradientsApart) {
  Program program;
  Optimiser often(program.encoder, Method::sgd(), {.rate = 0.1}),
      seldom(program.decoder, Method::sgd(), {.rate = 0.1, .accumulate = 2});
  Floats sum(2, 0);
  const Floats before = program.out();
  for (const Floats& x : {Floats{1, 2}, Floats{-1, 0.5f}}) {
    const Floats w = program.in();
    const float y[] = {x[0] * w[0] + x[1] * w[2], x[0] * w[1] + x[1] * w[3]};
    const float z = y[0] * before[0] + y[1] * before[1];
    for (std::size_t i = 0; i < 2; ++i) sum[i] += 2 * z * y[i];
    program.differentiate(x);
    often.step(1);
    seldom.step(1);
    EXPECT_NE(program.in(), w);
  }
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(program.out()[i], before[i] - 0.1f * sum[i] / 2, 1e-5);
}

TEST(ParameterSets, SkipTheStepsOfALossThatIsNotFinite) {
  Program program(NonFinite::skip);
  const Floats in = program.in(), out = program.out();
  program.differentiate({std::numeric_limits<float>::infinity(), 0});
  program.encoder.sgd(0.1);
  program.decoder.sgd(0.1);
  EXPECT_EQ(program.in(), in);
  EXPECT_EQ(program.out(), out);
  EXPECT_EQ(program.encoder.skipped_steps().count, 1u);
  EXPECT_EQ(program.decoder.skipped_steps().count, 1u);
}

class ParameterSetsInFiles : public FileTest {};

TEST_F(ParameterSetsInFiles, ShareACheckpointAndAreReadFromItAlone) {
  Program program, later;
  const OptimiserOptions how{.rate = LearningRate::cosine(0.1, 6)};
  Optimiser adam(program.encoder, Method::adam(), how), sgd(program.decoder, Method::momentum());
  Averages averages(program.encoder, {.decay = 0});
  const auto train = [](Program& on, Optimiser& one, Optimiser& other, Averages& mean) {
    on.differentiate({1, 2});
    one.step(1);
    other.step(1);
    mean.update();
  };
  train(program, adam, sgd, averages);
  Snapshot snapshot({program.encoder, &adam, &averages, "encoder"});
  EXPECT_EQ(error_of<MisuseError>([&] { snapshot.add({.parameters = program.decoder, .name = "encoder"}); }),
            "two sets of parameters named 'encoder' in a checkpoint; expected different names");
  EXPECT_EQ(
      error_of<MisuseError>([&] { snapshot.add({.parameters = program.decoder, .name = "average"}); }),
      "a set of parameters named 'average' in a checkpoint; expected a name without a slash, and not optimiser or "
      "average");
  snapshot.add({program.decoder, &sgd, nullptr, "decoder"});
  CheckpointWriter(folder / "run").write(snapshot.contents(1));
  CheckpointWriter(folder / "alone").write(Snapshot({program.encoder}).contents(1));
  const auto newest = CheckpointFolder(folder / "run").newest();
  ASSERT_TRUE(newest.checkpoint);

  Optimiser adam_later(later.encoder, Method::adam(), how), sgd_later(later.decoder, Method::momentum());
  Averages averages_later(later.encoder, {.decay = 0});
  restore(*newest.checkpoint, {later.encoder, &adam_later, &averages_later, "encoder"});
  restore(*newest.checkpoint, {later.decoder, &sgd_later, nullptr, "decoder"});
  train(program, adam, sgd, averages);
  train(later, adam_later, sgd_later, averages_later);
  EXPECT_EQ(later.in(), program.in());
  EXPECT_EQ(later.out(), program.out());
  EXPECT_EQ(averages_later.tensors()[0].tensor.get(), averages.tensors()[0].tensor.get());

  // Into another program, from either file.
  Parameters encoder(program.host, 5), of_average(program.host, 6);
  const Parameter w = encoder.add("w", 2, 2, Initial::zeros()), average = of_average.add("w", 2, 2, Initial::zeros());
  restore(*CheckpointFolder(folder / "alone").newest().checkpoint, {encoder});
  const Floats alone = encoder.value(w).get();
  restore(*newest.checkpoint, {.parameters = encoder, .name = "encoder"});
  EXPECT_EQ(encoder.value(w).get(), alone);
  restore_for_use(*newest.checkpoint, of_average, "encoder");
  EXPECT_EQ(of_average.value(average).get(), alone);  // of one update

  const auto refused = [&](const TrainingParts& parts) {
    const std::string said = error_of<FileError>([&] { restore(*newest.checkpoint, parts); });
    return said.substr(said.find(": ") + 2);
  };
  EXPECT_EQ(refused({encoder}), "has no tensor 'w'; expected one");
  EXPECT_EQ(refused({.parameters = encoder, .name = "decoder"}),
            "tensor 'decoder/w' is 2 x 1 of F32; expected 2 x 2 of F32");
  Parameters fewer(program.host, 1);
  EXPECT_EQ(refused({.parameters = fewer, .name = "decoder"}),
            "tensor 'decoder/w', which is no parameter of the model; expected its parameters only");
}

}  // namespace
}  // namespace windrow::testing
