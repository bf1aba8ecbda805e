// After figure 2 of DyNet: a tagger of synthetic sentences of one length, with manual batching and with a runner's
// automatic batching.
#include <algorithm>
#include <chrono>
#include <random>

#include "batching/hand_tagger.h"
#include "batching/interleaved_runs.h"
#include "batching/tables.h"
#include "windrow/batching/runner.h"
#include "windrow/models/internal/tagger.h"

namespace windrow::perf {
namespace {

constexpr Index sentence_words = 40, tags = 300, vocabulary = 5000;
/// The number of sentences that are measured one vertex at a time, in minibatches of one. The cost per sentence is the
/// same in any minibatch.
constexpr std::size_t serial_sentences = 4;

struct Synthetic {
  std::vector<TaggerInput> sentences;

  Synthetic(std::size_t count, std::uint64_t seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    while (sentences.size() < count) {
      TaggerInput& sentence = sentences.emplace_back();
      for (Index i = 0; i < sentence_words; ++i) {
        sentence.words.push_back(static_cast<std::int32_t>(random() % vocabulary));
        sentence.characters.emplace_back();
        sentence.tags.push_back(static_cast<std::int32_t>(random() % tags));
      }
    }
  }
};

/// The same sentences in the form for each way of batching, on one engine.
class Taggers {
 public:
  Taggers(const TableOptions& options, std::size_t sentences)
      : engine_({.workers = options.workers.front()}),
        parameters_(device_, options.workload.seed),
        layers_(static_cast<int>(options.workload.size("layers"))),
        hidden_(options.workload.size("hidden")),
        tagger_(parameters_, {.vocabulary = vocabulary,
                              .tags = tags,
                              .embedding = options.workload.size("embedding"),
                              .hidden = hidden_,
                              .layers = layers_}),
        function_(tagger_.function()),
        data_(sentences, options.workload.seed) {
    for (const TaggerInput& sentence : data_.sentences) graphs_.emplace_back(function_, tagger_.graph(sentence));
  }

  /// The sentences of one turn, and how many of them form a minibatch.
  struct Size {
    std::size_t batch, sentences;
  };
  /// The variants: automatic batching (found) and manual batching (written). Both return sentences per second.
  InterleavedRuns::Variant found(Size size, const RunnerOptions& options) {
    auto runner = std::make_shared<Runner>(device_, function_, parameters_, options);
    return by_minibatch(size, [this, runner](std::size_t begin, std::size_t end) -> std::function<void()> {
      std::vector<const InputGraph*> graphs;
      for (std::size_t i = begin; i < end; ++i) graphs.push_back(&graphs_[i]);
      const Minibatch minibatch = runner->differentiate(graphs);
      parameters_.sgd(0);
      return [minibatch] { minibatch.loss(); };
    });
  }
  InterleavedRuns::Variant written(Size size) {
    auto tagger = std::make_shared<HandTagger>(device_, parameters_, hidden_, layers_);
    return by_minibatch(size, [this, tagger](std::size_t begin, std::size_t end) -> std::function<void()> {
      const Tensor loss = tagger->differentiate(tensors(begin, end));
      parameters_.sgd(0);
      return [loss] { loss.get(); };
    });
  }

 private:
  TensorSentences tensors(std::size_t begin, std::size_t end) {
    std::vector<std::int32_t> words, labels;
    for (std::size_t word = 0; word < static_cast<std::size_t>(sentence_words); ++word) {
      for (std::size_t i = begin; i < end; ++i) {
        words.push_back(data_.sentences[i].words[word]);
        labels.push_back(data_.sentences[i].tags[word]);
      }
    }
    return to_tensors(device_, std::move(words), std::move(labels), static_cast<Index>(end - begin));
  }

  /// Pushes the sentences from one index up to another, and returns a function that waits for them.
  using PushMinibatch = std::function<std::function<void()>(std::size_t, std::size_t)>;
  /// Pushes each minibatch before it waits for the previous one, so one is always in flight.
  InterleavedRuns::Variant by_minibatch(Size size, PushMinibatch push) {
    return [this, size, push = std::move(push)] {
      const auto began = std::chrono::steady_clock::now();
      std::function<void()> last = [] {};
      for (std::size_t begin = 0; begin < size.sentences; begin += size.batch) {
        std::function<void()> next = push(begin, std::min(begin + size.batch, size.sentences));
        last();
        last = std::move(next);
      }
      last();
      engine_.wait_all();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
      return static_cast<double>(size.sentences) / took.count();
    };
  }

  Engine engine_;
  const program::ToldOnce once_{engine_};
  const Device device_ = host_device(engine_);
  Parameters parameters_;
  const int layers_;
  const Index hidden_;
  const Tagger tagger_;
  const VertexFunction function_;
  const Synthetic data_;
  std::vector<InputGraph> graphs_;
};

}  // namespace

Table manual_batching(const TableOptions& options) {
  const auto largest = static_cast<std::size_t>(*std::max_element(options.batches.begin(), options.batches.end()));
  const std::size_t sentences = std::max({options.workload.samples, largest, serial_sentences});
  Taggers taggers(options, sentences);
  InterleavedRuns runs;
  const std::size_t serial = runs.add(taggers.found({1, serial_sentences}, {.schedule = SchedulePolicy::serial}));
  for (const int one : options.batches) {
    const auto batch = static_cast<std::size_t>(one);
    const Taggers::Size size{batch, std::max(batch, options.workload.samples / batch * batch)};
    runs.add(taggers.written(size));
    runs.add(taggers.found(size, {}));
  }
  runs.run(options.repetitions);

  const auto of = [&](const char* size) { return std::to_string(options.workload.size(size)); };
  Table table(
      "Manual batching compared with automatic batching",
      "Training throughput in sentences/s of a tagger on synthetic sentences of " + std::to_string(sentence_words) +
          " words (" + of("layers") + " bidirectional LSTM layers, embedding " + of("embedding") + ", hidden " +
          of("hidden") + ", " + std::to_string(tags) + " labels). " + turns_text(options) +
          ". Manual: operators on tensors that each hold a whole minibatch, forward and backward, pushed to the "
          "engine. Automatic: the same network as a vertex function, with graphs loaded in advance. One vertex "
          "at a time: schedule policy serial, in minibatches of one. All start from the same parameters, and "
          "all include the parameter update.",
      {{"batch", 0}, {"manual", 0}, {"automatic", 0}, {"automatic / manual", 2, " x"}, {"one vertex at a time", 0}});
  for (std::size_t i = 0; i < options.batches.size(); ++i) {
    const std::size_t written = serial + 1 + 2 * i, found = written + 1;
    table.add({static_cast<double>(options.batches[i]), runs.median(written), runs.median(found),
               runs.ratio(found, written), runs.median(serial)});
  }
  return table;
}

}  // namespace windrow::perf
