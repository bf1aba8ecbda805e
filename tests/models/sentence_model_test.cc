// Language models of sentences: scores compared with the losses of the vertex function, and draws with probabilities.
#include <limits>

#include "tests/models/training.h"
#include "tests/seed.h"
#include "windrow/models/language_model.h"

namespace windrow::testing {
namespace {

using DrawnWords = SentenceModel::Words;
constexpr std::int32_t end_mark = SentenceModel::end;

/// A network of random parameters, which are large, so that its next words are not all alike. The last word of its
/// vocabulary has no name.
struct RandomLanguage {
  explicit RandomLanguage(std::uint64_t seed, int workers = 2, bool tied = false)
      : engine({.workers = workers}),
        parameters(host, seed),
        model(parameters, {.vocabulary = 7, .embedding = 4, .hidden = 4, .dropout = {.element = 0.5}, .tied = tied}) {
    scale(parameters, 4);
  }

  Engine engine;
  Device host = host_device(engine);
  Parameters parameters;
  LanguageModel model;
  VertexFunction function = model.function();
  Runner runner{host, function, parameters};
  SentenceModel sentences{host, parameters, model, 6};

  /// By the vertex function, from an end mark.
  double log_probability(DrawnWords words) {
    words.insert(words.begin(), end_mark);
    const InputGraph graph(function, LanguageModel::graph(words));
    const InputGraph* graphs[] = {&graph};
    return -runner.run(graphs).loss();
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
  Engine engine;
  const WorkloadOptions options{.data = folder.path.string(),
                                .sizes = {{"hidden", 32}, {"embedding", 16}, {"vocabulary", 40}}};
  Workload workload = make_workload("var-lstm", host_device(engine), options);
  Trainer trainer(host_device(engine), workload,
                  {.minibatch = 3, .method = Method::adam(), .optimiser = {.rate = 0.02}});
  for (int epoch = 0; epoch < 120; ++epoch) trainer.train();
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    const std::string start = " " + line.substr(0, line.find(' '));
    EXPECT_EQ(workload.network->sample_texts(start, {.temperature = 0}), std::vector<std::string>{line});
    lines.push_back(line);
  }
  for (const std::string& drawn : workload.network->sample_texts("", {.texts = 20, .temperature = 0.2})) {
    EXPECT_NE(std::ranges::find(lines, drawn), lines.end()) << drawn;
  }
}

}  // namespace
}  // namespace windrow::testing
