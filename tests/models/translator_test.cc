// Beam search, and translations by it: compared with the vertex function of the same network, and with all sequences.
// Language models of sentences: scores compared with the losses of the vertex function, and draws with probabilities.
#include "tests/models/training.h"
#include "windrow/models/internal/parallel_text.h"
#include "windrow/models/language_model.h"
#include "windrow/models/seq2seq.h"

namespace windrow::testing {
namespace {

using Words = std::vector<std::int32_t>;
constexpr std::int32_t begin = SentenceVocabulary::begin, end = SentenceVocabulary::end;

/// A network of random parameters, which are large, so that its next words are not all alike.
struct RandomNetwork : OnHost {
  explicit RandomNetwork(std::uint64_t seed)
      : OnHost({.workers = 2}, seed), model(parameters, {.source = 6, .target = 5, .embedding = 3, .hidden = 4}) {
    change_values(parameters, [](float value) { return 3 * value; });
  }

  Seq2Seq model;
  VertexFunction function = model.function();
  Runner runner{host, function, parameters};
  Translator translator{host, parameters, model};

  Minibatch run(const Words& source, Words target) {
    target.insert(target.begin(), begin);
    return runner.run(Graphs(function, {Seq2Seq::graph(source, target)}).pointers);
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
  OnHost s;
  LazyGraph graph(s.host, s.parameters, {.use = LazyOptions::For::inference});
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
  Training run("seq2seq", {.data = folder.path.string(), .sizes = {{"hidden", 16}, {"embedding", 8}}},
               {.minibatch = 8, .method = Method::adam(), .optimiser = {.rate = 0.01}});
  run.train(8);
  const std::vector<Metric> metrics = run.trainer.evaluate();
  ASSERT_EQ(metrics[2].name, "BLEU");
  EXPECT_GT(metrics[1].value, 0.9) << metrics[1].name;
  EXPECT_GT(metrics[2].value, 70);

  std::istringstream source(validation.source), target(validation.target);
  std::vector<std::string> lines;
  for (std::string line; std::getline(source, line);) lines.push_back(line);
  const std::vector<Sentence> references = read_sentences(target, "references");
  const auto bleu = [&](std::size_t beam) {
    Bleu score;
    const std::vector<Prediction> predictions = run.workload.network->predict(lines, {.beam = beam});
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
              run.workload.network->predict(std::vector<std::string>{"a", " "});
            }),
            "input 2: no word; expected a sentence");

  const HostWorkload trees("tree-lstm", {.samples = 1, .sizes = {{"hidden", 2}, {"embedding", 2}}});
  EXPECT_EQ(error_of<MisuseError>([&] { trees.workload.network->predict(lines, {.beam = 2}); }),
            "a beam of 2; expected 1, because the model labels texts");
}

using DrawnWords = SentenceModel::Words;
constexpr std::int32_t end_mark = SentenceModel::end;

/// A network of random parameters, which are large, so that its next words are not all alike. The last word of its
/// vocabulary has no name.
struct RandomLanguage : OnHost {
  explicit RandomLanguage(std::uint64_t seed, int workers = 2, bool tied = false)
      : OnHost({.workers = workers}, seed),
        model(parameters, {.vocabulary = 7, .embedding = 4, .hidden = 4, .dropout = {.element = 0.5}, .tied = tied}) {
    change_values(parameters, [](float value) { return 4 * value; });
  }

  LanguageModel model;
  VertexFunction function = model.function();
  Runner runner{host, function, parameters};
  SentenceModel sentences{host, parameters, model, 6};

  /// By the vertex function, from an end mark.
  double log_probability(DrawnWords words) {
    words.insert(words.begin(), end_mark);
    return -runner.run(Graphs(function, {LanguageModel::graph(words)}).pointers).loss();
  }
  /// Of each word that may follow these: those that can be drawn, at a temperature.
  std::map<std::int32_t, double> next(DrawnWords words, double temperature = 1) {
    const double before = words.empty() ? 0 : log_probability(words);
    std::map<std::int32_t, double> result;
    double sum = 0;
    words.push_back(0);
    for (std::int32_t word = end_mark; word < 6; ++word) {
      words.back() = word;
      sum += result[word] = std::exp((log_probability(words) - before) / temperature);
    }
    for (auto& [word, probability] : result) probability /= sum;
    return result;
  }
};

TEST(SentenceModels, ScoreSentencesAsTheLossesOfTheirGraphsSay) {
  for (const bool tied : {false, true}) {
    RandomLanguage language(3, 2, tied);
    const std::vector<DrawnWords> read = {{2, 5, 5, 0}, {}, {6}, {4, 3, 2, 2, 3, 4, 5}};
    const std::vector<double> scores = language.sentences.score(read);
    ASSERT_EQ(scores.size(), read.size());
    for (std::size_t i = 0; i < read.size(); ++i) {
      DrawnWords whole = read[i];
      whole.push_back(end_mark);
      EXPECT_NEAR(scores[i], language.log_probability(whole), 1e-4) << i;
    }
    EXPECT_TRUE(language.sentences.score({}).empty());
  }
}

/// Within five standard deviations, for each first word, and for each word after the start.
TEST(SentenceModels, DrawWordsWithTheirProbabilities) {
  const unsigned seed = first_seed();
  RandomLanguage language(5);
  constexpr std::size_t texts = 3000;
  for (const double temperature : {1.0, 0.5, 3.0}) {
    for (const DrawnWords& start : {DrawnWords{}, DrawnWords{3, 2}}) {
      std::map<std::int32_t, double> count;
      for (const DrawnWords& drawn :
           language.sentences.sample(start, {.texts = texts, .seed = seed, .temperature = temperature, .longest = 1})) {
        ASSERT_LE(drawn.size(), 1u);
        ++count[drawn.empty() ? end_mark : drawn[0]];
      }
      for (const auto& [word, p] : language.next(start, temperature)) {
        EXPECT_NEAR(count[word] / texts, p, 5 * std::sqrt(p * (1 - p) / texts) + 1e-4)
            << "word " << word << ", temperature " << temperature << ", seed " << seed;
        count.erase(word);
      }
      EXPECT_TRUE(count.empty()) << "a word without a name was drawn";
    }
  }
}

TEST(SentenceModels, DrawTheSameTextsForAnyNumberOfWorkersAndOfTexts) {
  RandomLanguage one(4, 1), two(4, 2);
  const SamplingOptions ten{.texts = 10, .seed = 8, .longest = 20};
  const std::vector<DrawnWords> drawn = one.sentences.sample({2}, ten);
  EXPECT_EQ(two.sentences.sample({2}, ten), drawn);
  EXPECT_EQ(two.sentences.sample({2}, {.texts = 4, .first = 5, .seed = 8, .longest = 20}),
            std::vector<DrawnWords>(drawn.begin() + 4, drawn.begin() + 8));
  EXPECT_NE(two.sentences.sample({2}, {.texts = 10, .seed = 9, .longest = 20}), drawn);
  EXPECT_TRUE(two.sentences.sample({2}, {.texts = 0}).empty());
  EXPECT_EQ(two.sentences.sample({2}, {.longest = 0}), std::vector<DrawnWords>(1));
}

TEST(SentenceModels, RefuseWhatTheyCannotReadAndDraw) {
  RandomLanguage language(1);
  const auto refused = [&](const DrawnWords& start, double temperature) {
    return error_of<MisuseError>([&] { language.sentences.sample(start, {.temperature = temperature}); });
  };
  EXPECT_EQ(refused({}, -1), "sentence model: temperature -1.000000; expected a finite number, 0 or more");
  EXPECT_NE(refused({}, std::numeric_limits<double>::quiet_NaN()), "");
  EXPECT_NE(refused({}, std::numeric_limits<double>::infinity()), "");
  EXPECT_EQ(refused({7}, 1), "next word: index 7; expected 0 to 6");
  EXPECT_EQ(error_of<MisuseError>([&] {
              language.sentences.score(std::vector<DrawnWords>{{2, -1}});
            }),
            "score: index -1; expected 0 to 6");
  EXPECT_EQ(error_of<MisuseError>([&] { SentenceModel(language.host, language.parameters, language.model, 8); }),
            "sentence model: 8 words; expected 2 to 7");
  EXPECT_EQ(language.sentences.score(std::vector<DrawnWords>{{2}}).size(), 1u) << "after an error";
  const Tensor& bias = language.parameters.value(language.parameters.find("head_bias"));
  bias.set(std::vector<float>(7, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_EQ(error_of<Error>([&] { language.sentences.sample({}, {}); }),
            "language model: a log-probability is not a number; expected finite parameters");
}

TEST(LanguageWorkload, WritesTheTextThatItHasMemorised) {
  const std::string text = "the cat sat on the mat\na dog ran in the garden\nwe like red apples\n";
  const TextFolder folder({{"train.txt", text}, {"valid.txt", text}});
  Training run("var-lstm",
               {.data = folder.path.string(), .sizes = {{"hidden", 32}, {"embedding", 16}, {"vocabulary", 40}}},
               {.minibatch = 3, .method = Method::adam(), .optimiser = {.rate = 0.02}});
  run.train(120);
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    const std::string start = " " + line.substr(0, line.find(' '));
    EXPECT_EQ(run.workload.network->sample_texts(start, {.temperature = 0}), std::vector<std::string>{line});
    lines.push_back(line);
  }
  for (const std::string& drawn : run.workload.network->sample_texts("", {.texts = 20, .temperature = 0.2})) {
    EXPECT_NE(std::ranges::find(lines, drawn), lines.end()) << drawn;
  }
}

}  // namespace
}  // namespace windrow::testing
