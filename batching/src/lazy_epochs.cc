#include "lazy_epochs.h"

#include <algorithm>
#include <chrono>

#include "batch.h"
#include "windrow/ops/apply.h"

namespace windrow::lazy {

Epochs::Epochs(Record& record, const Device& device, Parameters& parameters, LazyOptions options)
    : record_(record),
      device_(device),
      parameters_(parameters),
      options_(options),
      runs_(record),
      kinds_(record, runs_, parameters) {}

void Epochs::clear() {
  epochs_.clear();
  places_.clear();
  differentiated_ = false;
}

/// Finds vertices, and the kind of each.
void Epochs::lower() {
  runs_.find(record_.first_pending(), record_.size());
  kind_of_.clear();
  child_begin_.assign(1, 0);
  children_.clear();
  for (const Run& run : runs_.runs()) {
    kind_of_.push_back(kinds_.kind_of(run, kind_of_, children_));
    child_begin_.push_back(static_cast<std::int32_t>(children_.size()));
  }
}

/// Where to cut the vertices into graphs without an edge between them, so that these can run side by side.
std::vector<std::int32_t> Epochs::cuts() const {
  constexpr std::int32_t least = 128;  // vertices of a graph
  const auto vertices = static_cast<std::int32_t>(kind_of_.size());
  std::vector<std::int32_t> cuts = {vertices};
  std::int32_t lowest = vertices;  // that one from here on needs
  for (std::int32_t v = vertices; v-- > 0;) {
    for (std::int32_t e = child_begin_[at(v)]; e < child_begin_[at(v) + 1]; ++e) {
      lowest = std::min(lowest, children_[at(e)]);
    }
    if (lowest >= v && v >= least && cuts.back() - v >= least) cuts.push_back(v);
  }
  cuts.push_back(0);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

GraphData Epochs::graph(std::int32_t begin, std::int32_t end) const {
  const auto vertices = static_cast<std::size_t>(end - begin);
  GraphData data{.kinds = {kind_of_.begin() + begin, kind_of_.begin() + end}};
  const std::int32_t first_edge = child_begin_[at(begin)], last_edge = child_begin_[at(end)];
  for (std::int32_t v = begin; v < end; ++v) data.child_begin.push_back(child_begin_[at(v) + 1] - first_edge);
  for (std::int32_t e = first_edge; e < last_edge; ++e) data.children.push_back(children_[at(e)] - begin);
  std::vector<std::vector<std::int32_t>*> columns;
  for (std::int32_t i = 0; i < kinds_.indices().size(); ++i) {
    const Columns::Column& column = kinds_.indices()[i];
    columns.push_back(&data.indices[column.name]);
    columns.back()->resize(vertices * static_cast<std::size_t>(column.width));
  }
  for (std::size_t v = 0; v < vertices; ++v) {
    for (const Kinds::IndexOperand& index : kinds_[data.kinds[v]].indices) {
      const auto width = static_cast<std::size_t>(kinds_.indices()[index.column].width);
      const Run& run = runs_.runs()[v + static_cast<std::size_t>(begin)];
      const std::int32_t* from = record_.indices(run.begin + index.node) + index.at;
      std::copy_n(from, width, columns[at(index.column)]->begin() + static_cast<std::ptrdiff_t>(v * width));
    }
  }
  return data;
}

/// By given column.
std::vector<std::vector<Epochs::Wanted>> Epochs::find_given() const {
  std::vector<std::vector<Wanted>> wanted(at(kinds_.given().size()));
  for (std::size_t v = 0; v < kind_of_.size(); ++v) {
    const Kinds::Kind& kind = kinds_[kind_of_[v]];
    const Run& run = runs_.runs()[v];
    const auto vertex = static_cast<std::int32_t>(v);
    for (const auto& [node, column] : kind.inputs) {
      wanted[at(column)].push_back({vertex, run.begin + node, {-1, 0, 0}});
    }
    const auto values = runs_.outside(run);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!kind.outside[i].given) continue;
      wanted[at(kind.outside[i].column)].push_back({vertex, values[i], place_of(values[i])});
    }
  }
  return wanted;
}

/// Brings rows of inputs and of earlier epochs together in one tensor, those of one output next to each other.
Given Epochs::give(std::int32_t column, std::vector<Wanted> wanted, std::vector<Block>& blocks,
                   std::source_location from) {
  const auto source = [](const Wanted& w) { return std::pair(w.from.epoch, w.from.output); };
  std::stable_sort(wanted.begin(), wanted.end(), [&](auto& a, auto& b) { return source(a) < source(b); });
  const Index width = kinds_.given()[column].width;
  Given given{Tensor(device_, static_cast<Index>(wanted.size()), width, "given"),
              std::vector<std::int32_t>(kind_of_.size(), -1)};
  for (std::size_t begin = 0, end = 0; begin < wanted.size(); begin = end) {
    std::vector<std::int32_t> vertices;
    std::vector<float> values;
    for (; end < wanted.size() && source(wanted[end]) == source(wanted[begin]); ++end) {
      given.row_of[at(wanted[end].vertex)] = static_cast<std::int32_t>(end);
      vertices.push_back(wanted[end].from.vertex);
      if (wanted[end].from.epoch >= 0) continue;
      const float* row = record_.values(wanted[end].node);
      values.insert(values.end(), row, row + width);
    }
    const Tensor rows = given.rows.row_range(static_cast<Index>(begin), static_cast<Index>(end));
    if (wanted[begin].from.epoch < 0) {
      rows.set(std::move(values), from);
      continue;
    }
    const IntTensor of(device_, static_cast<Index>(vertices.size()), 1, "vertices");
    of.set(std::move(vertices), from);
    apply(device_, op::gather_rows, {.in = {tensor_of(wanted[begin].from, from)}, .indices = {of}}, rows, from);
    blocks.push_back(
        {wanted[begin].from.epoch, wanted[begin].from.output, of, static_cast<Index>(begin), static_cast<Index>(end)});
  }
  return given;
}

/// What handles name must be found again.
void Epochs::name_outputs(Epoch& epoch, std::int32_t number) {
  while (!places_.empty() && places_.back().first >= runs_.first()) places_.pop_back();  // of a flush that threw
  for (NodeId node = runs_.first(); node < record_.size(); ++node) {
    if (!record_.named(node)) continue;
    const std::int32_t vertex = runs_.run_of(node);
    const std::int32_t column = kinds_.output({kind_of_[at(vertex)], node - runs_.runs()[at(vertex)].begin});
    const Columns::Column& output = kinds_.outputs()[column];
    epoch.outputs.insert({column, {output.name, output.width}});
    places_.push_back({node, {number, vertex, column}});
  }
}

void Epochs::flush(std::source_location from) {
  if (record_.first_pending() == record_.size()) return;
  if (differentiated_) throw MisuseError("lazy expressions after backward(); expected clear() between them");
  const auto began = std::chrono::steady_clock::now();
  lower();
  const auto number = static_cast<std::int32_t>(epochs_.size());
  Epoch epoch{.runner = {}, .minibatch = Minibatch(nullptr), .vertices = static_cast<Index>(kind_of_.size())};
  name_outputs(epoch, number);
  if (version_ != kinds_.version()) {
    if (runner_) earlier_ = stats().runner;
    function_ = kinds_.function();
    runner_ = std::make_shared<Runner>(device_, *function_, parameters_, RunnerOptions{.schedule = options_.schedule});
    version_ = kinds_.version();
  }
  epoch.runner = runner_;
  GivenTensors given;
  std::vector<std::vector<Wanted>> wanted = find_given();
  for (std::int32_t column = 0; column < kinds_.given().size(); ++column) {
    const std::string& name = kinds_.given()[column].name;
    given.emplace(name, give(column, std::move(wanted[at(column)]), epoch.given[name], from));
  }
  const std::vector<std::int32_t> parts = cuts();
  std::vector<InputGraph> inputs;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) inputs.emplace_back(*function_, graph(parts[i], parts[i + 1]));
  stats_.lower_ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
  stats_.expressions += record_.size() - record_.first_pending();
  stats_.vertices += epoch.vertices;
  ++stats_.flushes;
  std::vector<const InputGraph*> graphs;
  for (const InputGraph& input : inputs) graphs.push_back(&input);
  if (options_.use == LazyOptions::For::inference || epoch.outputs.empty()) {  // without outputs, nothing comes back
    epoch.minibatch = runner_->run(graphs, given, from);
  } else {
    std::vector<std::string> outputs;
    for (const auto& [column, output] : epoch.outputs) outputs.push_back(output.name);
    epoch.minibatch = runner_->record(graphs, given, outputs, from);
  }
  epochs_.push_back(std::move(epoch));
  record_.start_next_epoch();
}

const Epochs::Place& Epochs::place_of(NodeId node) const {
  const auto found = std::lower_bound(places_.begin(), places_.end(), node,
                                      [](const auto& place, NodeId id) { return place.first < id; });
  if (found == places_.end() || found->first != node) throw Error("lazy expressions: a value was not kept");
  return found->second;
}

const Tensor& Epochs::tensor_of(const Place& place, std::source_location from) {
  Epoch& epoch = epochs_[at(place.epoch)];
  Output& output = epoch.outputs.at(place.output);
  if (!output.tensor) output.tensor = epoch.minibatch.output(output.name, from);
  return *output.tensor;
}

std::vector<float> Epochs::value(NodeId node, std::source_location from) {
  if (node >= record_.first_pending()) flush(from);
  const Place& place = place_of(node);
  const Tensor& tensor = tensor_of(place, from);
  Output& output = epochs_[at(place.epoch)].outputs.at(place.output);
  try {
    if (!output.values) output.values = tensor.get(from);
  } catch (const OpError&) {  // of this epoch, or of one that it was given rows of
    for (std::int32_t number = 0; number <= place.epoch; ++number) {
      epochs_[at(number)].minibatch.batch_->failure_told = true;
    }
    throw;
  }
  const auto begin = output.values->begin() + place.vertex * output.width;
  return {begin, begin + output.width};
}

void Epochs::backward(std::span<const NodeId> losses, std::source_location from) {
  flush(from);
  if (options_.use == LazyOptions::For::inference) {
    throw MisuseError("backward() of a lazy graph for inference; expected one for training");
  }
  if (losses.empty()) throw MisuseError("backward() of no loss; expected one or more");
  if (differentiated_) throw MisuseError("backward() for a second time; expected clear() between them");
  for (NodeId loss : losses) {
    if (record_.width(loss) == 1) continue;
    throw MisuseError("backward(): a loss of width " + std::to_string(record_.width(loss)) + "; expected 1");
  }
  for (NodeId loss : losses) {
    const Place& place = place_of(loss);
    epochs_[at(place.epoch)].outputs.at(place.output).losses[place.vertex] += 1;
  }
  differentiated_ = true;
  auto mode = Runner::Gradients::set;
  for (std::size_t number = epochs_.size(); number-- > 0;) {
    Epoch& epoch = epochs_[number];
    const bool concerned = std::any_of(epoch.outputs.begin(), epoch.outputs.end(), [](const auto& entry) {
      return !entry.second.losses.empty() || !entry.second.gradient.empty();
    });
    if (!concerned) continue;
    backward_of(epoch, std::exchange(mode, Runner::Gradients::add), from);
  }
}

void Epochs::backward_of(Epoch& epoch, Runner::Gradients mode, std::source_location from) {
  std::map<std::string, Tensor> gradients;
  for (auto& [column, output] : epoch.outputs) {
    const Tensor gradient(device_, epoch.vertices, output.width, "gradient");
    std::vector<float> values(static_cast<std::size_t>(epoch.vertices * output.width), 0);
    for (const auto& [vertex, times] : output.losses) values[at(vertex)] = times;
    gradient.set(std::move(values), from);
    for (const GradientPart& part : output.gradient) {
      apply(device_, op::scatter_rows,
            {.in = {part.rows},
             .indices = {part.vertices},
             .attributes = op::to_rows(Rows::count(epoch.vertices)),
             .write = Write::add},
            gradient, from);
    }
    gradients.emplace(output.name, gradient);
  }
  epoch.runner->backward(epoch.minibatch, gradients, mode, from);
  for (const auto& [name, blocks] : epoch.given) {
    if (blocks.empty()) continue;
    const Tensor gradient = epoch.minibatch.gradient(name, from);
    for (const Block& block : blocks) {
      epochs_[at(block.epoch)]
          .outputs.at(block.output)
          .gradient.push_back({block.vertices, gradient.row_range(block.begin, block.end)});
    }
  }
}

LazyStats Epochs::stats() const {
  LazyStats stats = stats_;
  stats.kinds = kinds_.size();
  stats.runner = earlier_;
  if (!runner_) return stats;
  const RunnerStats now = runner_->stats();
  stats.runner.minibatches += now.minibatches;
  stats.runner.vertices += now.vertices;
  stats.runner.batches += now.batches;
  stats.runner.kernels += now.kernels;
  stats.runner.ops += now.ops;
  stats.runner.multiply_flops += now.multiply_flops;
  stats.runner.schedule_ns += now.schedule_ns;
  return stats;
}

std::string Epochs::describe() const { return runner_ ? runner_->describe() : std::string(); }

}  // namespace windrow::lazy
