#include "windrow/models/workload.h"

#include <algorithm>
#include <cmath>
#include <ranges>
#include <sstream>

#include "data/open_data.h"
#include "training/splits.h"
#include "windrow/memory/allocator.h"
#include "windrow/models/internal/parallel_text.h"

namespace windrow {
namespace {

const std::vector<WorkloadKind>& all_kinds() {
  static const std::vector<WorkloadKind> kinds = {
      tree_lstm_kind(),   tree_fc_kind(), fixed_lstm_kind(), var_lstm_kind(),     bilstm_kind(),
      bilstm_char_kind(), listops_kind(), dag_kind(),        lattice_lstm_kind(), seq2seq_kind(),
      parser_kind(),      mlp_kind(),     cnn_kind(),
  };
  return kinds;
}

/// The names, separated by commas.
template <class Range, class Name>
std::string list(Range&& range, Name name) {
  std::string text;
  for (const auto& one : range) text += (text.empty() ? "" : ", ") + name(one);
  return text;
}

void check_size(const WorkloadKind& kind, const std::string& name, Index value) {
  const auto found =
      std::find_if(kind.sizes.begin(), kind.sizes.end(), [&](const WorkloadSize& size) { return size.name == name; });
  if (found == kind.sizes.end()) {
    throw MisuseError(kind.name + ": size '" + name + "' is unknown; expected " +
                      list(kind.sizes, [](const WorkloadSize& size) { return size.name; }));
  }
  if (value >= 1 && value <= found->most) return;
  throw MisuseError(kind.name + ": " + name + " " + std::to_string(value) + "; expected 1 to " +
                    std::to_string(found->most));
}

void check_cell(const WorkloadKind& kind, const std::string& cell) {
  if (cell.empty() || std::find(kind.cells.begin(), kind.cells.end(), cell) != kind.cells.end()) return;
  if (kind.cells.empty())
    throw MisuseError(kind.name + ": cell '" + cell + "'; expected none, because it has a single cell");
  throw MisuseError(kind.name + ": cell '" + cell + "'; expected " +
                    list(kind.cells, [](const std::string& one) { return one; }));
}

void check_switch(const WorkloadKind& kind, const std::string& name) {
  const auto& all = kind.switches;
  if (std::ranges::find(all, name, &WorkloadSwitch::name) != all.end()) return;
  const std::string there = list(all, [](const WorkloadSwitch& one) { return one.name; });
  throw MisuseError(kind.name + ": switch '" + name + "'; expected " +
                    (all.empty() ? "none, because it has nothing to switch on" : there));
}

/// The options with the kind's defaults for everything left open.
WorkloadOptions complete(const WorkloadKind& kind, WorkloadOptions options) {
  constexpr std::size_t most_samples = 1 << 24;
  const auto refuse = [&](bool refused, const std::string& why) {
    if (refused) throw MisuseError(kind.name + ": " + why);
  };
  refuse(options.samples > most_samples,
         std::to_string(options.samples) + " generated samples; expected at most " + std::to_string(most_samples));
  for (const auto& [name, value] : options.sizes) check_size(kind, name, value);
  check_cell(kind, options.cell);
  for (const std::string& name : options.switches) check_switch(kind, name);
  refuse(!kind.takes_dropout && (options.dropout.element != 0 || options.dropout.word != 0),
         "a rate of dropout; expected none, because the model has no dropout");
  refuse(!kind.has_graph_mode && options.graph_mode,
         "graph mode; expected none, because the structure differs from sample to sample");
  const bool has_languages = !options.source_language.empty() || !options.target_language.empty();
  refuse(!kind.translates && has_languages,
         "a source or target language; expected none, because the model does not translate");
  refuse(has_languages && options.data.empty() && !options.validation_only,
         "a source or target language of generated data; expected a data folder");
  refuse(kind.files.empty() && !options.data.empty(),
         "data folder '" + options.data + "'; expected none, because its data are always generated");
  refuse(options.data.empty() && !options.training_file.empty(),
         "training set '" + options.training_file + "' without a data folder; expected one");
  for (const WorkloadSize& size : kind.sizes) options.sizes.emplace(size.name, size.preset);
  if (options.cell.empty() && !kind.cells.empty()) options.cell = kind.cells.front();
  if (options.samples == 0) options.samples = kind.samples;
  return options;
}

/// Sets the languages, so that a model is not scored with text in other languages.
void find_languages(WorkloadOptions& options) {
  const ParallelFiles files =
      find_parallel_text(options.data, options.validation_only ? validation_part(options) : training_part(options),
                         {options.source_language, options.target_language});
  const auto language = [](const std::filesystem::path& file) {
    return uncompressed_name(file).extension().string().substr(1);
  };
  options.source_language = language(files.source);
  options.target_language = language(files.target);
}

/// Their names.
std::string kinds_that(bool (*can)(const WorkloadKind&)) {
  return list(all_kinds() | std::views::filter(can), [](const WorkloadKind& kind) { return kind.name; });
}

[[noreturn]] void refuse_graphs() {
  throw MisuseError("this model's graphs are not known before it runs; expected one of " +
                    kinds_that([](const WorkloadKind& kind) { return kind.graphs_known; }));
}

}  // namespace

std::vector<TypedGraph> Network::typed_graphs(std::size_t) const { refuse_graphs(); }
GroupedMinibatch Learner::grouped(SampleNumbers) { refuse_graphs(); }

std::vector<Prediction> Network::predict(std::span<const std::string>, const PredictOptions&) {
  throw MisuseError("this model predicts nothing from texts; expected one of " +
                    kinds_that([](const WorkloadKind& kind) { return !kind.input.empty(); }));
}

std::vector<std::string> Network::sample_texts(const std::string&, const SamplingOptions&) {
  throw MisuseError("this model samples no texts; expected one of " +
                    kinds_that([](const WorkloadKind& kind) { return kind.samples_texts; }));
}

double Prediction::Likelihood::perplexity() const { return std::exp(-log_probability / static_cast<double>(tokens)); }

VertexFunction Network::function_for_use() const {
  throw MisuseError("this model cannot be exported: its graphs depend on what it computes; expected a vertex function");
}

void Network::refuse_beam(const PredictOptions& options) {
  if (options.beam == 1) return;
  throw MisuseError("a beam of " + std::to_string(options.beam) + "; expected 1, because the model labels texts");
}

std::span<const WorkloadKind> workload_kinds() { return all_kinds(); }

const WorkloadKind& workload_kind(std::string_view name) {
  const auto found =
      std::find_if(all_kinds().begin(), all_kinds().end(), [&](const auto& k) { return k.name == name; });
  if (found != all_kinds().end()) return *found;
  throw MisuseError("workload '" + std::string(name) + "'; expected one of " +
                    list(all_kinds(), [](const WorkloadKind& kind) { return kind.name; }));
}

void check_workload(std::string_view name, const WorkloadOptions& options) { complete(workload_kind(name), options); }

Workload make_workload(std::string_view name, const Device& device, const WorkloadOptions& options) {
  const WorkloadKind& kind = workload_kind(name);
  WorkloadOptions all = complete(kind, options);
  if (kind.translates && !all.data.empty()) find_languages(all);
  Workload workload = kind.make(kind, device, all);
  workload.options = std::move(all);
  trim_heap();  // returns memory used for reading the corpus
  return workload;
}

/// The names of `size` rows or columns; those from number `first` on stand for these words. There may be more words.
static std::vector<std::string> names_of(Index size, std::span<const std::string> words, std::size_t first) {
  std::vector<std::string> names(static_cast<std::size_t>(size));
  const std::size_t count = std::min(words.size(), names.size() - std::min(first, names.size()));
  if (count > 0) std::ranges::copy(words.first(count), names.begin() + static_cast<std::ptrdiff_t>(first));
  return names;
}

std::optional<WordEmbedding> embedding_of(const Parameters& parameters, const std::string& name,
                                          const Vocabulary& words, std::size_t first) {
  const Parameter table = parameters.find(name);
  return WordEmbedding{.table = table, .words = names_of(parameters.value(table).rows(), words.words(), first)};
}

NamedAxis rows_of(const Parameters& parameters, const std::string& name, const std::string& what,
                  std::span<const std::string> names, std::size_t first) {
  const Parameter parameter = parameters.find(name);
  return {parameter, NamedAxis::Of::rows, what, names_of(parameters.value(parameter).rows(), names, first)};
}

NamedAxis columns_of(const Parameters& parameters, const std::string& name, const std::string& what,
                     std::span<const std::string> names, std::size_t first) {
  const Parameter parameter = parameters.find(name);
  return {parameter, NamedAxis::Of::columns, what, names_of(parameters.value(parameter).width(), names, first)};
}

NamedAxis rows_of(const WordEmbedding& embedding) {
  return {embedding.table, NamedAxis::Of::rows, "words", embedding.words};
}

std::vector<std::string> typed_words(const std::string& text, const std::string& name) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  if (words.empty()) throw DataError(name + ": no word; expected a sentence");
  return words;
}

std::int64_t count_labels(std::span<const std::int32_t> labels) {
  return std::count_if(labels.begin(), labels.end(), [](std::int32_t label) { return label >= 0; });
}

MadeSample sample_of(const VertexFunction& function, const Draft& draft, const std::string& name) {
  InputGraph graph(function, draft.graph, name);
  const Sample sample{.units = draft.units,
                      .vertices = graph.vertices(),
                      .labels = count_labels(draft.graph.indices.at("label")),
                      .flops = draft.flops};
  return {std::move(graph), sample};
}

void add_samples(std::vector<MadeSample> made, std::vector<LabelledGraph>& graphs, std::vector<Sample>& samples) {
  std::vector<InputGraph*> together;
  for (MadeSample& one : made) together.push_back(&one.graph);
  InputGraph::store_together(together);
  graphs.reserve(made.size());
  samples.reserve(made.size());
  for (MadeSample& one : made) {
    graphs.push_back({std::move(one.graph), graphs.size(), one.sample.labels});
    samples.push_back(one.sample);
  }
}

}  // namespace windrow
