#include "scores.h"

#include <algorithm>

namespace windrow {
namespace {

/// How many there are, and how many of them are right.
struct Count {
  std::int64_t right = 0, all = 0;

  void add(std::int32_t label, std::int32_t answer) {
    if (label < 0) return;
    ++all;
    right += answer == label;
  }
  /// 0 of nothing.
  double share() const { return all == 0 ? 0 : static_cast<double>(right) / static_cast<double>(all); }
};

/// What a network takes the vertices for.
class ByAnswers : public Score {
 public:
  void add(const Minibatch& minibatch, std::span<const Sample* const> samples) final {
    const Tensor logits = minibatch.output("logits");
    const std::vector<float> scores = logits.get();
    const auto classes = logits.width();
    const float* row = scores.data();
    for (const Sample* sample : samples) {
      std::vector<std::int32_t> answers;
      for (std::size_t v = 0; v < sample->labels.size(); ++v, row += classes) {
        answers.push_back(static_cast<std::int32_t>(std::max_element(row, row + classes) - row));
      }
      add(sample->labels, answers);
    }
  }

 private:
  virtual void add(const std::vector<std::int32_t>& labels, const std::vector<std::int32_t>& answers) = 0;
};

class Accuracy : public ByAnswers {
 public:
  explicit Accuracy(const char* name) : name_(name) {}
  std::vector<Figure> figures() const override { return {{name_, all_.share()}}; }

 protected:
  void add(const std::vector<std::int32_t>& labels, const std::vector<std::int32_t>& answers) override {
    for (std::size_t v = 0; v < labels.size(); ++v) all_.add(labels[v], answers[v]);
  }

 private:
  const char* const name_;
  Count all_;
};

class RootAccuracy final : public Accuracy {
 public:
  RootAccuracy() : Accuracy("all-node accuracy") {}
  std::vector<Figure> figures() const override {
    return {{"root accuracy", root_.share()}, Accuracy::figures().front()};
  }

 private:
  void add(const std::vector<std::int32_t>& labels, const std::vector<std::int32_t>& answers) override {
    Accuracy::add(labels, answers);
    if (!labels.empty()) root_.add(labels.back(), answers.back());
  }

  Count root_;
};

}  // namespace

std::unique_ptr<Score> make_accuracy(const char* name) { return std::make_unique<Accuracy>(name); }
std::unique_ptr<Score> make_root_accuracy() { return std::make_unique<RootAccuracy>(); }

}  // namespace windrow
