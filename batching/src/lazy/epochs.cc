#include "lazy/epochs.h"

#include <algorithm>
#include <chrono>

#include "windrow/batching/internal/execution.h"
#include "windrow/ops/apply.h"

namespace windrow::lazy {

namespace {

void add(RunnerStats& sum, const RunnerStats& more) {
  sum.minibatches += more.minibatches;
  sum.vertices += more.vertices;
  sum.batches += more.batches;
  sum.kernels += more.kernels;
  sum.ops += more.ops;
  sum.multiply_flops += more.multiply_flops;
  sum.peak_bytes = std::max(sum.peak_bytes, more.peak_bytes);
  sum.schedule_ns += more.schedule_ns;
  sum.plans += more.plans;
  sum.planned_types += more.planned_types;
  sum.times += more.times;
}

}  // namespace

Epochs::Epochs(Record& record, const Device& device, std::shared_ptr<ParameterStores> parameters, LazyOptions options)
    : record_(record),
      nodes_(record.nodes()),
      device_(device),
      parameters_(std::move(parameters)),
      options_(options),
      runs_(record),
      kinds_(record, runs_, *parameters_),
      versions_(device, *parameters_) {
  const VertexFunction nothing("lazy expressions", {.arity = 0}, [](Vertex&) {});
  Runner(device_, nothing, parameters_, options_.runner);  // checks the options now, not at the first flush
}

void Epochs::clear() {
  epochs_.clear();
  holding_.clear();
  failed_.clear();
  losses_ = {};
  losses_checked_ = nullptr;
  with_gradient_.clear();
  of_inputs_.clear();
  again_.clear();
  differentiated_ = false;
  // Without this, a program whose structure keeps changing would take more and more memory and time. Kinds that are
  // still in use are found again.
  if (kinds_.remember_too_much() || runs_.remember_too_much()) forget();
  drop_replaced();
}

void Epochs::forget() {
  forget_kinds();
  record_.forget_keys();
}

void Epochs::forget_kinds() {
  replace_runner();
  function_.reset();
  runs_.forget();
  kinds_.forget();
}

void Epochs::drop_replaced() {
  for (const auto& runner : replaced_) add(earlier_, runner->stats());
  replaced_.clear();
}

/// Finds the kind and the children of each current vertex.
void Epochs::find_kinds() {
  do {
    kinds_.take_splits();
    kind_of_.clear();
    child_begin_.assign(1, 0);
    children_.clear();
    for (const LazyRun& run : runs_.runs()) {
      kind_of_.push_back(kinds_.kind_of(run, kind_of_, children_));
      child_begin_.push_back(static_cast<std::int32_t>(children_.size()));
    }
  } while (kinds_.begin_again());
}

/// Divides runs two of whose nodes would need the same state, while such runs cause many kinds where one could suffice.
/// Every kind has separate batches.
void Epochs::find_fewer_kinds() {
  constexpr std::size_t many = 4;
  constexpr int most_times = 8;
  find_kinds();
  for (int times = 0; times < most_times; ++times) {
    const Kinds::Splits splits = kinds_.take_splits();
    if (splits.kinds.size() < many || splits.between.empty()) return;
    runs_.divide(splits.between);
    kinds_.forget();
    find_kinds();
  }
}

/// The values of each given column. Marks the outputs of earlier epochs that are needed.
std::vector<std::vector<Epochs::Wanted>> Epochs::find_given() {
  std::vector<std::vector<Wanted>> wanted(at(kinds_.given().size()));
  for (std::size_t v = 0; v < kind_of_.size(); ++v) {
    const Kinds::Kind& kind = kinds_[kind_of_[v]];
    if (!kind.takes_given) continue;
    const LazyRun& run = runs_.runs()[v];
    const auto vertex = static_cast<std::int32_t>(v);
    for (const auto& [node, column] : kind.inputs) wanted[at(column)].push_back({vertex, run.begin + node, nullptr, 0});
    const auto values = runs_.outside(run);
    for (std::size_t i = 0; i < kind.list; ++i) {
      if (!kind.outside[i].given) continue;
      const std::size_t epoch = epoch_of(values[i]);
      Computed* const computed = epochs_[epoch].computed.get();
      if (computed == nullptr) throw Error("lazy expressions: a value was released");
      const OutputRow& at_row = computed->output_row(values[i]);
      Output& output = computed->outputs.at(at_row.output);
      output.needed = true;
      output.later = options_.use == LazyOptions::For::training;
      wanted[at(kind.outside[i].column)].push_back({vertex, values[i], &at_row, epoch});
    }
  }
  return wanted;
}

/// Collects rows of inputs and of earlier epochs in one tensor, the latter by gather(); rows of the same output are
/// neighbours.
Given Epochs::give(std::int32_t column, std::vector<Wanted> wanted, Computed& computed, Gathers& gathers, Lines& lines,
                   std::source_location from) {
  const auto source = [](const Wanted& w) {
    return w.from == nullptr ? std::pair(std::size_t{0}, -1) : std::pair(w.epoch, w.from->output);
  };
  std::stable_sort(wanted.begin(), wanted.end(), [&](auto& a, auto& b) { return source(a) < source(b); });
  const Index width = kinds_.given()[column].width;
  Given given{Tensor(device_, static_cast<Index>(wanted.size()), width, OpName("given")),
              std::vector<std::int32_t>(kind_of_.size(), -1)};
  std::vector<std::source_location> from_lines;
  for (const Wanted& one : wanted) from_lines.push_back(nodes_[one.node].from);
  lines.add_rows(kinds_.given()[column].name, std::move(from_lines));
  for (std::size_t begin = 0, end = 0; begin < wanted.size(); begin = end) {
    const Wanted& first = wanted[begin];
    Block block{first.epoch, {}, static_cast<Index>(begin), 0};
    const std::size_t first_row = gathers.rows.size();
    std::vector<float> values;
    for (; end < wanted.size() && source(wanted[end]) == source(first); ++end) {
      given.row_of[at(wanted[end].vertex)] = static_cast<std::int32_t>(end);
      if (first.from != nullptr) {
        gathers.rows.push_back(wanted[end].from->row);
        block.nodes.push_back(wanted[end].node);
      } else {
        const float* row = nodes_.values(wanted[end].node);
        values.insert(values.end(), row, row + width);
      }
    }
    block.end = static_cast<Index>(end);
    const Tensor to = given.rows.row_range(block.begin, block.end);
    const bool trains = options_.use == LazyOptions::For::training;  // gradients go back through blocks
    if (first.from == nullptr) {
      to.set(std::move(values), from);
      if (with_gradient_.empty()) continue;
      block.epoch = Block::of_inputs;
      for (Index i = block.begin; i < block.end; ++i) block.nodes.push_back(wanted[static_cast<std::size_t>(i)].node);
      computed.given[kinds_.given()[column].name].push_back(std::move(block));
      continue;
    }
    const Tensor& output = tensor_of(*epochs_[first.epoch].computed, first.from->output, from);
    gathers.all.push_back({output, to, first_row});
    computed.read.push_back(output.var());
    if (trains) computed.given[kinds_.given()[column].name].push_back(std::move(block));
  }
  return given;
}

void Epochs::gather(Gathers gathers, std::source_location from) const {
  if (gathers.all.empty()) return;
  const IntTensor rows(device_, static_cast<Index>(gathers.rows.size()), 1, "rows");
  rows.set(std::move(gathers.rows), from);
  for (const Gathers::One& one : gathers.all) {
    const auto begin = static_cast<Index>(one.begin);
    apply(device_, op::gather_rows, {.in = {one.from}, .indices = {rows.row_range(begin, begin + one.to.rows())}},
          one.to, from);
  }
}

/// Assigns an output row to each node that is retained, and announces those that have a gradient.
void Epochs::assign_output_rows(Computed& computed, const ToRetain& retain) {
  if (retain.values.empty()) return;
  computed.first_retained = retain.values.front();
  computed.output_rows.resize(at(retain.values.back() + 1 - computed.first_retained));
  std::vector<Output*> outputs;  // by column
  for (NodeId node : retain.values) {
    const std::int32_t vertex = runs_.run_of(node);
    const std::int32_t column = kinds_.output({kind_of_[at(vertex)], node - runs_.runs()[at(vertex)].begin});
    if (at(column) >= outputs.size()) outputs.resize(at(column) + 1, nullptr);
    Output*& output = outputs[at(column)];
    if (output == nullptr) {
      const Columns::Column& named = kinds_.outputs()[column];
      output = &computed.outputs[column];
      *output = {.name = named.name, .width = named.width, .row_of = std::vector(kind_of_.size(), -1)};
    }
    output->row_of[at(vertex)] = output->rows();
    computed.output_rows[at(node - computed.first_retained)] = {column, output->rows()};
    output->nodes.push_back(node);
  }
  for (NodeId node : retain.with_gradient) outputs[at(computed.output_row(node).output)]->announced = true;
}

/// The old runner is kept, since backward() may still need it.
void Epochs::replace_runner() {
  if (runner_) replaced_.push_back(std::move(runner_));
  runner_ = nullptr;
}

void Epochs::make_runner() {
  if (version_ == kinds_.version()) return;
  replace_runner();
  function_ = kinds_.function();
  runner_ = std::shared_ptr<Runner>(new Runner(device_, *function_, parameters_, options_.runner));
  runner_->counts_minibatches_ = false;
  version_ = kinds_.version();
}

/// Computes the current vertices.
std::shared_ptr<Epochs::Computed> Epochs::compute(const ToRetain& retain, std::source_location from) {
  const auto began = std::chrono::steady_clock::now();
  auto computed = std::make_shared<Computed>();
  if (runs_.runs().empty()) return computed;
  assign_output_rows(*computed, retain);
  make_runner();
  computed->runner = runner_;
  GivenTensors given;
  std::vector<std::vector<Wanted>> wanted = find_given();
  if (retain.release != ToRetain::Release::nothing) release();  // before this takes memory
  auto lines = std::make_shared<Lines>(nodes_, runs_.runs());
  Gathers gathers;
  for (std::int32_t column = 0; column < kinds_.given().size(); ++column) {
    const std::string& name = kinds_.given()[column].name;
    given.emplace(name, give(column, std::move(wanted[at(column)]), *computed, gathers, *lines, from));
  }
  gather(std::move(gathers), from);
  const std::vector<InputGraph> inputs = graphs();
  std::vector<const InputGraph*> pointers;
  for (const InputGraph& input : inputs) pointers.push_back(&input);
  stats_.lower_ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
  stats_.vertices += static_cast<std::int64_t>(kind_of_.size());
  runner_->origins_ = std::move(lines);
  runner_->waits_for_more_ = retain.again;
  std::vector<Announced> announced;
  for (const auto& [column, output] : computed->outputs) {
    if (!output.announced) continue;
    announced.push_back({output.name, output.row_of});
    for (std::int32_t& row : announced.back().row_of) row = row < 0 ? output.zero() : row;
  }
  const bool trains = !announced.empty();
  computed->minibatch =
      trains ? runner_->record_rows(pointers, given, std::move(announced), from) : runner_->run(pointers, given, from);
  if (trains) record_.count_minibatch();
  computed->end = computed->minibatch.execution_->end();
  return computed;
}

/// The nodes from `first` on that have handles, whose values must stay available.
std::vector<NodeId> Epochs::named(NodeId first) const {
  std::vector<NodeId> named;
  NodeId id = first;
  for (const Nodes::Node& node : nodes_.between(first, nodes_.size())) {
    if (node.handles > 0) named.push_back(id);
    ++id;
  }
  return named;
}

void Epochs::flush(std::source_location from) {
  const NodeId first = nodes_.first_pending;
  if (first == nodes_.size()) return;
  const auto began = std::chrono::steady_clock::now();
  runs_.find(first, nodes_.size());
  std::vector<NodeId> kept = named(first);
  if (!failed_.empty()) kept = without_failed(kept);
  find_kinds();
  stats_.lower_ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - began).count();
  const auto retains = retains_minibatch() ? Epoch::Retains::minibatch : Epoch::Retains::values;
  const auto versions = note_versions(from);
  auto computed = compute(
      {kept, retains == Epoch::Retains::minibatch ? kept : std::vector<NodeId>(), ToRetain::Release::what_nobody_needs},
      from);
  if (retains == Epoch::Retains::values) collect(*computed, from);
  const auto end = computed->end;
  const bool inference = options_.use == LazyOptions::For::inference;
  if (!epochs_.empty() && epochs_.back().computed) epochs_.back().computed->read = std::vector<Var>();
  if (inference && !epochs_.empty()) epochs_.back().versions = nullptr;  // only the last epoch can be repaired
  add_epoch({first, retains, std::move(computed), versions, end});
  if (!inference) return;
  // A graph for inference may never be cleared.
  record_.count_flush();
  record_.forget_unnamed(first);
  forget_empty();
  forget_failed();
  if (kinds_.remember_too_much() || runs_.remember_too_much()) forget_kinds();
  drop_replaced();
}

/// Notes the versions of the parameters that the current vertices use, to be compared in backward().
std::shared_ptr<const Versions::Note> Epochs::note_versions(std::source_location from) {
  std::vector<char> seen(at(kinds_.size()), 0);
  std::set<std::int32_t> parameters;
  for (KindId kind : kind_of_) {
    if (std::exchange(seen[at(kind)], 1) != 0) continue;
    parameters.insert(kinds_[kind].parameters.begin(), kinds_[kind].parameters.end());
  }
  return parameters.empty() ? nullptr : versions_.note({parameters.begin(), parameters.end()}, from);
}

/// Whether to retain the whole minibatch for gradients. An epoch with little work is recomputed instead.
bool Epochs::retains_minibatch() const {
  if (options_.use == LazyOptions::For::inference) return false;
  std::int64_t flops = 0;
  for (KindId kind : kind_of_) flops += kinds_[kind].flops;
  return flops >= options_.recompute_below;
}

/// Adds the epoch of all pending nodes.
void Epochs::add_epoch(Epoch epoch) {
  make_room(holding_, 1);
  make_room(epochs_, 1);
  holding_.push_back(epochs_.size());
  epochs_.push_back(std::move(epoch));
  stats_.expressions += nodes_.size() - nodes_.first_pending;
  ++stats_.flushes;
  record_.start_next_epoch();
}

std::size_t Epochs::epoch_of(NodeId node) const {
  const auto behind = std::upper_bound(epochs_.begin(), epochs_.end(), node,
                                       [](NodeId id, const Epoch& epoch) { return id < epoch.first; });
  return static_cast<std::size_t>(behind - epochs_.begin()) - 1;
}

LazyStats Epochs::stats() const {
  LazyStats stats = stats_;
  stats.kinds = kinds_.size();
  stats.remembered = nodes_.remembered();
  stats.runner = earlier_;
  for (const auto& runner : replaced_) add(stats.runner, runner->stats());
  if (runner_) add(stats.runner, runner_->stats());
  return stats;
}

std::string Epochs::describe() const { return runner_ ? runner_->describe() : std::string(); }

}  // namespace windrow::lazy
