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
  stage_ = Stage::closed;
  epochs_.reset();
  cells_.clear();
  own_cells_.clear();
  if (graph_ >= 0) parameters_->sets().front()->leave_graph(static_cast<std::size_t>(std::exchange(graph_, -1)));
  parameters_.reset();
}

void Record::clear() {
  nodes_.clear();
  cutter_.clear();
  copies_.clear();
  if (dropouts_ > 0) count_minibatch();  // so that the masks of the next one differ
  dropouts_ = 0;
  counted_.reset();
  suspended.clear();
  stage_ = Stage::open;
  ++minibatch_;
  epochs_->clear();
}

void Record::start_next_epoch() {
  nodes_.first_pending = nodes_.size();
  copies_.clear();
}

void Record::forget_keys() {
  nodes_.keys = {};
  weights_ = {};
  own_cells_.clear();
  for (const auto& cell : cells_) {
    cell->keys.clear();
    cell->reads.clear();
  }
}

void Record::refuse(const LazyExpr& expr, std::string_view what) const {
  expr.record(what);
  if (expr.record_ != this) throw MisuseError(std::string(what) + ": an expression of another lazy graph");
  if (stage_ == Stage::closed) throw MisuseError(std::string(what) + ": an expression of a lazy graph that is gone");
  throw MisuseError(std::string(what) + ": an expression from before clear(); expected one recorded since");
}

std::uint32_t Record::number_of_key(const Key& key) {
  const std::uint32_t* known = nodes_.keys.following([&](const Key& other) { return other == key; });
  return known != nullptr ? *known : nodes_.keys.number(key, [&] { return infer(key); });
}

LazyExpr Record::add(std::uint32_t key, std::span<const NodeId> operands, std::int32_t data,
                     std::source_location from) {
  nodes_.reserve(1, operands.size());
  cutter_.reserve_last(operands.size());
  LazyExpr handle;
  handle.name(*this, nodes_.size());
  ++count;
  nodes_.append({&key, 1}, {0, 0, data, 0, 1, from}, operands);
  cutter_.add_last(operands);
  return handle;
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
  throw MisuseError(std::string(what) + (stage_ == Stage::closed
                                             ? ": an operand of a lazy graph that is gone"
                                             : ": recorded after backward(); expected clear() between them"));
}

LazyExpr Record::add_input(std::span<const float> values, std::source_location from) {
  if (stage_ != Stage::open) refuse_to_record("input");
  const Key key = {.attributes = {.made_by = "input", .sizes = {static_cast<Index>(values.size()), 0}}};
  const std::int32_t data = nodes_.all_values.end();
  if (at(data) + values.size() > INT32_MAX) throw MisuseError("inputs of 2^31 numbers; expected fewer");
  nodes_.all_values.make_room(values.size());
  LazyExpr made = add(number_of_key(key), {}, data, from);
  nodes_.all_values.append(values.begin(), values.end());
  return made;
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
  if (record.stage_ != Stage::open) record.refuse_to_record(op.name.text());
  record.take_operands(written);
  Nodes& nodes = record.nodes_;
  const std::uint32_t* known = nodes.keys.following([&](const Key& key) { return record.is(key, written); });
  if (known == nullptr) record.set_key(written);
  const std::uint32_t number = known != nullptr ? *known : record.number_of_key(record.scratch_);
  if (nodes.keys[number].has_factor()) {
    nodes.all_values.make_room(1);
    const std::int32_t data = nodes.all_values.end();
    LazyExpr made = record.add(number, record.scratch_operands_, data, from);
    nodes.all_values.push_back(static_cast<float>(attributes.values[0]));
    return made;
  }
  if (!nodes.keys.ranges(number).empty()) record.check_indices(number, indices);
  nodes.all_indices.make_room(indices.size() * LazyIndex::widest + 2);
  const std::int32_t data = nodes.all_indices.end();
  LazyExpr made = record.add(number, record.scratch_operands_, data, from);
  for (const LazyIndex& index : indices) {
    nodes.all_indices.append(index.values_.begin(), index.values_.begin() + index.width_);
  }
  if (nodes.keys[number].has_seed()) {
    const auto seed = static_cast<std::uint64_t>(attributes.sizes[0]);
    nodes.all_indices.push_back(static_cast<std::int32_t>(seed));
    nodes.all_indices.push_back(static_cast<std::int32_t>(seed >> 32));
  }
  return made;
}

void Record::check_indices(std::uint32_t key, std::span<const LazyIndex> indices) const {
  for (std::size_t k = 0; k < indices.size(); ++k) {
    const IndexRange& range = nodes_.keys.ranges(key)[k];
    for (std::uint32_t i = 0; i < indices[k].width_; ++i) {
      const std::int32_t value = indices[k].values_[i];
      if (range.contains(value)) continue;
      throw MisuseError(std::string(nodes_.keys[key].op->name.text()) + ": index " + std::to_string(value) +
                        "; expected " + to_string(range));
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
    if (key.operands[i] != Key::expression || nodes_.width(scratch_operands_[expression]) != key.widths[expression])
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
  for (NodeId operand : scratch_operands_) key.widths.push_back(nodes_.width(operand));
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

// --- Nodes

void Nodes::refuse_more() {
  throw MisuseError("a lazy graph of 2147483646 expressions; expected fewer between two calls of clear()");
}

const Nodes::Node* Nodes::find_early(NodeId id) const {
  const auto found = std::ranges::lower_bound(early_, id, {}, &Early::id);
  return found != early_.end() && found->id == id ? &found->node : nullptr;
}

const Nodes::Node& Nodes::early(NodeId id) const {
  const Node* const known = find_early(id);
  if (known == nullptr) throw Error("lazy expressions: a forgotten expression was used");
  return *known;
}

std::vector<NodeId> Nodes::operands_before(NodeId first) const {
  std::vector<NodeId> used;
  for (NodeId id = first; id < size(); ++id) {
    std::ranges::copy_if(operands(id), std::back_inserter(used), [&](NodeId operand) { return operand < first; });
  }
  std::ranges::sort(used);
  return used;
}

/// At least half of the nodes are forgotten, so the cost is proportional to their number.
bool Nodes::forget_unnamed(NodeId last_epoch) {
  constexpr NodeId few = 4096;
  const NodeId first = last_epoch, before = first - nodes_.first();
  if (before < few || before < remembered() - before || first == size()) return false;
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
  std::int32_t values = all_values.end(), indices = all_indices.end();
  for (NodeId id = size(); id-- > first;) {
    const bool has_values = key(id).op == nullptr || key(id).has_factor();
    (has_values ? values : indices) = nodes_[id].data;
  }
  operands_.forget_before(nodes_[first].operands);
  all_values.forget_before(values);
  all_indices.forget_before(indices);
  nodes_.forget_before(first);
  return true;
}

void Nodes::clear() {
  nodes_.clear();
  early_.clear();
  operands_.clear();
  all_indices.clear();
  all_values.clear();
  first_pending = 0;
}

}  // namespace windrow::lazy
