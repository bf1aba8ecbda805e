// Workloads: networks with their data, units of work and scores. Start here.
//
//   const windrow::WorkloadOptions options = {.data = "sst", .sizes = {{"hidden", 128}}};
//   windrow::Workload workload = windrow::make_workload("tree-lstm", host, options);
//   windrow::Trainer trainer(host, workload, {.optimiser = {.rate = workload.kind->learning_rate}});
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/batching/runner.h"
#include "windrow/models/layers.h"

namespace windrow {

struct WorkloadKind;
class Network;

/// The words of vocabularies, by the name of the vocabulary; see Vocabulary::words().
using Vocabularies = std::map<std::string, std::vector<std::string>>;

struct ImageSize {
  Index height, width;
};

/// A table with a row for each word of a vocabulary. A value.
struct WordEmbedding {
  Parameter table;
  std::vector<std::string> words = {};  ///< of each row; empty if a row stands for no single word
};

/// A parameter with a row or a column for each word or label. A value.
struct NamedAxis {
  enum class Of { rows, columns };
  Parameter parameter;
  Of of;
  std::string what = {};                ///< what the names are, in the plural: "words", "tags"
  std::vector<std::string> names = {};  ///< by number; empty if it stands for no single one, such as unknown words
};

/// The counts of a sample; the network holds the sample itself. A value.
struct Sample {
  std::int64_t units;     ///< trees, sentences or words, as the workload counts them
  std::int64_t vertices;  ///< of its graph; if the graph is built as the program runs, the number of steps
  std::int64_t labels;    ///< losses are reported as means over labels
  double flops;           ///< forward; see Workload::formula
};

/// Where a set of samples comes from. A value.
struct SampleSource {
  std::vector<std::filesystem::path> files = {};  ///< that were read; empty if the samples are generated
  struct LeftOut {
    std::size_t samples;
    std::string why;  ///< "not projective"
  };
  std::vector<LeftOut> left_out = {};  ///< samples that were read or generated, but are not in the set

  /// Adds samples that were left out, unless there are none.
  void leave_out(std::size_t samples, std::string why) {
    if (samples > 0) left_out.push_back({samples, std::move(why)});
  }
};

struct WorkloadOptions {
  std::string data = {};   ///< folder with the kind's files; if empty, data are generated
  std::uint64_t seed = 1;  ///< of initial values and of generated data
  /// The number of generated training samples; an eighth as many validation samples are generated. 0: the kind's
  /// default.
  std::size_t samples = 0;
  std::string cell = {};                    ///< one of the kind's cells; empty for the first
  std::map<std::string, Index> sizes = {};  ///< by name; the kind's presets for the others
  std::set<std::string> switches = {};      ///< those of the kind's switches that are on
  /// For kinds that translate: the languages of parallel text, see find_parallel_text(). make_workload() sets both.
  std::string source_language = {}, target_language = {};
  /// For kinds with graph mode: whether a minibatch is recorded once and then replayed (static.h). If false, its
  /// operators are applied one by one; the bits are the same. Not set: true.
  std::optional<bool> graph_mode = {};
  DropoutRates dropout = {};  ///< for kinds that take them
  /// The vocabularies of a model that was trained before; if empty, they are made from the training set.
  Vocabularies vocabularies = {};
  /// The image size of a model that was trained before; if empty, that of the data.
  std::optional<ImageSize> image = {};
  /// For a model that was trained before: leaves the training set empty, and does not read its file.
  bool validation_only = false;
  /// The files of the training set and of the validation set: names in `data`, or paths; for parallel text without the
  /// language. If empty, the files of WorkloadKind::files. Generated data ignore them.
  std::string training_file = {}, validation_file = {};

  /// Precondition: the options have all sizes of the kind.
  Index size(const char* name) const { return sizes.at(name); }
};

/// An owner; must end before the engine of its device.
struct Workload {
  const WorkloadKind* kind;
  std::string formula = {};  ///< the forward products that Sample::flops counts; training takes three times as many
  std::unique_ptr<Parameters> parameters = {};
  std::unique_ptr<Network> network = nullptr;
  std::optional<WordEmbedding> embedding = {};         ///< if the kind embeds words
  std::vector<NamedAxis> named_axes = {};              ///< that of `embedding` among them
  Vocabularies vocabularies = {};                      ///< from which its numbers come
  std::optional<ImageSize> image = {};                 ///< of all images, for models of images
  WorkloadOptions options = {};                        ///< with the kind's defaults for everything left open
  std::vector<Sample> training = {}, validation = {};  ///< training set and validation set
  SampleSource training_source = {}, validation_source = {};
};

/// Throws MisuseError for the names and options for which make_workload() does, but reads and generates nothing. So a
/// program that makes several workloads can check all of them first. Does not check conditions that depend on the data,
/// or limits that only one kind has.
void check_workload(std::string_view name, const WorkloadOptions& options);

/// Reads or generates the data, and draws initial values. The same options give the same workload. Throws DataError for
/// malformed or missing data, and if both sets are one file. Throws MisuseError for an unknown name, for a size, cell
/// or switch that the kind does not have, and for a size out of range. Also throws it for a data folder if the kind
/// only generates data. Throws OutOfMemory if the size of the parameters is not representable.
Workload make_workload(std::string_view name, const Device& device, const WorkloadOptions& options = {});

/// Indices into Workload::training or Workload::validation.
using SampleNumbers = std::span<const std::size_t>;

// ---- what there is

/// A selectable size of a network or of its data. A value.
struct WorkloadSize {
  std::string name = {}, about = {};
  Index preset;          ///< the default: the published value, where there is one
  Index most = 1 << 24;  ///< the largest value allowed
};

/// A part of a network that can be switched on. A value.
struct WorkloadSwitch {
  std::string name = {}, about = {};
};

/// Describes a workload before its data are loaded. A value; the list of kinds is constant.
struct WorkloadKind {
  std::string name = {};
  std::string about = {};   ///< one line
  std::string sample = {};  ///< what a sample is, in the singular
  std::string unit = {};    ///< the unit of throughput, in the plural
  /// The file of the training set and that of the validation set. If there is only one file, every tenth sample is in
  /// the validation set. Other files are read only if WorkloadOptions::training_file or validation_file names them.
  std::vector<std::string> files = {};
  /// Other names of each of `files`, as they are published; * stands for any text. Each file may end in .gz.
  std::vector<std::vector<std::string>> other_names = {};
  std::vector<WorkloadSize> sizes = {};
  std::vector<std::string> cells = {};  ///< selectable cells; empty if there is one only
  std::vector<WorkloadSwitch> switches = {};
  bool takes_dropout = false;   ///< WorkloadOptions::dropout
  bool embeds_words = false;    ///< Workload::embedding
  bool graphs_known = true;     ///< before it runs: it has Network::typed_graphs() and Learner::grouped()
  bool has_graph_mode = false;  ///< WorkloadOptions::graph_mode
  bool samples_texts = false;   ///< Network::sample_texts()
  bool translates = false;      ///< WorkloadOptions::source_language, target_language
  std::size_t samples;          ///< default number of generated training samples
  /// The line that Network::predict() reads, and what it predicts; empty if the model cannot predict for texts.
  std::string input = {};
  double learning_rate;  ///< suitable learning rate of plain descent, for minibatches of 64
  /// For make_workload(); the options must have all sizes of the kind.
  Workload (*make)(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options);
};

/// All kinds.
std::span<const WorkloadKind> workload_kinds();
/// The kind of that name. Throws MisuseError, which lists the names, if there is none.
const WorkloadKind& workload_kind(std::string_view name);

// ---- networks

/// A metric of a set of samples, such as the accuracy. A value.
struct Metric {
  enum class Unit { fraction, count };
  std::string name = {};
  double value;
  Unit unit = Unit::fraction;
};

/// Accumulates the score of a network on validation samples, minibatch by minibatch.
class Score {
 public:
  virtual ~Score() = default;
  /// Evaluates a minibatch; may return before that is done. Throws OpError if this or an earlier minibatch failed.
  virtual void add(SampleNumbers samples) = 0;
  /// The metrics over all samples added. Waits; throws OpError if a minibatch failed.
  virtual std::vector<Metric> metrics() = 0;
  /// The mean loss per label over the samples for which metrics() has waited; none without labels, or if the network
  /// computes no loss in evaluation.
  virtual std::optional<double> loss() const { return {}; }
};

/// One way of computing a network. An owner; must end before the network.
///
/// Errors: as for Runner. Threads: one at a time for each.
class Learner {
 public:
  virtual ~Learner() = default;
  /// Waits for the sum of the losses of a minibatch, computed before its step. Throws OpError if the minibatch failed.
  using Loss = std::function<double()>;
  /// Sets the gradients of the parameters to those of the sum of the losses of a minibatch of training samples. Counts
  /// as one of Parameters::minibatches(). If samples are numbered, random draws depend on these numbers
  /// (Parameters::number_samples()).
  virtual Loss differentiate(SampleNumbers training) = 0;
  /// Tells which minibatch follows that of the next differentiate(); see Runner::prepare(). By default does nothing.
  virtual void prepare(SampleNumbers) {}
  [[deprecated("training is not scored")]] virtual void score_training() {}
  [[deprecated("training is not scored")]] virtual std::vector<Metric> training_metrics() { return {}; }
  /// A new score, which uses this learner and must end before it.
  virtual std::unique_ptr<Score> score() = 0;
  virtual RunnerStats stats() const = 0;
  /// How a minibatch of training samples would be divided; see Runner::grouped(). Throws MisuseError if graphs are
  /// built only as the program runs.
  virtual GroupedMinibatch grouped(SampleNumbers training);
  /// Drops the state, other than parameters and samples, on which results depend, as Runner::forget() does. After that
  /// it continues as a new learner of the same network.
  virtual void forget() {}
};

/// The prediction of a model for one input. A value.
struct Prediction {
  /// The labels that a model chooses from are Network::labels().
  struct Label {
    std::size_t number = 0;  ///< of the most probable one, alone or in the most probable sequence of labels
    /// The probability of each label, irrespective of the labels of other parts.
    std::vector<double> probabilities = {};
  };
  std::optional<Label> label = {};  ///< of the input as a whole; none if the model labels parts only
  /// A part of the input: a phrase, or a word.
  struct Part {
    std::string text;
    Label label;
  };
  std::vector<Part> parts = {};  ///< see PredictOptions::parts
  /// A word of a sentence whose dependencies the model finds; words are numbered from 1, and head 0 is the root.
  struct Word {
    std::string form, tag;  ///< the tag of the input, or the one that the model assumed
    std::int32_t head;
    std::string relation;
  };
  std::vector<Word> words = {};
  /// The text that the model writes, such as a translation; none if it labels inputs.
  struct Text {
    std::string text;
    double log_probability;  ///< natural logarithm
  };
  std::optional<Text> text = {};
  /// How probable the input is; only of language models.
  struct Likelihood {
    std::int64_t tokens;     ///< words, and the end of the sentence
    std::int64_t unknown;    ///< words that the model does not know
    double log_probability;  ///< of all tokens; natural logarithm

    /// The inverse of the geometric mean of the tokens' probabilities.
    double perplexity() const;
  };
  std::optional<Likelihood> likelihood = {};
};

struct SamplingOptions;  // language_model.h

struct PredictOptions {
  std::size_t beam = 1;   ///< for models that write: the width of the beam search; 1 is greedy search
  std::size_t first = 1;  ///< the number of the first text, for errors
  /// Whether predictions that label a text as a whole also label each part. The memory for parts grows with the square
  /// of the length if each part is within the next one.
  bool parts = false;
};

/// Computes a workload's samples, and holds them: a vertex function over graphs (graph_network.h), or a program that
/// builds its graphs as it runs. An owner.
class Network {
 public:
  virtual ~Network() = default;
  /// Throws MisuseError for options that the network cannot be computed with.
  virtual std::unique_ptr<Learner> learner(const RunnerOptions& options) = 0;
  /// The training graphs in minibatches, as input for schedules. Throws MisuseError if graphs are built only as the
  /// program runs, and for minibatches of 0 graphs.
  virtual std::vector<TypedGraph> typed_graphs(std::size_t minibatch) const;
  /// A hash of the training and validation samples, as fingerprint() of a text: it differs if a sample differs.
  virtual std::int64_t fingerprint() const = 0;
  /// The names of the labels that predict() chooses from.
  virtual std::vector<std::string> labels() const { return {}; }
  /// Predicts for texts, one input each, as one minibatch; waits. Before it computes anything, it throws DataError for
  /// a text that cannot be read; the message names its number, counted from PredictOptions::first. Throws MisuseError
  /// if WorkloadKind::input is empty, and for a beam other than 1 if the model writes no texts.
  virtual std::vector<Prediction> predict(std::span<const std::string> lines, const PredictOptions& options = {});
  /// Draws texts from a language model, as one minibatch; all begin with the words of `start`. Waits. Throws
  /// MisuseError unless WorkloadKind::samples_texts, and as SentenceModel::sample() does.
  virtual std::vector<std::string> sample_texts(const std::string& start, const SamplingOptions& options);
  /// The vertex function that computes the network's outputs, with its parameters. Throws MisuseError if there is none.
  virtual VertexFunction function_for_use() const;

 protected:
  /// Throws MisuseError for a beam, which only models that write texts can use.
  static void refuse_beam(const PredictOptions& options);
};

}  // namespace windrow
