// Shared by the sources of workloads: splits of data into training and validation sets, and samples made of them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <istream>
#include <ranges>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "data/parallel_map.h"
#include "windrow/comm/communicator.h"
#include "windrow/models/datasets.h"
#include "windrow/models/internal/graph_network.h"

namespace windrow {

/// A training set and a validation set.
template <class T>
struct Split {
  std::vector<T> training = {}, validation = {};
  SampleSource training_source = {}, validation_source = {};
};

/// The file of the training set, and that of the validation set. The latter is empty if every tenth sample of the
/// former is for validation. A value.
struct DataFiles {
  std::filesystem::path training, validation;
};
/// Finds the files of the kind in the folder of the options. With WorkloadOptions::validation_only, ignores a training
/// set that is not needed. Throws DataError if a file is missing, if several have its names, and if both are the same.
DataFiles files_of(const WorkloadKind& kind, const WorkloadOptions& options);
/// The file of labels beside a file of images: train-labels-idx1-ubyte beside train-images-idx3-ubyte. Throws DataError
/// if the name does not have this form.
std::filesystem::path labels_of(const std::filesystem::path& images);
/// The name of the part of parallel text that is the training or the validation set, such as "train".
std::string training_part(const WorkloadOptions& options);
std::string validation_part(const WorkloadOptions& options);

/// Generates both sets, from two seeds. `part` takes the number of samples, a seed, and a name for errors.
template <class Part>
auto generate_split(const WorkloadOptions& options, Part part) {
  const std::size_t validation = std::max<std::size_t>(options.samples / 8, 1);
  Split<typename decltype(part(0, 0, ""))::value_type> split;
  split.training = part(options.samples, 2 * options.seed, "generated training set");
  split.validation = part(validation, 2 * options.seed + 1, "generated validation set");
  return split;
}

/// The split, without the training set if WorkloadOptions::validation_only.
template <class T>
Split<T> validating(const WorkloadOptions& options, Split<T> split) {
  if (options.validation_only) split.training = {};
  return split;
}

/// Functions that read elements of one kind: from a text, whose name errors mention, or from a file.
template <class T>
struct Readers {
  std::vector<T> (*text)(std::istream& in, const std::string& name);
  std::vector<T> (*file)(const std::filesystem::path& file);
};

/// Reads both sets from the files of the kind, or generates them without a data folder: `generate` takes a number of
/// samples and a seed. Readers run in an op of the device's engine.
template <class T, class Generate>
Split<T> make_split(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options, Readers<T> readers,
                    Generate generate) {
  const auto read = [&](const auto& reader, auto&&... from) {
    std::vector<T> result;
    run_in_op(device.engine, [&] { result = reader(from...); });
    return result;
  };
  Split<T> split;
  if (options.data.empty()) {
    split = generate_split(options, [&](std::size_t samples, std::uint64_t seed, const char* name) {
      std::istringstream text(generate(samples, seed));
      return read(readers.text, text, name);
    });
    return validating(options, std::move(split));
  }
  const DataFiles files = files_of(kind, options);
  split.training_source.files = {files.training};
  split.validation_source.files = {files.validation.empty() ? files.training : files.validation};
  if (!files.validation.empty()) {
    if (!options.validation_only) split.training = read(readers.file, files.training);
    split.validation = read(readers.file, files.validation);
    return split;
  }
  std::size_t number = 0;
  for (T& one : read(readers.file, files.training)) {
    (++number % 10 == 0 ? split.validation : split.training).push_back(std::move(one));
  }
  return validating(options, std::move(split));
}

/// Concatenates a list of strings that each sample has.
template <class T, class List>
auto all_of(const std::vector<T>& samples, List T::*list) {
  return samples | std::views::transform(list) | std::views::join;
}

/// The words of a typed text, separated by blanks. Throws DataError if there is none; `name` identifies the input.
std::vector<std::string> typed_words(const std::string& text, const std::string& name);

/// The vocabularies of a workload: from its options or, if these have none, from the training set.
class VocabularySource {
 public:
  explicit VocabularySource(const WorkloadOptions& options) : given_(options.vocabularies) {}

  /// Throws MisuseError if the options have vocabularies, but none of that name.
  template <class Make>
  Vocabulary get(const std::string& name, Make make) {
    const auto found = given_.find(name);
    if (!given_.empty() && found == given_.end()) {
      throw MisuseError("vocabulary '" + name + "' is missing; expected the vocabularies of the same model");
    }
    Vocabulary made = found == given_.end() ? make() : Vocabulary(found->second);
    all_[name] = made.words();
    return made;
  }
  /// A list that belongs to a vocabulary; empty if the options have vocabularies, but no such list.
  template <class Make>
  std::vector<std::string> list(const std::string& name, Make make) {
    const auto found = given_.find(name);
    if (given_.empty()) return all_[name] = make();
    return found == given_.end() ? std::vector<std::string>() : all_[name] = found->second;
  }
  /// All that get() and list() have returned.
  const Vocabularies& all() const { return all_; }

 private:
  const Vocabularies& given_;
  Vocabularies all_;
};

/// The embedding in parameter `name`. Row `first` is for number 1 of the vocabulary, and the next rows for the next
/// numbers.
std::optional<WordEmbedding> embedding_of(const Parameters& parameters, const std::string& name,
                                          const Vocabulary& words, std::size_t first = 1);

/// The rows or the columns of parameter `name`, which stand for these words or labels from number `first` on.
NamedAxis rows_of(const Parameters& parameters, const std::string& name, const std::string& what,
                  std::span<const std::string> names, std::size_t first = 1);
NamedAxis columns_of(const Parameters& parameters, const std::string& name, const std::string& what,
                     std::span<const std::string> names, std::size_t first = 1);
/// The rows of an embedding.
NamedAxis rows_of(const WordEmbedding& embedding);

/// The number of labels that are not -1.
std::int64_t count_labels(std::span<const std::int32_t> labels);

/// Appends the fingerprint of the bytes of a part, for a fingerprint of all parts.
template <class Part>
void add_fingerprint(std::string& to, const Part& part) {
  to += std::to_string(fingerprint({reinterpret_cast<const char*>(part.data()), sizeof(part[0]) * part.size()})) + ' ';
}

/// A workload of a vertex function, before it has samples. The device and the options must outlive it.
struct GraphWorkload {
  GraphWorkload(const WorkloadKind& kind, const Device& of, const WorkloadOptions& options, std::string formula)
      : device(of),
        vocabularies(options),
        workload{.kind = &kind,
                 .formula = std::move(formula),
                 .parameters = std::make_unique<Parameters>(of, options.seed)} {}

  Parameters& parameters() { return *workload.parameters; }
  void set_network(VertexFunction function, GraphNetwork::MakeScore score) {
    network = std::make_unique<GraphNetwork>(device, parameters(), std::move(function), std::move(score));
  }

  const Device& device;
  VocabularySource vocabularies;
  Workload workload;  ///< with_samples() sets `vocabularies`, and adds the axis of `embedding`
  std::unique_ptr<GraphNetwork> network = nullptr;
};
/// Input of a sample. Its labels are the index "label" of the graph.
struct Draft {
  GraphData graph;
  std::int64_t units;
  double flops;
};

/// A sample that is not stored with others.
struct MadeSample {
  InputGraph graph;
  Sample sample;
};
/// Errors mention `name`. Throws MisuseError as InputGraph does.
MadeSample sample_of(const VertexFunction& function, const Draft& draft, const std::string& name);
/// Appends the samples, whose contents are then stored together.
void add_samples(std::vector<MadeSample> made, std::vector<LabelledGraph>& graphs, std::vector<Sample>& samples);

/// Makes the workload with the samples of both sets. `draft_of` makes a Draft of an element of the split; several
/// threads call it. Each element is freed as soon as its graph exists, so only the graphs are in memory twice, while
/// add_samples() packs them.
template <class T, class DraftOf>
Workload with_samples(GraphWorkload made, Split<T> split, DraftOf draft_of) {
  Workload& workload = made.workload;
  workload.vocabularies = made.vocabularies.all();
  workload.training_source = std::move(split.training_source);
  workload.validation_source = std::move(split.validation_source);
  if (workload.embedding) workload.named_axes.push_back(rows_of(*workload.embedding));
  const auto add = [&](std::vector<T>& part, std::vector<LabelledGraph>& graphs, std::vector<Sample>& samples) {
    const auto make = [&](std::size_t i) {
      const T one = std::move(part[i]);
      return sample_of(made.network->function(), draft_of(one), workload.kind->sample + " " + std::to_string(i + 1));
    };
    run_in_op(made.device.engine, [&] { add_samples(parallel_map(part.size(), make), graphs, samples); });
  };
  add(split.training, made.network->training, workload.training);
  add(split.validation, made.network->validation, workload.validation);
  workload.network = std::move(made.network);
  return std::move(workload);
}

// Sizes that several kinds have.
inline WorkloadSize hidden(Index preset) { return {"hidden", "Hidden size", preset}; }
inline WorkloadSize embedding(Index preset) { return {"embedding", "Embedding size", preset}; }
inline WorkloadSize layers(Index preset) {
  // Planning time grows faster than the number of layers: many more layers would take hours.
  return {"layers", "Stacked bidirectional LSTM layers", preset, 64};
}

// The entries of the list in workload.cc, one from each source. WorkloadKind::make gets options with all sizes.
WorkloadKind tree_lstm_kind();
WorkloadKind tree_fc_kind();
WorkloadKind fixed_lstm_kind();
WorkloadKind var_lstm_kind();
WorkloadKind bilstm_kind();
WorkloadKind bilstm_char_kind();
WorkloadKind listops_kind();
WorkloadKind dag_kind();
WorkloadKind lattice_lstm_kind();
WorkloadKind seq2seq_kind();
WorkloadKind parser_kind();
WorkloadKind mlp_kind();
WorkloadKind cnn_kind();

}  // namespace windrow
