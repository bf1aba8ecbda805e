// Gradients through epochs, from the last one to the first.
#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <set>

#include "lazy/epochs.h"
#include "run/owned_var.h"
#include "windrow/batching/internal/execution.h"
#include "windrow/ops/apply.h"

namespace windrow::lazy {

void Epochs::backward(std::vector<NodeId> losses, std::source_location from) {
  if (options_.use == LazyOptions::For::inference) {
    throw MisuseError("backward() of a lazy graph for inference; expected one for training");
  }
  if (losses.empty()) throw MisuseError("backward() of no loss; expected one or more");
  if (differentiated_) throw MisuseError("backward() for a second time; expected clear() between them");
  for (NodeId loss : losses) {
    if (nodes_.width(loss) == 1) continue;
    throw MisuseError("backward(): a loss of width " + std::to_string(nodes_.width(loss)) + "; expected 1");
  }
  const Times times = times_of(std::move(losses));
  require_computed(times);
  require_unchanged(times, from);
  losses_checked_ = std::make_shared<Buffer>(owned_var(device_.engine, "losses"));
  auto mode = Runner::Gradients::set;
  std::size_t end = epochs_.size();
  do {
    std::size_t begin = end;
    while (begin > 0 && epochs_[begin - 1].retains == Epoch::Retains::values) --begin;
    const std::shared_ptr<Computed> again = compute_again(begin, end, times, from);
    differentiated_ = true;
    losses_ = times;
    record_.seal();
    if (again) differentiate(*again, take_parts(begin, end), mode, from);
    if (begin > 0) {
      --begin;
      differentiate(*epochs_[begin].computed, take_parts(begin, begin + 1), mode, from);
    }
    end = begin;
  } while (end > 0);
  release();
}

Epochs::Times Epochs::times_of(std::vector<NodeId> losses) {
  if (!std::ranges::is_sorted(losses)) std::ranges::sort(losses);
  Times times;
  times.reserve(losses.size());
  for (const NodeId loss : losses) {
    if (times.empty() || times.back().first != loss) times.emplace_back(loss, 0.0f);
    times.back().second += 1;
  }
  return times;
}

std::span<const Epochs::Times::value_type> Epochs::between(const Times& times, NodeId begin, NodeId end) {
  return {std::ranges::lower_bound(times, begin, {}, &Times::value_type::first),
          std::ranges::lower_bound(times, end, {}, &Times::value_type::first)};
}

void Epochs::keep_gradient(NodeId input) {
  const auto refuse = [](const char* why) { throw MisuseError(std::string("keep_gradient: ") + why); };
  if (options_.use == LazyOptions::For::inference) refuse("a lazy graph for inference; expected one for training");
  if (differentiated_) refuse("called after backward(); expected it before");
  if (input < nodes_.first_pending) refuse("an input that was computed; expected the call before its flush");
  if (nodes_.key(input).op != nullptr) refuse("an expression that is not an input; expected an input");
  with_gradient_.insert(input);
}

std::vector<float> Epochs::gradient(NodeId input, std::source_location from) const {
  const auto refuse = [](const char* why) { throw MisuseError(std::string("gradient: ") + why); };
  if (!differentiated_) refuse("called before backward(); expected it after");
  if (with_gradient_.count(input) == 0) refuse("an expression that keep_gradient() does not name; expected one");
  std::vector<float> sum(at(static_cast<NodeId>(nodes_.width(input))), 0);
  for (const GradientPart& part : of_inputs_) {
    for (std::size_t i = 0; i < part.nodes.size(); ++i) {
      if (part.nodes[i] != input) continue;
      const auto row = static_cast<Index>(i);
      const std::vector<float> values = part.rows.row_range(row, row + 1).get(from);
      std::transform(values.begin(), values.end(), sum.begin(), sum.begin(), std::plus<>());
    }
  }
  return sum;
}

/// Backward passes read the current values of parameters, so these must be the values that the epochs used. Parameters
/// must not have been frozen or unfrozen either: this changes which gradients a minibatch has, and recomputed epochs
/// are planned again.
void Epochs::require_unchanged(const Times& losses, std::source_location from) {
  std::set<std::int32_t> parameters;
  for (const Epoch& epoch : epochs_) {
    if (epoch.versions) parameters.insert(epoch.versions->parameters.begin(), epoch.versions->parameters.end());
  }
  if (parameters.empty()) return;
  const auto now = versions_.note({parameters.begin(), parameters.end()}, from);
  versions_.wait(from);
  std::vector<char> needed;
  const auto uses = [&](NodeId node, std::int32_t number) {
    std::vector<std::int32_t> used;
    for (const std::int32_t operand : nodes_.key(node).operands) {
      if (operand >= 0) record_.weights().add_parameters(operand, *parameters_, used);
    }
    return std::ranges::find(used, number) != used.end();
  };
  for (const Epoch& epoch : epochs_) {
    if (!epoch.versions) continue;
    const NodeId end = &epoch == &epochs_.back() ? nodes_.first_pending : (&epoch)[1].first;
    for (const auto& [number, of_value] : Versions::changes(*epoch.versions, *now)) {
      if (needed.empty()) needed = needed_by(losses);
      for (NodeId node = epoch.first; node < end; ++node) {
        if (needed[at(node)] == 0 || !uses(node, number)) continue;
        throw MisuseError("backward(): parameter '" + parameters_->name(at(number)) + "' was " +
                          (of_value ? "modified in place" : "frozen or unfrozen") + " after the flush at " +
                          line_of(epoch.versions->from) + ", which computed what a loss depends on; expected " +
                          (of_value ? "the same value until backward()" : "that before the flush, or after clear()"));
      }
    }
  }
}

/// For each node: whether it is one of `nodes`, or one of them depends on it.
std::vector<char> Epochs::needed_by(const Times& nodes) const {
  std::vector<char> needed(at(nodes_.size()), 0);
  for (const auto& [node, times] : nodes) needed[at(node)] = 1;
  for (NodeId node = nodes_.size(); node-- > 0;) {
    if (needed[at(node)] == 0) continue;
    const NodeId first = nodes_.first_result(node);
    needed[at(first)] = 1;
    for (NodeId operand : nodes_.operands(first)) needed[at(operand)] = 1;
  }
  return needed;
}

/// Recomputes epochs [begin, end), which retained values only, in one minibatch. If the last epoch is among them, or
/// none is left after them, pending nodes are included. Computes only what a gradient or a handle needs. Null if there
/// is nothing to compute.
std::shared_ptr<Epochs::Computed> Epochs::compute_again(std::size_t begin, std::size_t end, const Times& losses,
                                                        std::source_location from) {
  const NodeId pending = nodes_.first_pending;
  const auto first_of = [&](std::size_t epoch) { return epoch < epochs_.size() ? epochs_[epoch].first : pending; };
  const NodeId first = first_of(begin), behind = end < epochs_.size() ? first_of(end) : nodes_.size();
  std::vector<NodeId> with_gradient;
  for (const auto& [loss, times] : between(losses, first, behind)) with_gradient.push_back(loss);
  for (std::size_t epoch = begin; epoch < end; ++epoch) {
    for (const GradientPart& part : epochs_[epoch].gradient) {
      with_gradient.insert(with_gradient.end(), part.nodes.begin(), part.nodes.end());
    }
  }
  if (!std::ranges::is_sorted(with_gradient)) std::ranges::sort(with_gradient);
  with_gradient.erase(std::unique(with_gradient.begin(), with_gradient.end()), with_gradient.end());
  const bool last = end == epochs_.size() && pending < nodes_.size();
  const std::vector<NodeId> more = last ? named(pending) : std::vector<NodeId>();
  std::vector<NodeId> kept;
  std::set_union(with_gradient.begin(), with_gradient.end(), more.begin(), more.end(), std::back_inserter(kept));
  if (kept.empty() && !last) return nullptr;
  runs_.find(first, behind);
  if (!kept.empty()) runs_.keep_only(kept);
  if (!failed_.empty()) kept = without_failed(kept);
  find_fewer_kinds();
  auto computed = compute({.values = kept, .with_gradient = with_gradient, .again = true}, from);
  if (last) add_epoch({pending, Epoch::Retains::minibatch, computed, nullptr, computed->end});
  if (!last && computed->end) again_.push_back(computed->end);
  return computed;
}

std::vector<Epochs::GradientPart> Epochs::take_parts(std::size_t begin, std::size_t end) {
  std::vector<GradientPart> parts;
  for (std::size_t epoch = begin; epoch < end; ++epoch) {
    std::move(epochs_[epoch].gradient.begin(), epochs_[epoch].gradient.end(), std::back_inserter(parts));
    epochs_[epoch].gradient.clear();
  }
  return parts;
}

/// Checks the losses, as a runner checks those of its function. A loss that is not finite fails the gradient, or is
/// noted in the end of its minibatch.
void Epochs::require_finite(const Computed& computed, std::int32_t column, const std::vector<NodeId>& losses,
                            const Tensor& gradient, std::source_location from) const {
  const Output& output = computed.outputs.at(column);
  Execution& execution = *computed.minibatch.execution_;
  LossCheck check{.output = execution.number_of(output.name), .values = *output.tensor};
  check.skips = parameters_->skips_non_finite();
  if (!check.skips) check.poisoned.push_back(gradient.var());
  check.poisoned.push_back(losses_checked_->var());
  std::vector<std::int32_t> vertex_of(at(output.rows()));  // by row
  for (std::size_t v = 0; v < output.row_of.size(); ++v) {
    if (output.row_of[v] >= 0) vertex_of[at(output.row_of[v])] = static_cast<std::int32_t>(v);
  }
  check.losses.reserve(losses.size());
  for (NodeId loss : losses) {
    const std::int32_t row = computed.output_row(loss).row;
    check.losses.push_back({row, vertex_of[at(row)], nodes_[loss].from});
  }
  execution.check_losses(std::move(check), from);
}

/// The gradient of an output: its rows, a row that stays zero, and a row that collects gradients of other outputs.
Tensor Epochs::gradient_of(Computed& computed, std::int32_t column, const std::vector<GradientPart>& parts,
                           std::source_location from) const {
  const Output& output = computed.outputs.at(column);
  const std::int32_t none = output.zero() + 1;
  const Tensor gradient(device_, none + 1, output.width, "gradient");
  std::vector<float> values(static_cast<std::size_t>((none + 1) * output.width), 0);
  const auto row_of = [&](NodeId node) {
    const OutputRow& at_row = computed.output_row(node);
    return at_row.output == column ? at_row.row : none;
  };
  std::vector<NodeId> of_losses;
  for (const auto& [loss, times] : between(losses_, computed.first_retained, computed.end_retained())) {
    const std::int32_t row = row_of(loss);
    if (row == none) continue;
    values[at(row)] += times;
    of_losses.push_back(loss);
  }
  gradient.set(std::move(values), from);
  if (!of_losses.empty()) {
    tensor_of(computed, column, from);
    require_finite(computed, column, of_losses, gradient, from);
  }
  for (const GradientPart& part : parts) {
    std::vector<std::int32_t> rows;
    for (NodeId node : part.nodes) rows.push_back(row_of(node));
    if (std::count(rows.begin(), rows.end(), none) == static_cast<std::ptrdiff_t>(rows.size())) continue;
    const IntTensor of(device_, static_cast<Index>(rows.size()), 1, "rows");
    of.set(std::move(rows), from);
    apply(device_, op::scatter_rows,
          {.in = {part.rows}, .indices = {of}, .attributes = op::to_rows(Rows::count(none + 1)), .write = Write::add},
          gradient, from);
  }
  return gradient;
}

/// Pushes the gradients if the losses depend on this epoch: the first call sets gradients of parameters, later ones add
/// to them. Before that, collects the values that have handles; afterwards, drops the memory of the minibatch.
void Epochs::differentiate(Computed& computed, const std::vector<GradientPart>& parts, Runner::Gradients& mode,
                           std::source_location from) {
  for (auto& [column, output] : computed.outputs) {
    if (named_still(output)) tensor_of(computed, column, from);
  }
  if (depend_on(computed, parts)) push_gradients(computed, parts, mode, from);
  computed.minibatch = Minibatch(nullptr);
}

bool Epochs::depend_on(const Computed& computed, const std::vector<GradientPart>& parts) const {
  const auto announced = [](const auto& output) { return output.second.announced; };
  if (std::ranges::none_of(computed.outputs, announced)) return false;
  return !parts.empty() || !between(losses_, computed.first_retained, computed.end_retained()).empty();
}

void Epochs::push_gradients(Computed& computed, const std::vector<GradientPart>& parts, Runner::Gradients& mode,
                            std::source_location from) {
  std::map<std::string, Tensor> gradients;
  for (const auto& [column, output] : computed.outputs) {
    if (output.announced) gradients.emplace(output.name, gradient_of(computed, column, parts, from));
  }
  computed.runner->backward(computed.minibatch, gradients, std::exchange(mode, Runner::Gradients::add), from);
  for (auto& [name, blocks] : computed.given) {
    if (blocks.empty()) continue;
    const Tensor gradient = computed.minibatch.gradient(name, from);
    for (Block& block : blocks) {
      auto& parts_of = block.epoch == Block::of_inputs ? of_inputs_ : epochs_[block.epoch].gradient;
      parts_of.push_back({std::move(block.nodes), gradient.row_range(block.begin, block.end)});
    }
  }
}

}  // namespace windrow::lazy
