#include "lazy/record.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "ir/tracing.h"
#include "lazy/epochs.h"

namespace windrow::lazy {

constinit const Operator sum_of_many = {
    .name = "sum",
    .inputs = Operator::any_number,
    .infer =
        [](const Operator& self, const Signature& signature) {
          const auto& in = signature.in;
          if (in.empty() || std::any_of(in.begin(), in.end(), [&](const Type& type) { return type != in[0]; })) {
            throw shape_error(self, signature, "operands of one shape");
          }
          return in[0];
        },
    .locality = Locality::elementwise,
};

Record::Record(const Device& device, std::shared_ptr<ParameterStores> parameters, LazyOptions options)
    : parameters_(std::move(parameters)),
      use_(options.use),
      epochs_(std::make_unique<Epochs>(*this, device, parameters_, options)) {
  if (use_ == LazyOptions::For::training) {
    graph_ = static_cast<std::int32_t>(parameters_->sets().front()->enter_graph());
  }
}

Record::~Record() = default;

void Record::close() {
  clear();
  state_ = State::closed;
  epochs_.reset();
  cells_.clear();
  own_cells_.clear();
  if (graph_ >= 0) parameters_->sets().front()->leave_graph(static_cast<std::size_t>(std::exchange(graph_, -1)));
  parameters_.reset();
}

void Record::clear() {
  nodes_.clear();
  early_.clear();
  operands_.clear();
  indices_.clear();
  inputs_.clear();
  first_pending_ = 0;
  copies_.clear();
  call_end_ = 0;
  run_begins_.clear();
  latest_.clear();
  if (dropouts_ > 0) count_minibatch();  // so that the masks of the next one differ
  dropouts_ = 0;
  counted_.reset();
  outside_.clear();
  suspended.clear();
  state_ = State::open;
  ++minibatch_;
  epochs_->clear();
}

void Record::forget() {
  if (size() > 0) throw MisuseError("forget() while expressions are recorded; expected it after clear()");
  epochs_->forget();
}

void Record::refuse(const LazyExpr& expr, std::string_view what) const {
  expr.record(what);
  if (expr.record_ != this) throw MisuseError(std::string(what) + ": an expression of another lazy graph");
  if (state_ == State::closed) throw MisuseError(std::string(what) + ": an expression of a lazy graph that is gone");
  throw MisuseError(std::string(what) + ": an expression from before clear(); expected one recorded since");
}

/// The number of the key in scratch_.
std::uint32_t Record::number_of_key() {
  const std::uint32_t* known = keys_.following([&](const Key& key) { return key == scratch_; });
  return known != nullptr ? *known : keys_.number(scratch_, [&] { return infer(scratch_); });
}

NodeId Record::add(std::uint32_t key, std::span<const NodeId> operands, std::int32_t data, std::source_location from) {
  reserve(1, operands.size());
  if (latest_.size() < keys_.size()) latest_.resize(keys_.size(), -1);
  make_room(outside_, operands.size());
  const NodeId id = append(key, operands, data, from);
  join_run(id, operands);
  return id;
}

void Record::refuse_more() {
  throw MisuseError("a lazy graph of 2147483646 expressions; expected fewer between two calls of clear()");
}

/// Adds a node that has no run yet.
NodeId Record::append(std::uint32_t key, std::span<const NodeId> operands, std::int32_t data,
                      std::source_location from) {
  const NodeId id = size();
  nodes_.push_back({key, operands_.end(), data, 0, 0, from});
  operands_.append(operands.begin(), operands.end());
  return id;
}

std::span<const Record::RunBegin> Record::run_begins(NodeId from) const {
  const std::int32_t first = from < size() ? node(from).run : run_begins_.end();
  return {run_begins_.from(first), at(run_begins_.end() - first)};
}

const Record::Node* Record::find_early(NodeId id) const {
  const auto found = std::ranges::lower_bound(early_, id, {}, &Early::id);
  return found != early_.end() && found->id == id ? &found->node : nullptr;
}

const Record::Node& Record::early(NodeId id) const {
  const Node* const known = find_early(id);
  if (known == nullptr) throw Error("lazy expressions: a forgotten expression was used");
  return *known;
}

std::vector<NodeId> Record::operands_before(NodeId first) const {
  std::vector<NodeId> used;
  for (NodeId id = first; id < size(); ++id) {
    std::ranges::copy_if(operands(id), std::back_inserter(used), [&](NodeId operand) { return operand < first; });
  }
  std::ranges::sort(used);
  return used;
}

/// The cost is that of the nodes that are forgotten, since these are at least as many as the others.
void Record::forget_unnamed(NodeId last_epoch) {
  constexpr NodeId few = 4096;
  const NodeId first = last_epoch, before = first - nodes_.first();
  if (before < few || before < remembered() - before || first == size()) return;
  const std::vector<NodeId> used = operands_before(first);
  const auto needed = [&](NodeId id, const Node& node) {
    return node.handles > 0 || std::ranges::binary_search(used, id);
  };
  std::vector<Early> kept;
  std::ranges::copy_if(early_, std::back_inserter(kept), [&](const Early& one) { return needed(one.id, one.node); });
  for (NodeId id = nodes_.first(); id < first; ++id) {
    if (needed(id, nodes_[id])) kept.push_back({id, nodes_[id]});
  }
  // Nothing after this throws.
  early_ = std::move(kept);
  std::int32_t inputs = inputs_.end(), indices = indices_.end();
  for (NodeId id = size(); id-- > first;) {
    const bool has_values = key(id).op == nullptr || key(id).has_factor();
    (has_values ? inputs : indices) = node(id).data;
  }
  operands_.forget_before(node(first).operands);
  inputs_.forget_before(inputs);
  indices_.forget_before(indices);
  run_begins_.forget_before(node(first).run);
  nodes_.forget_before(first);
}

void Record::join_run(NodeId id, std::span<const NodeId> operands) {
  const bool apart = std::exchange(cut_, false);
  const bool fits = !apart && joins(id, operands);
  const NodeId cycle = fits ? repeated_by(id) : 0;
  if (fits && cycle == 0) {
    nodes_.back().run = node(id - 1).run;
  } else {
    begin_run(id, operands, apart);
    cycle_ = cycle;
  }
  follow_period(id);
}

void Record::begin_run(NodeId id, std::span<const NodeId> operands, bool apart) {
  outside_.clear();
  for (NodeId operand : operands) outside_.push_back(node(operand).run);
  nodes_.back().run = run_begins_.end();
  run_begins_.push_back({id, apart});
}

/// Whether the node joins the last run. A run consists of consecutive nodes; each has an operand in the run, or an
/// operand in runs that the run already has operands of. So no run that this run depends on can depend on it. Operands
/// that are already computed only tie nodes with the same key: a loss of a value that the program looked at should not
/// join the next step that uses the same value.
bool Record::joins(NodeId id, std::span<const NodeId> operands) const {
  constexpr std::size_t most_outside = 16;
  if (id == first_pending_ || id == call_end_) return false;
  const std::int32_t current = node(id - 1).run;
  if (id - run_begins_.back().node >= most_nodes || outside_.size() > most_outside) return false;
  bool related = false;
  for (NodeId operand : operands) {
    const std::int32_t run = node(operand).run;
    if (run != current && std::find(outside_.begin(), outside_.end(), run) == outside_.end()) return false;
    related |= operand >= first_pending_ || same_key(id, id - 1);
  }
  return related;
}

/// The period, if the run is a repetition and a new period begins with this node; otherwise 0. Such a run is cut:
/// otherwise a chain of equal cells would be another pattern for each length. A few similar operations, such as sums of
/// products, do not count as a chain.
NodeId Record::repeated_by(NodeId id) const {
  constexpr NodeId chain = 12;  // nodes
  const NodeId begin = run_begins_.back().node;
  if (cycle_ > 0 && id - begin == cycle_ && same_key(id, begin)) return cycle_;
  const bool goes_on = period_ > 0 && same_key(id, id - period_);
  return goes_on && repeated_ >= std::max(period_, chain - period_) ? period_ : 0;
}

/// Updates period_ and repeated_ after each node.
void Record::follow_period(NodeId id) {
  constexpr NodeId longest = 64;
  const NodeId latest = std::exchange(latest_[node(id).key], id);  // of the same key, here or in an earlier run
  const NodeId before = id - run_begins_.back().node;
  if (period_ > 0 && period_ <= before && same_key(id, id - period_)) {
    ++repeated_;
    return;
  }
  const bool repeats = latest >= 0 && id - latest <= std::min(before, longest);
  period_ = repeats ? id - latest : 0;
  repeated_ = repeats ? 1 : 0;
}

Inferred Record::infer(const Key& key) const {
  if (key.op == nullptr) return {key.attributes.sizes[0]};
  Signature shapes{.attributes = key.attributes};
  auto width = key.widths.begin();
  for (std::int32_t operand : key.operands) {
    shapes.in.push_back(operand == Key::expression ? Type{Rows::vertices(), *width++}
                                                   : weights_.type_of(operand, *parameters_));
  }
  for (Index index_width : key.index_widths) shapes.indices.push_back({Rows::vertices(), index_width});
  shapes = ir::with_rows_of_parameters(*key.op, std::move(shapes));
  const Type type = windrow::infer(*key.op, shapes);
  ir::check_locality(*key.op, shapes, type);
  Inferred inferred{type.width};
  for (std::size_t k = 0; key.op->index_range != nullptr && k < shapes.indices.size(); ++k) {
    inferred.ranges.push_back(key.op->index_range(shapes, k));
  }
  return inferred;
}

void Record::refuse_to_record(std::string_view what) const {
  throw MisuseError(std::string(what) + (state_ == State::closed
                                             ? ": an operand of a lazy graph that is gone"
                                             : ": recorded after backward(); expected clear() between them"));
}

LazyExpr Record::add_input(std::span<const float> values, std::source_location from) {
  if (state_ != State::open) refuse_to_record("input");
  scratch_ = {.attributes = {.made_by = "input", .sizes = {static_cast<Index>(values.size()), 0}}};
  const std::int32_t data = inputs_.end();
  if (at(data) + values.size() > INT32_MAX) throw MisuseError("inputs of 2^31 numbers; expected fewer");
  make_room(inputs_, values.size());
  const NodeId id = add(number_of_key(), {}, data, from);
  inputs_.append(values.begin(), values.end());
  return handle(id);
}

LazyIndex Record::index(std::span<const std::int32_t> values) {
  if (values.size() > LazyIndex::widest) {
    throw MisuseError("an index of " + std::to_string(values.size()) + " numbers; expected at most " +
                      std::to_string(LazyIndex::widest));
  }
  LazyIndex result(*this, 0);
  std::copy(values.begin(), values.end(), result.values_.begin());
  result.width_ = static_cast<std::uint32_t>(values.size());
  return result;
}

Record& Record::record_of(const Written& written) {
  const std::string_view what = written.op.name.text();
  Record* record = nullptr;
  for (const OperandRef& operand : written.in) {
    if (operand.expr_ != nullptr) record = &operand.expr_->record(what);
  }
  for (const LazyIndex& index : written.indices) record = record == nullptr ? index.record_.get() : record;
  if (record == nullptr) {
    throw MisuseError(
        std::string(what) +
        ": only parameters; expected an expression among them, or LazyWeight(w) to compute with parameters");
  }
  return *record;
}

LazyExpr Record::apply(const Operator& op, std::span<const OperandRef> in, std::span<const LazyIndex> indices,
                       const Attributes& attributes, std::source_location from) {
  const Written written{op, in, indices, attributes};
  Record& record = record_of(written);
  if (record.state_ != State::open) record.refuse_to_record(op.name.text());
  record.take_operands(written);
  const std::uint32_t* known = record.keys_.following([&](const Key& key) { return record.is(key, written); });
  if (known == nullptr) record.set_key(written);
  const std::uint32_t number = known != nullptr ? *known : record.number_of_key();
  if (record.keys_[number].has_factor()) {
    make_room(record.inputs_, 1);
    const std::int32_t data = record.inputs_.end();
    const NodeId id = record.add(number, record.scratch_operands_, data, from);
    record.inputs_.push_back(static_cast<float>(attributes.values[0]));
    return record.handle(id);
  }
  if (!record.keys_.ranges(number).empty()) record.check_indices(number, indices);
  make_room(record.indices_, indices.size() * LazyIndex::widest + 2);
  const std::int32_t data = record.indices_.end();
  const NodeId id = record.add(number, record.scratch_operands_, data, from);
  for (const LazyIndex& index : indices) {
    record.indices_.append(index.values_.begin(), index.values_.begin() + index.width_);
  }
  if (record.keys_[number].has_seed()) {
    const auto seed = static_cast<std::uint64_t>(attributes.sizes[0]);
    record.indices_.push_back(static_cast<std::int32_t>(seed));
    record.indices_.push_back(static_cast<std::int32_t>(seed >> 32));
  }
  return record.handle(id);
}

void Record::check_indices(std::uint32_t key, std::span<const LazyIndex> indices) const {
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const IndexRange& range = keys_.ranges(key)[k];
    for (std::uint32_t i = 0; i < indices[k].width_; ++i) {
      const std::int32_t value = indices[k].values_[i];
      if (range.contains(value)) continue;
      throw MisuseError(std::string(keys_[key].op->name.text()) + ": index " + std::to_string(value) + "; expected " +
                        to_string(range));
    }
  }
}

/// Checks the operands, and stores those that are expressions in scratch_operands_.
void Record::take_operands(const Written& written) {
  const std::string_view what = written.op.name.text();
  scratch_operands_.clear();
  for (const OperandRef& operand : written.in) {
    if (operand.expr_ != nullptr) scratch_operands_.push_back(checked(*operand.expr_, what));
  }
  for (const LazyIndex& index : written.indices) {
    if (index.record_.get() != this) throw MisuseError(std::string(what) + ": an index of another lazy graph");
  }
}

/// Whether set_key() would make this key, with the operands in scratch_operands_.
bool Record::is(const Key& key, const Written& written) {
  if (key.op != &written.op || key.operands.size() != written.in.size() ||
      key.index_widths.size() != written.indices.size() || written.has_seed()) {
    return false;
  }
  std::size_t expression = 0;
  for (std::size_t i = 0; i < written.in.size(); ++i) {
    if (written.in[i].expr_ == nullptr) {
      if (key.operands[i] != number_of(written.in[i])) return false;
      continue;
    }
    if (key.operands[i] != Key::expression || width(scratch_operands_[expression]) != key.widths[expression])
      return false;
    ++expression;
  }
  for (std::size_t i = 0; i < written.indices.size(); ++i) {
    if (key.index_widths[i] != written.indices[i].width_) return false;
  }
  return Key::same(key.attributes, written.attributes, key.has_factor() ? Key::But::values : Key::But::nothing);
}

/// Makes the key in scratch_.
void Record::set_key(const Written& written) {
  Key& key = scratch_;
  key.op = &written.op;
  key.attributes = written.attributes;
  if (key.has_factor()) key.attributes.values = {};
  key.operands.clear();
  key.widths.clear();
  key.index_widths.clear();
  for (const OperandRef& operand : written.in) {
    key.operands.push_back(operand.expr_ != nullptr ? Key::expression : number_of(operand));
  }
  for (NodeId operand : scratch_operands_) key.widths.push_back(width(operand));
  if (key.widths.size() >= ir::type_bits) {  // each may come from another child of the vertex
    throw MisuseError(std::string(written.op.name.text()) + " of " + std::to_string(key.widths.size()) +
                      " expressions; expected " + std::to_string(ir::type_bits - 1) + " at most");
  }
  for (const LazyIndex& index : written.indices) key.index_widths.push_back(index.width_);
  if (written.has_seed() && key.index_widths[0] == 3) {
    key.index_widths[0] = 5;  // with the seed
    key.attributes.sizes[0] = 0;
  }
}

}  // namespace windrow::lazy
