#include "lazy/cells.h"

#include <algorithm>

#include "ir/tracing.h"
#include "lazy/calls.h"

namespace windrow {
namespace lazy {

constinit const Operator result_of_cell = {.name = "cell", .inputs = Operator::any_number};

namespace {

/// Notes what a body takes and makes.
class Probe final : public CellInputs {
 public:
  Probe(Vertex& vertex, Cell& cell) : CellInputs(vertex), cell_(cell) {}

  Expr operand(Index width) override {
    const std::size_t k = next(cell_.operands, width, CellBody::most_operands, "operands");
    return vertex().pull("operand " + std::to_string(k), width);
  }
  Expr each(Index width) override {
    const std::size_t k = next(cell_.each, width, CellBody::most_each, "operands of each element");
    return vertex().pull_edge("each " + std::to_string(k), width);
  }
  IndexExpr index(Presence presence, Index width) override {
    if (width > static_cast<Index>(LazyIndex::widest)) {
      throw MisuseError(cell_.name + ": an index of " + std::to_string(width) + " numbers; expected at most " +
                        std::to_string(LazyIndex::widest));
    }
    cell_.indices.push_back({width, presence, {}});
    return vertex().pull_index("index " + std::to_string(cell_.indices.size()), presence, width);
  }
  void result(const Expr& value) override {
    if (value.type().rows != Rows::vertices()) {
      throw MisuseError(cell_.name + ": a result that is " +
                        (value.type().rows == Rows::edges() ? "of a list; expected it to be reduced"
                                                            : "a parameter; expected a value of the call"));
    }
    cell_.results.push_back(value.width());
    vertex().push("result " + std::to_string(cell_.results.size()), value);
  }

 private:
  std::size_t next(std::vector<Index>& widths, Index width, std::size_t most, const char* what) {
    if (widths.size() == most) {
      throw MisuseError(cell_.name + ": more than " + std::to_string(most) + " " + what + "; expected at most so many");
    }
    widths.push_back(width);
    return widths.size() - 1;
  }

  Cell& cell_;
};

std::int64_t flops_of(const ir::Kind& kind) {
  std::int64_t flops = 0;
  for (const ir::Node& node : kind.nodes) {
    if (!node.is(op::matmul)) continue;
    flops += 2 * kind.nodes[ir::at(node.in[0])].type.width * node.type.width;
  }
  return flops;
}

}  // namespace

void CellInputs::set_dropout_keys(const std::optional<IndexExpr>& keys) { vertex_.tracing_->set_dropout_keys(keys); }

Cell::Cell(std::string called, std::function<void(CellBody&)> computes, const ParameterStores& known,
           LazyOptions::For use)
    : name(std::move(called)), body(std::move(computes)) {
  if (!body) throw MisuseError(name + ": no body; expected a function of a CellBody");
  const VertexFunction probed(name, {.arity = any_arity}, [&](Vertex& vertex) {
    Probe probe(vertex, *this);
    CellBody argument(probe);
    body(argument);
  });
  if (results.empty()) throw MisuseError(name + ": no result; expected one or more");
  const auto optional = static_cast<std::size_t>(std::ranges::count_if(indices, &IndexOperand::optional));
  if (operands.size() + each.size() + optional >= ir::type_bits) {  // each operand may come from another child
    throw MisuseError(name + ": " + std::to_string(operands.size()) + " operands, " + std::to_string(each.size()) +
                      " of each element and " + std::to_string(optional) + " optional indices; expected at most " +
                      std::to_string(ir::type_bits - 1) + " together");
  }
  const ir::Function& function = ir::function_of(probed);
  const ir::Kind& kind = function.kinds[0];
  const auto of_elements = [](const ir::Node& node) { return node.type.rows == Rows::edges(); };
  if (each.empty() && std::ranges::any_of(kind.nodes, of_elements)) {
    throw MisuseError(name + ": to_children in a cell without a list; expected a body that calls each()");
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < kind.index_pulls.size(); ++i) {
    const ir::IndexField& field = function.index_pulls[kind.index_pulls[i]];
    if (field.holds == ir::IndexField::Holds::dropout_by_sample) {
      throw MisuseError(name +
                        ": dropout with a mask of a sample; expected a mask of its own in lazy expressions, "
                        "which know no samples");
    }
    draws_dropout |= field.holds_dropout() && use == LazyOptions::For::training;
    if (field.holds == ir::IndexField::Holds::input) indices[next++].range = kind.index_ranges[i];
  }
  try {
    for (const ir::ParameterName& used : function.parameters) parameters.push_back(known.number_of(used));
  } catch (const MisuseError& error) {
    throw MisuseError(name + ": " + error.what());
  }
  flops = flops_of(kind);
}

Key key_of(const Cell& cell, std::uint32_t missing, std::size_t result) {
  Key key{.op = &result_of_cell, .attributes = {.sizes = {static_cast<Index>(result)}}, .cell = &cell};
  if (result > 0) return key;
  for (std::size_t k = 0; k < cell.operands.size(); ++k) {
    const bool given = (missing >> k & 1u) == 0;
    key.operands.push_back(given ? Key::expression : Key::missing);
    if (given) key.widths.push_back(cell.operands[k]);
  }
  key.operands.insert(key.operands.end(), cell.parameters.begin(), cell.parameters.end());
  for (const Cell::IndexOperand& index : cell.indices) key.index_widths.push_back(index.width);
  if (cell.draws_dropout) key.index_widths.push_back(Cell::dropout_keys);
  return key;
}

/// The keys of the results of a call. They are found again after the record has forgotten its keys.
inline const std::vector<std::uint32_t>& Record::Calls::keys_of(Cell& cell, std::uint32_t missing) {
  if (cell.keys_version == keys_version_) {
    for (const Cell::Keys& known : cell.keys) {
      if (known.missing == missing) return known.of_results;
    }
  }
  return add_keys_of(cell, missing);
}

const std::vector<std::uint32_t>& Record::Calls::add_keys_of(Cell& cell, std::uint32_t missing) {
  if (cell.keys_version != keys_version_) cell.keys.clear();
  cell.keys_version = keys_version_;
  std::vector<std::uint32_t> numbers;
  for (std::size_t r = 0; r < cell.results.size(); ++r) {
    numbers.push_back(record_.nodes_.keys.number(key_of(cell, missing, r), [&] { return Inferred{cell.results[r]}; }));
  }
  return cell.keys.emplace_back(Cell::Keys{missing, std::move(numbers)}).of_results;
}

[[noreturn]] static void refuse_call(const Cell& cell, std::size_t operands, std::size_t indices, std::size_t list,
                                     std::size_t results) {
  const auto require = [&](const char* what, std::size_t given, std::size_t expected) {
    if (given == expected) return;
    throw MisuseError(cell.name + ": " + std::to_string(given) + " " + what + "; expected " + std::to_string(expected));
  };
  require("operands", operands, cell.operands.size());
  require("indices", indices, cell.indices.size());
  require("results", results, cell.results.size());
  if (cell.each.empty()) require("expressions in its list", list, 0);
  throw MisuseError(cell.name + ": " + std::to_string(list) + " expressions in its list; expected a multiple of " +
                    std::to_string(cell.each.size()));
}

[[noreturn]] static void refuse_width(const Cell& cell, Index width, Index expected) {
  throw MisuseError(cell.name + ": an operand of width " + std::to_string(width) + "; expected " +
                    std::to_string(expected));
}

inline NodeId Record::Calls::checked_operand(const Cell& cell, const LazyExpr& operand, Index expected) const {
  const NodeId node = record_.checked(operand, cell.name);
  if (record_.nodes_.width(node) != expected) [[unlikely]]
    refuse_width(cell, record_.nodes_.width(node), expected);
  return node;
}

inline void Record::Calls::check_index(const Cell& cell, const Cell::IndexOperand& expected,
                                       const LazyIndex& index) const {
  bool fits = index.record_.get() == &record_ && index.width_ == expected.width;
  for (std::uint32_t i = 0; fits && i < index.width_; ++i) fits = expected.takes(index.values_[i]);
  if (!fits) [[unlikely]]
    refuse_index(cell, expected, index);
}

void Record::Calls::refuse_index(const Cell& cell, const Cell::IndexOperand& expected, const LazyIndex& index) const {
  const auto refuse = [&](const std::string& why) { throw MisuseError(cell.name + ": " + why); };
  if (index.record_.get() != &record_) refuse("an index of another lazy graph");
  if (index.width_ != expected.width) {
    refuse("an index of " + std::to_string(index.width_) + " numbers; expected " + std::to_string(expected.width));
  }
  const std::int32_t* value = index.values_.data();
  while (expected.takes(*value)) ++value;
  throw MisuseError(cell.name + ": index " + std::to_string(*value) + "; expected " + to_string(expected.range) +
                    (expected.optional() && !expected.range.contains(-1) ? ", or -1 for none" : ""));
}

void Record::Calls::call(Cell& cell, std::span<const OperandRef> operands, std::span<const LazyIndex> indices,
                         std::span<const LazyExpr> list, std::span<LazyExpr> results, std::source_location from) {
  const bool fits = operands.size() == cell.operands.size() && indices.size() == cell.indices.size() &&
                    results.size() == cell.results.size() &&
                    (list.empty() || (!cell.each.empty() && list.size() % cell.each.size() == 0));
  if (record_.state_ != State::open) [[unlikely]]
    record_.refuse_to_record(cell.name);
  if (!fits) [[unlikely]]
    refuse_call(cell, operands.size(), indices.size(), list.size(), results.size());
  std::array<NodeId, CellBody::most_operands> by_number;
  std::size_t given = 0;
  std::uint32_t missing = 0;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    const LazyExpr* operand = operands[k].expr_;
    if (operand == nullptr) throw MisuseError(cell.name + ": a parameter as an operand; expected an expression");
    if (operand->record_ == nullptr && operand->node_ < 0) {
      missing |= 1u << k;
    } else {
      by_number[given++] = checked_operand(cell, *operand, cell.operands[k]);
    }
  }
  std::span<const NodeId> read(by_number.data(), given);
  if (!list.empty()) {
    for (std::size_t k = 0; k < indices.size(); ++k) check_index(cell, cell.indices[k], indices[k]);  // before copies
    read = with_list(cell, read, list, from);
  }
  const std::vector<std::uint32_t>& keys = keys_of(cell, missing);
  record_.nodes_.all_indices.make_room(indices.size() * LazyIndex::widest + Cell::dropout_keys);
  record_.nodes_.reserve(results.size(), read.size());
  record_.cutter_.reserve();
  std::int32_t* const first_index = record_.nodes_.all_indices.room();
  std::int32_t* to = first_index;
  for (std::size_t k = 0; k < indices.size(); ++k) {
    check_index(cell, cell.indices[k], indices[k]);
    for (std::uint32_t i = 0; i < indices[k].width_; ++i) *to++ = indices[k].values_[i];
  }
  // Nothing after this throws.
  if (cell.draws_dropout) to = std::ranges::copy(record_.next_dropout()->row_and_seed(), to).out;
  const NodeId first = record_.nodes_.size();
  const Nodes::Node result{0, 0, record_.nodes_.all_indices.end(), record_.cutter_.next_run(), 1, from};
  record_.nodes_.append(keys, result, read);
  for (std::size_t r = 0; r < results.size(); ++r) results[r].name(record_, first + static_cast<NodeId>(r));
  record_.count += static_cast<std::int64_t>(results.size());
  record_.nodes_.all_indices.add_from_room(static_cast<std::size_t>(to - first_index));
  record_.cutter_.add_closed({first, record_.cutter_.take_cut()});
}

/// The operands, followed by the elements of a list, in scratch_list_. Edges lead to vertices of the same flush, so a
/// value of an earlier flush is copied, once for all lists of a flush. So is one that operations outside of cells
/// computed: two such values could be two nodes of one kind.
std::span<const NodeId> Record::Calls::with_list(const Cell& cell, std::span<const NodeId> operands,
                                                 std::span<const LazyExpr> list, std::source_location from) {
  const std::size_t each = cell.each.size();
  scratch_list_.assign(operands.begin(), operands.end());
  for (std::size_t i = 0; i < list.size(); ++i) {
    scratch_list_.push_back(checked_operand(cell, list[i], cell.each[i % each]));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    NodeId& id = scratch_list_[operands.size() + i];
    if (is_copied(cell, id, i % each)) id = copy(cell, id, i % each, from);
  }
  return scratch_list_;
}

std::optional<ListPlaces::Result> Record::Calls::listed(NodeId id) const {
  const Key& made_by = record_.nodes_.key(id);
  if (made_by.cell == nullptr) return made_by.op == nullptr ? std::optional(ListPlaces::Result{0, 0}) : std::nullopt;
  if (made_by.cell->own) return std::nullopt;
  return ListPlaces::Result{made_by.cell->number, static_cast<std::int32_t>(made_by.attributes.sizes[0])};
}

bool ListPlaces::reads(const Place& place, const Result& result) {
  const auto [decided, is_new] = decided_.try_emplace({place, result}, false);
  if (!is_new) return decided->second;
  const auto [of_place, place_is_new] = of_place_.try_emplace(place, groups_.size());
  if (place_is_new) groups_.emplace_back();
  const auto of_result = of_result_.find(result);
  if (of_result != of_result_.end()) return decided->second = unite(of_place->second, of_result->second);
  Group& group = groups_[of_place->second];
  if (group.try_emplace(result.cell, result.number).first->second != result.number) return false;
  of_result_.emplace(result, of_place->second);
  return decided->second = true;
}

/// Returns false, and changes nothing, if both have different results of one cell.
bool ListPlaces::unite(std::size_t keep, std::size_t drop) {
  if (keep == drop) return true;
  for (const auto& [cell, result] : groups_[drop]) {
    const auto other = groups_[keep].find(cell);
    if (other != groups_[keep].end() && other->second != result) return false;
  }
  groups_[keep].merge(groups_[drop]);
  groups_[drop].clear();
  for (auto& [place, group] : of_place_) group = group == drop ? keep : group;
  for (auto& [result, group] : of_result_) group = group == drop ? keep : group;
  return true;
}

std::optional<ListPlaces::Result> ListPlaces::group_of(const Result& result) const {
  const auto known = of_result_.find(result);
  if (known == of_result_.end()) return std::nullopt;
  const auto& [cell, number] = *groups_[known->second].begin();
  return Result{cell, number};
}

/// Whether a list holds a copy of the value.
bool Record::Calls::is_copied(const Cell& cell, NodeId id, std::size_t place) {
  if (cell.own || id < record_.nodes_.first_pending) return true;
  const auto result = listed(id);
  return !result || !list_places_.reads({cell.number, static_cast<std::int32_t>(place)}, *result);
}

/// A copy of a value, for this place in the elements of lists of this cell: a run of its own. Copies for different
/// places, and of different results of cells, have different keys, so they are different states, some of which may be
/// read in place, and no copy makes one state of two results.
NodeId Record::Calls::copy(const Cell& cell, NodeId id, std::size_t place, std::source_location from) {
  const auto computed_here = id < record_.nodes_.first_pending ? std::nullopt : listed(id);
  const auto result = computed_here.value_or(ListPlaces::Result{0, 0});
  const Key key = {.op = &op::concat,
                   .attributes = {.sizes = {static_cast<Index>(place), cell.number, result.cell, result.number}},
                   .operands = {Key::expression},
                   .widths = {record_.nodes_.width(id)}};
  const std::uint32_t number = record_.number_of_key(key);
  if (const auto known = copies_.find({id, number}); known != copies_.end()) return known->second;
  record_.nodes_.reserve(1, 1);
  record_.cutter_.reserve();
  const NodeId made = copies_.emplace(std::pair(id, number), record_.nodes_.size()).first->second;
  const std::int32_t data = record_.nodes_.all_indices.end();  // it has no indices
  record_.nodes_.append({&number, 1}, {0, 0, data, record_.cutter_.next_run(), 0, from}, {&id, 1});
  record_.cutter_.add_closed({made, true});
  return made;
}

Cell& Record::Calls::own_cell(OwnCell which, const std::vector<Index>& each) {
  for (const auto& known : own_cells_) {
    if (known->own == which && known->each == each) return *known;
  }
  const auto attention = [each](CellBody& cell) {
    const Expr query = cell.operand(each[0]), key = cell.each(each[0]), value = cell.each(each[1]);
    const Expr scores = row_dot(key, query);
    const Expr weights = softmax_children(each.size() > 2 ? scores + cell.each(each[2]) : scores);
    cell.result(sum_children(mul_columns(value, weights)));
  };
  const auto weighted_sum = [each](CellBody& cell) {
    const Expr value = cell.each(each[0]), weight = cell.each(each[1]);
    cell.result(sum_children(mul_columns(value, weight)));
  };
  own_cells_.push_back(which == OwnCell::attention
                           ? std::make_unique<Cell>("dot_attention", attention, *record_.parameters_, record_.use_)
                           : std::make_unique<Cell>("weighted_sum", weighted_sum, *record_.parameters_, record_.use_));
  own_cells_.back()->own = which;
  return *own_cells_.back();
}

LazyCell Record::Calls::make_cell(std::string name, std::function<void(CellBody&)> body) {
  cells_.push_back(std::make_shared<Cell>(std::move(name), std::move(body), *record_.parameters_, record_.use_));
  cells_.back()->number = static_cast<std::int32_t>(cells_.size());
  return LazyCell(record_, cells_.back());
}

}  // namespace lazy

LazyCell LazyGraph::cell(std::string name, std::function<void(CellBody&)> body) {
  return record_->calls().make_cell(std::move(name), std::move(body));
}

void LazyCell::record(std::span<const lazy::OperandRef> operands, std::span<const LazyIndex> indices,
                      std::span<const LazyExpr> list, std::span<LazyExpr> results, std::source_location from) const {
  record_.get()->calls().call(*cell_, operands, indices, list, results, from);
}

Expr CellBody::operand(Index width) { return inputs_.operand(width); }
Expr CellBody::each(Index width) { return inputs_.each(width); }
IndexExpr CellBody::index(Presence presence, Index width) { return inputs_.index(presence, width); }
Expr CellBody::constant(Index width, double value) { return inputs_.vertex().constant(width, value); }
Expr CellBody::parameter(const LazyWeight& weight) { return inputs_.vertex().parameter(weight); }
void CellBody::result(const Expr& value) { inputs_.result(value); }

}  // namespace windrow
