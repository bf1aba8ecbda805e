#include "training/scores.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "training/splits.h"

namespace windrow {
namespace {

class Perplexity final : public GraphScore {
 public:
  std::vector<Metric> metrics(double mean_loss) const override { return {perplexity_of(mean_loss)}; }
};

/// The columns with the highest scores. Column `first` is the first one that may be predicted.
Answers highest(Index first) {
  return [first](const Minibatch& minibatch) -> PendingAnswers {
    return [first, logits = minibatch.output("logits")] {
      const std::vector<float> scores = logits.get();
      std::vector<std::int32_t> answers;
      for (auto row = scores.begin(); row != scores.end(); row += logits.width()) {
        answers.push_back(static_cast<std::int32_t>(std::max_element(row + first, row + logits.width()) - row));
      }
      return answers;
    };
  };
}

/// Scores that compare predicted labels, the answers, with the labels of vertices.
class ByAnswers : public GraphScore {
 public:
  explicit ByAnswers(Answers answers) : answers_(std::move(answers)) {}
  std::function<void()> pending(const Minibatch& minibatch, std::vector<const LabelledGraph*> graphs) final {
    return [this, answers_of = answers_(minibatch), graphs = std::move(graphs)] {
      const std::vector<std::int32_t> answers = answers_of();
      auto first = answers.begin();
      for (const LabelledGraph* graph : graphs) {
        const std::vector<std::int32_t> labels = graph->labels();
        const auto behind = first + static_cast<std::ptrdiff_t>(labels.size());
        add_answers(labels, {first, behind});
        first = behind;
      }
    };
  }

 private:
  const Answers answers_;

  virtual void add_answers(std::span<const std::int32_t> labels, const std::vector<std::int32_t>& answers) = 0;
};

class Accuracy : public ByAnswers {
 public:
  Accuracy(const char* name, Answers answers) : ByAnswers(std::move(answers)), name_(name) {}
  std::vector<Metric> metrics(double) const override { return {{name_, all_.share()}}; }

 protected:
  void add_answers(std::span<const std::int32_t> labels, const std::vector<std::int32_t>& answers) override {
    for (std::size_t v = 0; v < labels.size(); ++v) all_.add(labels[v], answers[v]);
  }

 private:
  const char* const name_;
  AnswerCount all_;
};

class RootAccuracy final : public Accuracy {
 public:
  RootAccuracy() : Accuracy("all-node accuracy", highest(0)) {}
  std::vector<Metric> metrics(double mean_loss) const override {
    return {{"root accuracy", root_.share()}, Accuracy::metrics(mean_loss).front()};
  }

 private:
  void add_answers(std::span<const std::int32_t> labels, const std::vector<std::int32_t>& answers) override {
    Accuracy::add_answers(labels, answers);
    if (!labels.empty()) root_.add(labels.back(), answers.back());
  }

  AnswerCount root_;
};

class TaggingScore final : public Accuracy {
 public:
  TaggingScore(const std::vector<std::string>& tags, Answers answers)
      : Accuracy("accuracy", std::move(answers)), tags_(tags) {}
  std::vector<Metric> metrics(double mean_loss) const override {
    const std::int64_t either = there_ + told_;
    const double f1 = either == 0 ? 0 : 2 * static_cast<double>(found_) / static_cast<double>(either);
    return {Accuracy::metrics(mean_loss).front(), {"entity F1", f1}};
  }

 private:
  struct Entity {
    std::size_t begin, end;  // indices among the vertices that have a label
    std::string_view is;
    friend bool operator==(const Entity&, const Entity&) = default;
  };

  /// Entities by their begin.
  std::map<std::size_t, Entity> entities(const std::vector<std::int32_t>& tags) const {
    std::map<std::size_t, Entity> result;
    Entity last{};
    for (std::size_t i = 0; i < tags.size(); ++i) {
      const std::string_view tag = tags_.at(static_cast<std::size_t>(tags[i]));
      const std::string_view is = tag.size() > 2 ? tag.substr(2) : "";
      if (is != last.is || tag.starts_with("B-")) last = {i, i, is};
      last.end = i + 1;
      if (!is.empty()) result[last.begin] = last;
    }
    return result;
  }

  void add_answers(std::span<const std::int32_t> labels, const std::vector<std::int32_t>& answers) override {
    Accuracy::add_answers(labels, answers);
    std::vector<std::int32_t> right, told;
    for (std::size_t v = 0; v < labels.size(); ++v) {
      if (labels[v] < 0) continue;
      right.push_back(labels[v]);
      told.push_back(answers[v]);
    }
    const auto there = entities(right), said = entities(told);
    there_ += static_cast<std::int64_t>(there.size());
    told_ += static_cast<std::int64_t>(said.size());
    for (const auto& [begin, entity] : there) {
      const auto same = said.find(begin);
      found_ += same != said.end() && same->second == entity;
    }
  }

  const std::vector<std::string> tags_;
  std::int64_t there_ = 0, told_ = 0, found_ = 0;
};

}  // namespace

Metric perplexity_of(double mean_loss) { return {"perplexity", std::exp(mean_loss), Metric::Unit::count}; }
std::unique_ptr<GraphScore> make_perplexity() { return std::make_unique<Perplexity>(); }
std::unique_ptr<GraphScore> make_accuracy(Index first) {
  return std::make_unique<Accuracy>("accuracy", highest(first));
}
std::unique_ptr<GraphScore> make_tagging_score(const std::vector<std::string>& tags, Answers answers) {
  return std::make_unique<TaggingScore>(tags, std::move(answers));
}
std::unique_ptr<GraphScore> make_root_accuracy() { return std::make_unique<RootAccuracy>(); }

}  // namespace windrow
