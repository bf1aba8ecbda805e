#include <algorithm>

#include "ir/tracing.h"
#include "lazy/record.h"

namespace windrow {
namespace lazy {

constinit const Operator result_of_cell = {.name = "cell", .inputs = Operator::any_number};

namespace {

/// Records the operands and results of a body.
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

std::int64_t flops_of(const ir::VertexKind& kind) {
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
  const ir::VertexKind& kind = function.kinds[0];
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

/// The keys of the results of a call.
inline const std::vector<std::uint32_t>& Record::keys_of(Cell& cell, std::uint32_t missing) {
  for (const Cell::Keys& known : cell.keys) {
    if (known.missing == missing) return known.of_results;
  }
  return add_keys_of(cell, missing);
}

const std::vector<std::uint32_t>& Record::add_keys_of(Cell& cell, std::uint32_t missing) {
  std::vector<std::uint32_t> numbers;
  for (std::size_t r = 0; r < cell.results.size(); ++r) {
    numbers.push_back(nodes_.keys.number(key_of(cell, missing, r), [&] { return Inferred{cell.results[r]}; }));
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

inline NodeId Record::checked_operand(const Cell& cell, const LazyExpr& operand, Index expected) const {
  const NodeId node = checked(operand, cell.name);
  if (nodes_.width(node) != expected) [[unlikely]]
    refuse_width(cell, nodes_.width(node), expected);
  return node;
}

inline void Record::check_index(const Cell& cell, const Cell::IndexOperand& expected, const LazyIndex& index) const {
  bool fits = index.record_.get() == this && index.width_ == expected.width;
  for (std::uint32_t i = 0; fits && i < index.width_; ++i) fits = expected.takes(index.values_[i]);
  if (!fits) [[unlikely]]
    refuse_index(cell, expected, index);
}

void Record::refuse_index(const Cell& cell, const Cell::IndexOperand& expected, const LazyIndex& index) const {
  const auto refuse = [&](const std::string& why) { throw MisuseError(cell.name + ": " + why); };
  if (index.record_.get() != this) refuse("an index of another lazy graph");
  if (index.width_ != expected.width) {
    refuse("an index of " + std::to_string(index.width_) + " numbers; expected " + std::to_string(expected.width));
  }
  const std::int32_t* value = index.values_.data();
  while (expected.takes(*value)) ++value;
  throw MisuseError(cell.name + ": index " + std::to_string(*value) + "; expected " + to_string(expected.range) +
                    (expected.optional() && !expected.range.contains(-1) ? ", or -1 for none" : ""));
}

void Record::call(Cell& cell, std::span<const OperandRef> operands, std::span<const LazyIndex> indices,
                  std::span<const LazyExpr> list, std::span<LazyExpr> results, std::source_location from) {
  const bool fits = operands.size() == cell.operands.size() && indices.size() == cell.indices.size() &&
                    results.size() == cell.results.size() &&
                    (list.empty() || (!cell.each.empty() && list.size() % cell.each.size() == 0));
  if (stage_ != Stage::open) [[unlikely]]
    refuse_to_record(cell.name);
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
  nodes_.all_indices.make_room(indices.size() * LazyIndex::widest + Cell::dropout_keys);
  nodes_.reserve(results.size(), read.size());
  cutter_.reserve();
  std::int32_t* const first_index = nodes_.all_indices.room();
  std::int32_t* to = first_index;
  for (std::size_t k = 0; k < indices.size(); ++k) {
    check_index(cell, cell.indices[k], indices[k]);
    for (std::uint32_t i = 0; i < indices[k].width_; ++i) *to++ = indices[k].values_[i];
  }
  // Nothing after this throws.
  if (cell.draws_dropout) to = std::ranges::copy(next_dropout()->row_and_seed(), to).out;
  const NodeId first = nodes_.size();
  const Nodes::Node result{0, 0, nodes_.all_indices.end(), cutter_.next_run(), 1, from};
  nodes_.append(keys, result, read);
  for (std::size_t r = 0; r < results.size(); ++r) results[r].name(*this, first + static_cast<NodeId>(r));
  count += static_cast<std::int64_t>(results.size());
  nodes_.all_indices.add_from_room(static_cast<std::size_t>(to - first_index));
  cutter_.add_closed({first, cutter_.take_cut()});
}

/// The operands, followed by the elements of a list, in scratch_operands_.
std::span<const NodeId> Record::with_list(Cell& cell, std::span<const NodeId> operands, std::span<const LazyExpr> list,
                                          std::source_location from) {
  const std::size_t each = cell.each.size();
  scratch_operands_.assign(operands.begin(), operands.end());
  for (std::size_t i = 0; i < list.size(); ++i) {
    scratch_operands_.push_back(checked_operand(cell, list[i], cell.each[i % each]));
  }
  for (std::size_t i = 0; i < list.size(); ++i) {
    NodeId& id = scratch_operands_[operands.size() + i];
    if (!reads_in_place(cell, id, i % each)) id = copy(cell, id, i % each, from);
  }
  return scratch_operands_;
}

/// Whether that place in the elements of lists reads the value itself; see cells.h.
bool Record::reads_in_place(Cell& cell, NodeId id, std::size_t place) {
  const std::int32_t result = nodes_.key(id).result();
  if (cell.own || result < 0 || id < nodes_.first_pending) return false;
  cell.reads.resize(cell.each.size(), -1);
  if (cell.reads[place] < 0) cell.reads[place] = result;
  return cell.reads[place] == result;
}

/// A copy of a value for this place in the elements of lists; the copy is a separate run. Copies for different places,
/// or of results with different numbers, have different keys. So they are different states, some of which may be read
/// in place, and no copy merges two results into one state.
NodeId Record::copy(const Cell& cell, NodeId id, std::size_t place, std::source_location from) {
  const Key key = {.op = &op::concat,
                   .attributes = {.sizes = {static_cast<Index>(place), cell.number, nodes_.key(id).result()}},
                   .operands = {Key::expression},
                   .widths = {nodes_.width(id)}};
  const std::uint32_t number = number_of_key(key);
  if (const auto known = copies_.find({id, number}); known != copies_.end()) return known->second;
  nodes_.reserve(1, 1);
  cutter_.reserve();
  const NodeId made = copies_.emplace(std::pair(id, number), nodes_.size()).first->second;
  const std::int32_t data = nodes_.all_indices.end();  // it has no indices
  nodes_.append({&number, 1}, {0, 0, data, cutter_.next_run(), 0, from}, {&id, 1});
  cutter_.add_closed({made, true});
  return made;
}

Cell& Record::own_cell(OwnCell which, const std::vector<Index>& each) {
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
                           ? std::make_unique<Cell>("dot_attention", attention, *parameters_, use_)
                           : std::make_unique<Cell>("weighted_sum", weighted_sum, *parameters_, use_));
  own_cells_.back()->own = which;
  return *own_cells_.back();
}

LazyCell Record::make_cell(std::string name, std::function<void(CellBody&)> body) {
  cells_.push_back(std::make_shared<Cell>(std::move(name), std::move(body), *parameters_, use_));
  cells_.back()->number = static_cast<std::int32_t>(cells_.size());
  return LazyCell(*this, cells_.back());
}

}  // namespace lazy

LazyCell LazyGraph::cell(std::string name, std::function<void(CellBody&)> body) {
  return record_->make_cell(std::move(name), std::move(body));
}

std::vector<LazyExpr> LazyCell::call(std::span<const lazy::OperandRef> operands, std::span<const LazyIndex> indices,
                                     std::span<const LazyExpr> list, std::source_location from) const {
  std::vector<LazyExpr> made(cell_->results.size());
  record(operands, indices, list, made, from);
  return made;
}

void LazyCell::record(std::span<const lazy::OperandRef> operands, std::span<const LazyIndex> indices,
                      std::span<const LazyExpr> list, std::span<LazyExpr> results, std::source_location from) const {
  record_.get()->call(*cell_, operands, indices, list, results, from);
}

Expr CellBody::operand(Index width) { return inputs_.operand(width); }
Expr CellBody::each(Index width) { return inputs_.each(width); }
IndexExpr CellBody::index(Presence presence, Index width) { return inputs_.index(presence, width); }
Expr CellBody::constant(Index width, double value) { return inputs_.vertex().constant(width, value); }
Expr CellBody::parameter(const LazyWeight& weight) { return inputs_.vertex().parameter(weight); }
void CellBody::result(const Expr& value) { inputs_.result(value); }

}  // namespace windrow
