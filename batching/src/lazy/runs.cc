#include "lazy/runs.h"

#include <algorithm>

namespace windrow::lazy {
namespace {

/// A pair of patterns is merged if it occurs at least this often. If there are many patterns, patterns that occur less
/// often are split.
constexpr int often = 4;
/// The most values from outside of a merged run.
constexpr std::int32_t most_outside = 24;
/// If there are more patterns than this, rare ones are split, since each pattern costs a part of the plan.
constexpr std::size_t many = 64;

bool small_enough(const LazyRun& one, const LazyRun& next) {
  const std::int32_t outside = one.outside_end - one.outside + next.outside_end - next.outside;
  return one.nodes() + next.nodes() <= most_nodes && outside <= most_outside;
}

}  // namespace

std::uint32_t Lists::number(std::span<const std::uint32_t> list) {
  if (list.front() >= latest_.size()) latest_.resize(list.front() + std::size_t{1});
  std::uint32_t& latest = latest_[list.front()];
  if (latest < size() && std::ranges::equal((*this)[latest], list)) return latest;
  make_room(lists_, 1);
  const auto added = static_cast<std::uint32_t>(size());
  const auto [known, is_new] = numbers_.try_emplace(std::vector(list.begin(), list.end()), added);
  if (is_new) lists_.push_back(&known->first);
  return latest = known->second;
}

void Runs::find(NodeId first, NodeId end) {
  first_ = first;
  end_ = end;
  runs_.clear();
  outside_.clear();
  const auto begins = record_.cutter().begins(first);
  runs_.reserve(begins.size());
  for (std::size_t i = 0; i < begins.size() && begins[i].node < end; ++i) {
    const NodeId begin = begins[i].node;
    const LazyRun run{begin, i + 1 < begins.size() ? begins[i + 1].node : end, begins[i].apart,
                      nodes_.key(begin).cell != nullptr};
    if (!add_parts(run) && !run.call) join_known();
  }
  while (learn()) {
    before_.swap(runs_);
    runs_.clear();
    outside_.clear();
    for (const LazyRun& run : before_) {
      add(run);
      join_known();
    }
  }
  split_what_is_rare();
  run_of_.resize(at(end - first));
  number();
}

void Runs::number() {
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    for (NodeId node = runs_[i].begin; node < runs_[i].end; ++node) {
      run_of_[at(node - first_)] = static_cast<std::int32_t>(i);
    }
  }
}

void Runs::keep_only(std::span<const NodeId> nodes) {
  std::vector<char> needed(runs_.size(), 0);
  for (NodeId node : nodes) needed[at(run_of(node))] = 1;
  if (std::ranges::find(needed, 0) == needed.end()) return;
  for (std::size_t i = runs_.size(); i-- > 0;) {
    if (needed[i] == 0) continue;
    for (NodeId node : outside(runs_[i])) {
      if (node >= first_) needed[at(run_of(node))] = 1;
    }
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    if (needed[i] != 0) runs_[kept++] = runs_[i];
  }
  runs_.resize(kept);
  number();
}

void Runs::divide(const std::map<std::uint32_t, std::int32_t>& before) {
  divided_.insert(before.begin(), before.end());
  before_.swap(runs_);
  runs_.clear();
  outside_.clear();
  for (const LazyRun& run : before_) add_parts(run);
  number();
}

bool Runs::add_parts(const LazyRun& made) {
  add(made);
  const auto found = divided_.find(runs_.back().pattern);
  if (found == divided_.end()) return false;
  pop();
  const NodeId middle = made.begin + found->second;
  add_parts({made.begin, middle, made.apart});
  add_parts({middle, made.end, false});
  return true;
}

void Runs::add(const LazyRun& made) {
  LazyRun& run = runs_.emplace_back(made);
  run.outside = outside_.end();
  scratch_.clear();
  std::span<const NodeId> list;
  if (run.call) {
    const auto operands = nodes_.operands(run.begin);
    const std::size_t by_number = nodes_.key(run.begin).widths.size();
    add_node(run, run.begin, operands.first(by_number));
    list = operands.subspan(by_number);
  } else {
    for (NodeId id = run.begin; id < run.end; ++id) add_node(run, id, nodes_.operands(id));
  }
  run.list = outside_.end();
  outside_.make_room(list.size());
  outside_.append(list.begin(), list.end());
  run.outside_end = outside_.end();
  run.pattern = patterns_.number(scratch_);
  used_.note(run.pattern, record_.age());
}

/// Appends a node to the pattern in scratch_, and its operands to the values from outside.
void Runs::add_node(const LazyRun& run, NodeId id, std::span<const NodeId> operands) {
  scratch_.push_back(nodes_[id].key);
  for (NodeId operand : operands) {
    scratch_.push_back(operand >= run.begin
                           ? Patterns::encode({OperandSource::Is::inside, static_cast<std::uint32_t>(id - operand)})
                           : from_outside(run, operand));
  }
}

/// The code of an operand from outside, which joins the values from outside unless it is among them.
std::uint32_t Runs::from_outside(const LazyRun& run, NodeId operand) {
  outside_.make_room(1);
  std::int32_t known = run.outside;
  while (known < outside_.end() && outside_[known] != operand) ++known;
  if (known == outside_.end()) outside_.push_back(operand);
  return code_of(operand, at(known - run.outside));
}

bool Runs::remember_too_much() const {
  constexpr std::ptrdiff_t much = 4096;
  return used_.mostly_long_ago(record_.age(), much);
}

void Runs::forget() {
  patterns_ = {};
  together_.clear();
  divided_.clear();
  used_ = {};
}

void Runs::pop() {
  outside_.forget_from(runs_.back().outside);
  runs_.pop_back();
}

/// Merges the last runs as long as their pair of patterns is known.
void Runs::join_known() {
  while (runs_.size() > 1 && !runs_.back().call) {
    const LazyRun last = runs_.back(), other = runs_[runs_.size() - 2];
    if (last.apart || other.call || !small_enough(other, last) ||
        together_.count(pair(other.pattern, last.pattern)) == 0)
      return;
    pop();
    pop();
    if (!add_parts({other.begin, last.end, other.apart})) continue;
    return;
  }
}

bool Runs::depends(const LazyRun& run, const LazyRun& on) const {
  const auto values = outside(run);
  return std::any_of(values.begin(), values.end(), [&](NodeId node) { return on.begin <= node && node < on.end; });
}

/// Searches for pairs of patterns that occur only one after the other. Returns whether there are new pairs.
bool Runs::learn() {
  if (std::ranges::all_of(runs_, [](const LazyRun& run) { return run.call; })) return false;
  std::unordered_map<std::uint32_t, int> count;
  std::unordered_map<Pair, int> pairs;
  for (std::size_t i = 0; i < runs_.size(); ++i) {
    ++count[runs_[i].pattern];
    if (i == 0 || runs_[i].apart || runs_[i].call || runs_[i - 1].call) continue;
    const LazyRun &run = runs_[i], &other = runs_[i - 1];
    const bool related = depends(run, other) || outside(other).empty() || outside(run).empty();
    if (related && small_enough(other, run)) ++pairs[pair(other.pattern, run.pattern)];
  }
  bool found = false;
  for (const auto& [both, times] : pairs) {
    const auto one = static_cast<std::uint32_t>(both >> 32), other = static_cast<std::uint32_t>(both);
    if (one == other || times < often || count[one] != times || count[other] != times) continue;
    found |= together_.insert(both).second;
  }
  return found;
}

/// If there are many patterns, computes nodes of rare ones one by one, so that equal nodes can share batches.
void Runs::split_what_is_rare() {
  if (patterns_.size() <= many) return;
  std::unordered_map<std::uint32_t, int> count;
  for (const LazyRun& run : runs_) ++count[run.pattern];
  if (count.size() <= many) return;
  before_.swap(runs_);
  runs_.clear();
  outside_.clear();
  for (const LazyRun& run : before_) {
    if (count[run.pattern] >= often || run.call) {
      add(run);
      continue;
    }
    for (NodeId id = run.begin; id < run.end; ++id) add({id, id + 1, run.apart});
  }
}

}  // namespace windrow::lazy
