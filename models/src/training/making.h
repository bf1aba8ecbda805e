// What makers of workloads share: their data, part by part, and samples made of them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "windrow/models/graph_network.h"

namespace windrow {

/// A training set and a validation set.
template <class T>
struct Parts {
  std::vector<T> training, unseen;
};

/// The files of these parts in the folder; one of them if there is one file for both.
std::vector<std::filesystem::path> files_of(const WorkloadKind& kind, const std::string& folder);

/// From two seeds. `part` makes so many samples of a seed, and is told what to call them in errors.
template <class Part>
auto generate_parts(const WorkloadOptions& options, Part part) {
  const std::size_t unseen = std::max<std::size_t>(options.samples / 8, 1);
  Parts<typename decltype(part(0, 0, ""))::value_type> parts;
  parts.training = part(options.samples, 2 * options.seed, "generated training set");
  parts.unseen = part(unseen, 2 * options.seed + 1, "generated validation set");
  return parts;
}

/// From the kind's files, or generated. `read` takes a path, or a stream and its name; `generate` a number of samples
/// and a seed.
template <class Read, class Generate>
auto parts_of(const WorkloadKind& kind, const WorkloadOptions& options, Read read, Generate generate) {
  const auto part = [&](std::size_t samples, std::uint64_t seed, const char* name) {
    std::istringstream text(generate(samples, seed));
    return read(text, name);
  };
  if (options.data.empty()) return generate_parts(options, part);
  const std::vector<std::filesystem::path> files = files_of(kind, options.data);
  decltype(generate_parts(options, part)) parts;
  if (files.size() > 1) {
    parts.training = read(files[0]);
    parts.unseen = read(files[1]);
    return parts;
  }
  std::size_t number = 0;
  for (auto& one : read(files[0])) (++number % 10 == 0 ? parts.unseen : parts.training).push_back(std::move(one));
  return parts;
}

/// How many of them are not -1.
std::int64_t count_labels(const std::vector<std::int32_t>& labels);

/// A workload of a vertex function, before it has samples.
struct GraphWorkload {
  const WorkloadKind& kind;
  const Device& device;
  std::string formula;
  std::unique_ptr<Parameters> parameters;
  VertexFunction function;
  GraphNetwork::MakeScore score;
};
/// What becomes a sample: its labels are the graph's index "label".
struct Draft {
  GraphData graph;
  std::int64_t units;
  double flops;
};
Sample counted(const LabelledGraph& graph, const Draft& draft);

/// With the samples of both parts; `draft_of` makes a Draft of what was read, which ends as soon as its graph is there:
/// so a corpus is not in memory twice.
template <class T, class DraftOf>
Workload with_samples(GraphWorkload made, Parts<T> parts, DraftOf draft_of) {
  auto network = std::make_unique<GraphNetwork>(made.device, *made.parameters, made.function, made.score);
  Workload workload{.kind = &made.kind, .formula = std::move(made.formula), .parameters = std::move(made.parameters)};
  const auto add = [&](std::vector<T>& part, std::vector<LabelledGraph>& graphs, std::vector<Sample>& samples) {
    for (T& element : part) {
      const T one = std::move(element);
      const Draft draft = draft_of(one);
      const std::string name = made.kind.sample + " " + std::to_string(samples.size() + 1);
      graphs.push_back(network->labelled(draft.graph, name));
      samples.push_back(counted(graphs.back(), draft));
    }
  };
  add(parts.training, network->training, workload.training);
  add(parts.unseen, network->unseen, workload.unseen);
  workload.network = std::move(network);
  return workload;
}

// Sizes that several kinds have.
inline WorkloadSize hidden(Index preset) { return {"hidden", "Hidden size", preset}; }
inline WorkloadSize embedding(Index preset) { return {"embedding", "Embedding size", preset}; }
inline WorkloadSize layers(Index preset) {
  // How long planning takes grows faster than they do: many more would keep it busy for hours.
  return {"layers", "Stacked bidirectional LSTM layers", preset, 64};
}

// What each source has for the list of workload.cc; see WorkloadKind::make, which gets complete options.
WorkloadKind tree_lstm_kind();
WorkloadKind tree_fc_kind();
WorkloadKind fixed_lstm_kind();
WorkloadKind var_lstm_kind();
WorkloadKind bilstm_kind();
WorkloadKind bilstm_char_kind();
WorkloadKind listops_kind();
WorkloadKind dag_kind();
WorkloadKind parser_kind();

}  // namespace windrow
