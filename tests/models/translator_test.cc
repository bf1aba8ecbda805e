// Beam search, and translations by it: compared with the vertex function of the same network, and with all sequences.
#include <limits>
#include <memory>

#include "tests/models/training.h"
#include "windrow/models/internal/parallel_text.h"
#include "windrow/models/seq2seq.h"

namespace windrow::testing {
namespace {

using Words = std::vector<std::int32_t>;
constexpr std::int32_t begin = SentenceVocabulary::begin, end = SentenceVocabulary::end;

/// A network of random parameters, which are large, so that its next words are not all alike.
struct RandomNetwork {
  explicit RandomNetwork(std::uint64_t seed)
      : parameters(host, seed), model(parameters, {.source = 6, .target = 5, .embedding = 3, .hidden = 4}) {
    scale(parameters, 3);
  }

  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters;
  Seq2Seq model;
  VertexFunction function = model.function();
  Runner runner{host, function, parameters};
  Translator translator{host, parameters, model};

  Minibatch run(const Words& source, Words target) {
    target.insert(target.begin(), begin);
    const InputGraph graph(function, Seq2Seq::graph(source, target));
    const InputGraph* graphs[] = {&graph};
    return runner.run(graphs);
  }
  /// The best words one by one, up to the end mark or to `longest`.
  Words greedy(const Words& source, std::size_t longest) {
    Words words;
    while (words.size() < longest) {
      std::int32_t best = -1;
      double least = std::numeric_limits<double>::infinity();
      for (const std::int32_t word : {0, end, 3, 4}) {
        words.push_back(word);
        const double loss = run(source, words).loss();
        words.pop_back();
        if (loss < least) best = word, least = loss;
      }
      if (best == end) break;
      words.push_back(best);
    }
    return words;
  }
};

const std::vector<Words> sentences = {{3, 4, 5, 3, 0}, {4}, {5, 5, 3}};

TEST(Translator, OfABeamOfOneTakesTheBestWordAtEachStep) {
  bool some_long = false, some_end = false;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    RandomNetwork network(seed);
    const auto found = network.translator.translate(sentences);
    for (std::size_t i = 0; i < sentences.size(); ++i) {
      const std::size_t longest = 2 * sentences[i].size() + 10;
      ASSERT_EQ(found[i].size(), 1u);
      EXPECT_EQ(found[i][0].words, network.greedy(sentences[i], longest)) << "seed " << seed;
      some_long |= found[i][0].words.size() == longest;
      some_end |= found[i][0].words.size() < longest;
      Words whole = found[i][0].words;
      whole.push_back(end);
      EXPECT_NEAR(found[i][0].log_probability, -network.run(sentences[i], whole).loss(), 1e-4);
    }
  }
  EXPECT_TRUE(some_long && some_end);
}

TEST(Translator, FindsAllSequencesWithABeamThatHoldsThem) {
  constexpr std::size_t longest = 3;
  RandomNetwork network(7);
  const Words source = sentences[0];
  std::vector<Words> all = {{}};
  for (std::size_t from = 0; from < all.size(); ++from) {
    if (all[from].size() == longest) continue;
    for (const std::int32_t word : {0, 3, 4}) {
      all.push_back(all[from]);
      all.back().push_back(word);
    }
  }
  ASSERT_EQ(all.size(), 1u + 3 + 9 + 27);
  for (const double power : {0.0, 0.7, 1.0}) {
    std::vector<double> expected;
    for (const Words& words : all) {
      Words whole = words;
      whole.push_back(end);
      expected.push_back(-network.run(source, whole).loss() / std::pow(static_cast<double>(whole.size()), power));
    }
    const auto best = std::max_element(expected.begin(), expected.end()) - expected.begin();
    const auto found = network.translator.translate(std::vector<Words>{source},
                                                    {.width = 64, .length_power = power, .longest = longest});
    ASSERT_EQ(found[0].size(), all.size());
    EXPECT_EQ(found[0][0].words, all[static_cast<std::size_t>(best)]);
    std::sort(expected.begin(), expected.end(), std::greater<>());
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(found[0][i].score, expected[i], 1e-4);
  }
}

TEST(Translator, RefusesWhatItCannotRead) {
  RandomNetwork network(1);
  const auto refused = [&](const std::vector<Words>& what, const BeamSearchOptions& how = {}) {
    return error_of<MisuseError>([&] { network.translator.translate(what, how); });
  };
  EXPECT_EQ(refused({{3}, {}}), "translator: sentence 2 has no words; expected at least one");
  EXPECT_EQ(refused({{6}}), "forward: index 6; expected 0 to 5");
  EXPECT_EQ(refused({{3}}, {.width = 0}), "beam search: width 0; expected at least 1");
  EXPECT_EQ(refused({{3}}, {.length_power = -1}),
            "beam search: length power -1.000000; expected a finite number, 0 or more");
  EXPECT_EQ(network.translator.translate(std::vector<Words>{{3}}).size(), 1u) << "failures leave it as it was";
}

/// What a search holds of the states of a model.
TEST(BeamSearch, DropsTheStatesOfHypothesesThatItDrops) {
  Engine engine;
  Parameters parameters(host_device(engine), 1);
  LazyGraph graph(host_device(engine), parameters, {.use = LazyOptions::For::inference});
  using State = std::shared_ptr<int>;
  const State start = std::make_shared<int>();
  long most = 0;
  const auto step = [&](const State& state, std::int32_t word) {
    most = std::max(most, state.use_count() - 1);
    const float last = static_cast<float>(word);
    return std::pair(state, graph.input({-4, 0, -5, -1 - last, -2, -3}));
  };
  std::vector<LazyTask<std::vector<Hypothesis>>> tasks;
  tasks.push_back(beam_search(start, step, {.width = 3, .longest = 6}));
  const std::vector<Hypothesis> found = run(graph, std::move(tasks)).front();
  EXPECT_EQ(found.size(), 3u);
  EXPECT_LE(most, 3);
  EXPECT_GE(most, 2);
  EXPECT_EQ(start.use_count(), 1);

  Beam beam({.width = 2});
  EXPECT_EQ(error_of<Error>([&] {
              beam.advance({{0, 0, 0, NAN}});
            }),
            "beam search: a log-probability is not a number; expected finite parameters and inputs");
}

/// Sentences of two to five letters, whose translations are the same letters as capitals, last to first.
ParallelText reversed_letters(int count, unsigned seed) {
  std::mt19937 random(seed);
  ParallelText text;
  for (int i = 0; i < count; ++i) {
    std::string letters;
    for (auto left = 2 + random() % 4; left > 0; --left) letters += static_cast<char>('a' + random() % 6);
    for (std::size_t at = 0; at < letters.size(); ++at) {
      const char* after = at + 1 == letters.size() ? "\n" : " ";
      (text.source += letters[at]) += after;
      (text.target += static_cast<char>(letters[letters.size() - 1 - at] - 'a' + 'A')) += after;
    }
  }
  return text;
}

TEST(TranslationWorkload, PredictsTheTranslationsThatItsScoreRates) {
  const ParallelText training = reversed_letters(600, 1), validation = reversed_letters(40, 2);
  const TextFolder folder({{"train.a", training.source},
                           {"train.b", training.target},
                           {"valid.a", validation.source},
                           {"valid.b", validation.target}});
  Engine engine;
  const WorkloadOptions options{.data = folder.path.string(), .sizes = {{"hidden", 16}, {"embedding", 8}}};
  Workload workload = make_workload("seq2seq", host_device(engine), options);
  Trainer trainer(host_device(engine), workload,
                  {.minibatch = 8, .method = Method::adam(), .optimiser = {.rate = 0.01}});
  for (int epoch = 0; epoch < 8; ++epoch) trainer.train();
  const std::vector<Metric> metrics = trainer.evaluate();
  ASSERT_EQ(metrics[2].name, "BLEU");
  EXPECT_GT(metrics[1].value, 0.9) << metrics[1].name;
  EXPECT_GT(metrics[2].value, 70);

  std::istringstream source(validation.source), target(validation.target);
  std::vector<std::string> lines;
  for (std::string line; std::getline(source, line);) lines.push_back(line);
  const std::vector<Sentence> references = read_sentences(target, "references");
  const auto bleu = [&](std::size_t beam) {
    Bleu score;
    const std::vector<Prediction> predictions = workload.network->predict(lines, {.beam = beam});
    for (std::size_t i = 0; i < lines.size(); ++i) {
      std::istringstream words(predictions[i].text->text);
      Sentence translation;
      for (std::string word; words >> word;) translation.push_back(word);
      score.add(translation, references[i]);
    }
    return score.score();
  };
  EXPECT_NEAR(bleu(1), metrics[2].value, 1e-9);
  EXPECT_GE(bleu(4), 0.98 * bleu(1));
  EXPECT_EQ(error_of<DataError>([&] {
              workload.network->predict(std::vector<std::string>{"a", " "});
            }),
            "input 2: no word; expected a sentence");

  const Workload trees =
      make_workload("tree-lstm", host_device(engine), {.samples = 1, .sizes = {{"hidden", 2}, {"embedding", 2}}});
  EXPECT_EQ(error_of<MisuseError>([&] { trees.network->predict(lines, {.beam = 2}); }),
            "a beam of 2; expected 1, because the model labels texts");
}

}  // namespace
}  // namespace windrow::testing
