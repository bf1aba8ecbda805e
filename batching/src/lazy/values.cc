// Values of lazy expressions: where they are, when they are released, and which of them failed.
#include <algorithm>
#include <cmath>
#include <new>

#include "lazy/epochs.h"
#include "windrow/batching/internal/execution.h"

namespace windrow::lazy {

void Epochs::Computed::refuse_row() { throw Error("lazy expressions: a value was not kept"); }

const Tensor& Epochs::tensor_of(Computed& computed, std::int32_t column, std::source_location from) {
  Output& output = computed.outputs.at(column);
  if (!output.tensor) output.tensor = computed.minibatch.output(output.name, output.row_of, from);
  return *output.tensor;
}

/// Copies the retained values out of the minibatch, and drops its memory.
void Epochs::collect(Computed& computed, std::source_location from) {
  for (auto& [column, output] : computed.outputs) {
    tensor_of(computed, column, from);
    output.row_of = {};
  }
  computed.minibatch = Minibatch(nullptr);
}

/// Whether a row of the output still has a handle. A node without handles never gets one, since handles are copied only
/// from handles. So each node needs to be passed only once.
bool Epochs::named_still(Output& output) const {
  while (output.released < output.nodes.size() && !nodes_.named(output.nodes[output.released])) ++output.released;
  return output.released < output.nodes.size();
}

/// Drops values that have no handle and that neither the current flush nor a gradient needs. Their memory is freed
/// after the ops that still read them.
void Epochs::release() {
  const bool gradients = options_.use == LazyOptions::For::training && !differentiated_;
  std::erase_if(holding_, [&](std::size_t number) {
    Computed& computed = *epochs_[number].computed;
    const bool holds_all = computed.minibatch.execution_ != nullptr;  // values can be collected again
    bool holds = holds_all;
    for (auto& [column, output] : computed.outputs) {
      const bool needed = std::exchange(output.needed, false) || named_still(output);
      const bool for_gradients = gradients && output.later && !holds_all;
      if (!needed) output.on_host = {};
      if (!needed && !for_gradients) output.tensor.reset();
      holds |= output.tensor.has_value();
    }
    if (!holds) epochs_[number].computed = nullptr;
    return !holds;
  });
}

/// Drops epochs without values from time to time. The latest epochs stay, since their failures may not have been
/// reported; see tell_failures(). Precondition: inference, since gradients go through all epochs.
void Epochs::forget_empty() {
  constexpr std::size_t few = 1024;
  const std::size_t latest = static_cast<std::size_t>(options_.runner.ahead) + 1;
  if (epochs_.size() < few || epochs_.size() < 2 * (holding_.size() + latest)) return;
  std::size_t kept = 0;
  auto holding = holding_.begin();
  for (std::size_t i = 0; i < epochs_.size(); ++i) {
    const bool holds = holding != holding_.end() && *holding == i;
    if (!holds && i + latest < epochs_.size()) continue;
    if (holds) *holding++ = kept;
    if (kept != i) epochs_[kept] = std::move(epochs_[i]);
    ++kept;
  }
  epochs_.erase(epochs_.begin() + static_cast<std::ptrdiff_t>(kept), epochs_.end());
}

/// Drops the failures of values that have no handle, from time to time. Precondition: as for forget_empty(), and no
/// node is pending.
void Epochs::forget_failed() {
  constexpr std::size_t few = 256;
  if (failed_.size() < few) return;
  std::erase_if(failed_, [&](const auto& failed) { return !nodes_.named(failed.first); });
}

/// A program that reads one value usually reads others of its output, and a copy of one row from a device takes as long
/// as a copy of thousands. So the first read copies the whole tensor, or a block of rows of a large one.
std::span<const float> Epochs::read_device_row(Output& output, Index row, std::source_location from) {
  constexpr Index block_floats = Index{1} << 16;
  const Tensor& tensor = *output.tensor;
  const Index width = tensor.width(), each = std::max(block_floats / std::max<Index>(width, 1), Index{1});
  const Index block = row / each, begin = block * each;
  output.on_host.resize(static_cast<std::size_t>((tensor.rows() + each - 1) / each));
  std::vector<float>& rows = output.on_host[static_cast<std::size_t>(block)];
  if (rows.empty()) rows = tensor.row_range(begin, std::min(begin + each, tensor.rows())).get(from);
  return std::span(rows).subspan(static_cast<std::size_t>((row - begin) * width), static_cast<std::size_t>(width));
}

/// Waits for the value.
std::vector<float> Epochs::read_row(NodeId node, std::source_location from) {
  if (const auto failed = failed_.find(node); failed != failed_.end()) std::rethrow_exception(failed->second);
  Computed& computed = *epochs_[epoch_of(node)].computed;
  const OutputRow& at_row = computed.output_row(node);
  const Tensor& tensor = tensor_of(computed, at_row.output, from);
  if (!device_.memory->on_host()) {
    const std::span<const float> row = read_device_row(computed.outputs.at(at_row.output), at_row.row, from);
    return {row.begin(), row.end()};
  }
  device_.engine->wait(tensor.var(), from);
  const Matrix<const float> all = tensor.view().read();
  return {all.row(at_row.row), all.row(at_row.row) + all.width};
}

std::vector<float> Epochs::value(NodeId node, std::source_location from) {
  if (node >= nodes_.first_pending) flush(from);
  try {
    std::vector<float> row = read_row(node, from);
    const bool refused = !between(losses_, node, node + 1).empty() && !std::isfinite(row[0]);
    if (refused) device_.engine->wait(losses_checked_->var(), from);
    return row;
  } catch (const OpError& error) {  // of this epoch, or of an earlier one whose rows it read
    tell_failures();
    if (failed_.count(node) > 0 || !repair(node, error, from)) throw;
  }
  return read_row(node, from);
}

/// Marks all failures so far as reported, so that no later flush throws them.
void Epochs::tell_failures() {
  for (const Epoch& epoch : epochs_) {
    if (epoch.end) epoch.end->failure_told = true;
  }
  for (const auto& end : again_) end->failure_told = true;
}

// --- Isolating the instances that fail
//
// A minibatch fails as a whole. If a value of the last flush is requested and the flush failed, its values are
// recomputed in halves, recursively, until the values that fail alone are found; the others are kept. This relies on
// two facts: operators rarely throw, and whether they throw does not depend on the rest of their batch.

/// Recomputes the last epoch without the values that fail. Returns false if that is not possible, or if the results
/// might differ from those of the flush.
bool Epochs::repair(NodeId node, const OpError& error, std::source_location from) {
  if (differentiated_ || epoch_of(node) + 1 != epochs_.size() || !curable(error, from)) return false;
  Epoch& epoch = epochs_.back();
  std::vector<NodeId> kept;
  const Computed& computed = *epoch.computed;
  const std::vector<NodeId> used = nodes_.operands_before(nodes_.first_pending);
  for (NodeId id = computed.first_retained; id < computed.end_retained(); ++id) {
    const bool needed = nodes_.named(id) || std::ranges::binary_search(used, id);
    if (needed && computed.find_row(id) != nullptr) kept.push_back(id);
  }
  int probes = 0;
  find_failed(kept, probes, from);
  std::erase_if(kept, [&](NodeId id) { return failed_.count(id) > 0; });
  epoch.computed = compute_part(kept, epoch.retains, from);
  epoch.end = epoch.computed->end;
  return true;
}

/// Whether the last epoch failed because an operator threw, and all its inputs are available and unchanged.
bool Epochs::curable(const OpError& error, std::source_location from) {
  try {
    error.rethrow_root();
  } catch (const OutOfMemory&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  } catch (...) {
  }
  std::vector<Access> given;
  for (const Var& var : epochs_.back().computed->read) given.push_back(windrow::read(var));
  const auto& versions = epochs_.back().versions;
  if (versions) {
    for (std::int32_t number : versions->parameters) {
      given.push_back(windrow::read(parameters_->entry(at(number)).value.var()));
    }
  }
  try {
    if (!given.empty()) device_.engine->wait(given, from);
  } catch (const OpError&) {
    return false;
  }
  if (!versions) return true;
  const auto now = versions_.note(versions->parameters, from);
  versions_.wait(from);
  return std::ranges::none_of(Versions::changes(*versions, *now), &Versions::Change::of_value);
}

/// Computes these nodes of the last epoch.
std::shared_ptr<Epochs::Computed> Epochs::compute_part(const std::vector<NodeId>& kept, Epoch::Retains retains,
                                                       std::source_location from) {
  runs_.find(epochs_.back().first, nodes_.first_pending);
  runs_.keep_only(kept);
  find_kinds();
  auto computed = compute({kept, retains == Epoch::Retains::minibatch ? kept : std::vector<NodeId>()}, from);
  if (retains == Epoch::Retains::values) collect(*computed, from);
  return computed;
}

/// Finds the nodes that fail alone, among nodes that failed together.
void Epochs::find_failed(const std::vector<NodeId>& nodes, int& probes, std::source_location from) {
  constexpr int most_probes = 4096;  // more probes mean that failures are not rare
  const auto fails = [&](const std::vector<NodeId>& some) -> std::exception_ptr {
    const auto part = compute_part(some, Epoch::Retains::values, from);
    try {
      for (const auto& [column, output] : part->outputs) device_.engine->wait(output.tensor->var(), from);
    } catch (const OpError&) {
      part->end->failure_told = true;
      return std::current_exception();
    }
    return nullptr;
  };
  if (nodes.empty()) return;
  const std::exception_ptr error = fails(nodes);
  if (!error) return;
  if (nodes.size() == 1 || ++probes > most_probes) {
    for (NodeId node : nodes) failed_.emplace(node, error);
    return;
  }
  const auto middle = nodes.begin() + static_cast<std::ptrdiff_t>(nodes.size() / 2);
  find_failed({nodes.begin(), middle}, probes, from);
  find_failed({middle, nodes.end()}, probes, from);
}

/// Returns the nodes that do not depend on failed ones, and drops the current runs that they do not need. The other
/// nodes fail with the same error.
std::vector<NodeId> Epochs::without_failed(const std::vector<NodeId>& kept) {
  std::vector<std::exception_ptr> errors(runs_.runs().size());  // by run
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const LazyRun& run = runs_.runs()[i];
    const auto own = failed_.lower_bound(run.begin);
    if (own != failed_.end() && own->first < run.end) errors[i] = own->second;
    for (NodeId node : runs_.outside(run)) {
      const auto earlier = failed_.find(node);
      if (earlier != failed_.end()) errors[i] = earlier->second;
      if (node >= runs_.first() && errors[at(runs_.run_of(node))]) errors[i] = errors[at(runs_.run_of(node))];
    }
  }
  std::vector<NodeId> good;
  for (NodeId node : kept) {
    const std::exception_ptr& error = errors[at(runs_.run_of(node))];
    if (error) failed_.emplace(node, error);
    if (!error) good.push_back(node);
  }
  runs_.keep_only(good);
  return good;
}

/// Throws the error of a failed node if a loss depends on it.
void Epochs::require_computed(const Times& losses) const {
  if (failed_.empty()) return;
  const std::vector<char> needed = needed_by(losses);
  for (const auto& [node, error] : failed_) {
    if (needed[at(node)] != 0) std::rethrow_exception(error);
  }
}

}  // namespace windrow::lazy
