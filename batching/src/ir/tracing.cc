// Tracing: expressions and structural operations inside the body of a vertex function.
#include "ir/tracing.h"

#include <algorithm>

#include "windrow/batching/vertex_function.h"

namespace windrow {
namespace ir {
namespace {

/// Adds the field to the function's list and its number to the kind's list, unless it exists. Returns its number.
template <class Field>
std::size_t add_field(std::vector<Field>& fields, std::vector<std::size_t>& of_kind, const Field& field) {
  const auto known = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == field.name; });
  const auto number = static_cast<std::size_t>(known - fields.begin());
  if (known != fields.end()) return number;
  fields.push_back(field);
  of_kind.push_back(number);
  return number;
}

}  // namespace

Tracing::Tracing(std::string name, const VertexFunction::Shape& shape) {
  function.name = name;
  const bool any = shape.arity == any_arity;
  if (!any && (shape.fixed != 0 || shape.per_edge != 1)) {
    throw MisuseError(name + ": `fixed` or `per_edge` with a fixed arity; expected any_arity");
  }
  if (any && shape.per_edge == 0) throw MisuseError(name + ": edges to 0 children; expected 1 or more");
  function.kinds.push_back(
      {.name = std::move(name), .arity = any ? shape.fixed : shape.arity, .per_edge = any ? shape.per_edge : 0});
}

Expr Tracing::expr(Node node) {
  kind().nodes.push_back(std::move(node));
  return expr_of(static_cast<Value>(kind().nodes.size()) - 1);
}

Expr Tracing::expr_of(Value value) { return Expr(weak_from_this(), value, kind().nodes[at(value)].type); }

Expr Tracing::constant(Index width, double value) {
  return expr({.code = Code::fill, .type = {Rows::vertices(), width}, .constant = value});
}

Expr Tracing::constant_of_edges(Index width, double value) {
  return expr({.code = Code::fill, .type = {Rows::edges(), width}, .constant = value});
}

IndexExpr Tracing::index_expr(std::size_t pull) {
  const IndexField& field = function.index_pulls[pull];
  return IndexExpr(weak_from_this(), pull, {field.rows, field.width});
}

Value Tracing::value_of(const Operand& operand) {
  if (operand.value_ != no_value) {
    if (operand.tracing_.lock().get() != this)
      throw MisuseError(function.name + ": an expression of another vertex function");
    return operand.value_;
  }
  auto& nodes = kind().nodes;
  Node node{.code = Code::parameter,
            .type = operand.type_,
            .number = number_in(function.parameters, {operand.set_, operand.parameter_, operand.name_})};
  const auto known = std::find(nodes.begin(), nodes.end(), node);
  if (known != nodes.end()) return static_cast<Value>(known - nodes.begin());
  nodes.push_back(std::move(node));
  return static_cast<Value>(nodes.size()) - 1;
}

std::shared_ptr<Tracing> Tracing::of(const std::string& what, std::span<const Operand> in,
                                     std::span<const IndexExpr> indices) {
  std::shared_ptr<Tracing> found;
  const auto meet = [&](const std::weak_ptr<Tracing>& tracing) {
    const std::shared_ptr<Tracing> here = tracing.lock();
    if (!here) throw MisuseError(what + ": an expression of a vertex function that was already traced");
    if (found && found != here) throw MisuseError(what + ": expressions of two vertex functions; expected one");
    found = here;
  };
  for (const Operand& operand : in) {
    if (operand.value_ != no_value) meet(operand.tracing_);
  }
  for (const IndexExpr& index : indices) meet(index.tracing_);
  if (!found) {
    throw MisuseError(what +
                      ": only parameters; expected an expression among them, such as Vertex::parameter(w), or "
                      "LazyWeight(w) for lazy expressions");
  }
  return found;
}

namespace {

bool is_whole(const Operator& op, std::size_t operand) {
  return op.locality == Locality::rowwise && operand < 32 && (op.whole >> operand & 1u) != 0;
}

bool is_row(const Type& type) { return type.rows == Rows::count(1); }

/// For parameters alone: extends the operands to the height and width of the largest. Operands that do not fit stay
/// unchanged, so that the error shows their shapes.
Signature with_one_shape(Signature signature) {
  Index rows = 0, width = 0;
  for (const Type& type : signature.in) {
    rows = std::max(rows, type.rows.number());
    width = std::max(width, type.width);
  }
  const bool fit = std::ranges::all_of(signature.in, [&](const Type& type) {
    return (is_row(type) || type.rows == Rows::count(rows)) && (type.width == 1 || type.width == width);
  });
  if (fit) std::ranges::fill(signature.in, Type{Rows::count(rows), width});
  return signature;
}

}  // namespace

Signature with_rows_of_parameters(const Operator& op, Signature signature) {
  Index widest = 0;  // of the values of vertices or edges
  bool vertices = false, edges = false;
  const auto see = [&](const Type& type) {
    vertices |= !type.rows.counted();
    edges |= type.rows == Rows::edges();
  };
  for (const Type& type : signature.in) {
    see(type);
    if (!type.rows.counted()) widest = std::max(widest, type.width);
  }
  for (const Type& type : signature.indices) see(type);
  const bool elementwise = op.locality == Locality::elementwise;
  if (!vertices) return elementwise ? with_one_shape(std::move(signature)) : signature;
  if (!by_rows(op)) return signature;
  const Signature given = signature;
  for (std::size_t k = 0; k < signature.in.size(); ++k) {
    Type& type = signature.in[k];
    if (is_whole(op, k) || !type.rows.counted()) continue;
    if (elementwise && !is_row(type)) throw shape_error(op, given, "operands of one shape, or parameters of one row");
    // A row that does not fit keeps its type, so that the error shows its shape.
    if (!is_row(type) || (elementwise && type.width != 1 && type.width != widest)) continue;
    type = {edges ? Rows::edges() : Rows::vertices(), elementwise ? widest : type.width};
  }
  return signature;
}

void check_locality(const Operator& op, const Signature& signature, const Type& result) {
  const auto refuse = [&](const std::string& why) { throw MisuseError(std::string(op.name.text()) + ": " + why); };
  const bool of_vertices =
      !signature.indices.empty() ||
      std::any_of(signature.in.begin(), signature.in.end(), [](const Type& type) { return !type.rows.counted(); });
  if (op.updates) refuse("changes its result in place; expected an operator that makes one");
  if (!of_vertices && !result.rows.counted()) {
    refuse("makes " + to_string(result) + " of parameters alone; expected a counted number of rows");
  }
  if (!of_vertices) return;
  if (!by_rows(op)) {
    refuse("mixes the rows of a batch; expected an operator that is elementwise or rowwise");
  }
  if (result.rows.counted()) refuse("makes " + to_string(result) + " of vertices; expected a row for each");
  for (std::size_t k = 0; k < signature.in.size(); ++k) {
    const bool whole = is_whole(op, k);
    const Rows& rows = signature.in[k].rows;
    if (whole ? !rows.counted() : rows != result.rows) {
      refuse("operand " + std::to_string(k) + " is " + to_string(signature.in[k]) + "; expected " +
             (whole ? "a parameter" : "a value of the vertex"));
    }
  }
}

template <class Checked>
auto Tracing::told(Checked checked) const {
  try {
    return checked();
  } catch (const MisuseError& error) {
    throw MisuseError(function.name + ": " + error.what());
  }
}

Expr Tracing::apply(const Operator& op, std::span<const Operand> in, std::span<const IndexExpr> indices,
                    const Attributes& attributes) {
  const auto of_edges = [](const auto& operand) { return operand.type().rows == Rows::edges(); };
  const bool edges =
      std::any_of(in.begin(), in.end(), of_edges) || std::any_of(indices.begin(), indices.end(), of_edges);
  std::vector<Operand> operands;
  Signature signature{.attributes = attributes};
  for (const Operand& operand : in) {
    const bool handed_on = edges && operand.type().rows == Rows::vertices();
    operands.push_back(handed_on ? to_children(expr_of(value_of(operand))) : operand);
    signature.in.push_back(operands.back().type());
  }
  for (const IndexExpr& index : indices) signature.indices.push_back(index.type());
  const Signature rows = told([&] { return with_rows_of_parameters(op, signature); });
  told([&] { check_locality(op, rows, infer(op, rows)); });
  for (std::size_t k = 0; k < operands.size(); ++k) {
    if (rows.in[k] == signature.in[k]) continue;
    if (const std::optional<Expr> result = with_row(op, operands, rows.in[k])) return *result;
    operands[k] = repeated(operands[k], rows.in[k]);
  }
  return add(op, operands, indices, attributes);
}

Operand Tracing::repeated(const Operand& x, const Type& type) {
  const Operand wide =
      x.type().width == type.width ? x : Operand(add(op::spread_columns, {x}, {}, op::to_width(type.width)));
  if (wide.type() == type) return wide;
  if (type.rows.counted()) return add(op::spread_rows, {wide}, {}, op::to_rows(type.rows));
  return add(op::add_bias, {expr({.code = Code::fill, .type = type}), wide}, {}, {});
}

std::optional<Expr> Tracing::with_row(const Operator& op, std::span<const Operand> in, const Type& type) {
  const bool sum = &op == &op::add || &op == &op::sub, product = &op == &op::mul || &op == &op::div;
  if (!sum && !product) return std::nullopt;
  const bool first = is_row(in[0].type());
  if (first == is_row(in[1].type())) return std::nullopt;
  Operand x = repeated(in[first ? 1 : 0], type), row = repeated(in[first ? 0 : 1], {Rows::count(1), type.width});
  Operand& second = first ? x : row;
  if (&op == &op::sub) second = add(op::neg, {second}, {}, {});
  if (&op == &op::div) second = add(op::reciprocal, {second}, {}, op::scaled_by(1));
  return add(sum ? op::add_bias : op::mul_row, {x, row}, {}, {});
}

Expr Tracing::add(const Operator& op, const std::vector<Operand>& in, std::span<const IndexExpr> indices,
                  const Attributes& attributes) {
  Node node{.code = Code::apply, .type = {Rows::vertices(), 0}, .op = &op, .attributes = attributes};
  for (const Operand& operand : in) node.in.push_back(value_of(operand));
  for (const IndexExpr& index : indices) node.indices.push_back(index.pull_);
  node.type = told([&] { return infer(op, signature_of(function, kind().nodes, node)); });
  return expr(std::move(node));
}

// --- Vertices and edges

/// Adds all three fields at once, since the gradient of an operator that reads one of them reads another.
std::size_t Tracing::structure(IndexField::Holds holds) {
  using Holds = IndexField::Holds;
  const IndexField all[] = {{.name = "(edges)", .width = 2, .rows = Rows::vertices(), .holds = Holds::edges},
                            {.name = "(consumer)", .width = 1, .rows = Rows::edges(), .holds = Holds::consumer},
                            {.name = "(sibling)", .width = 2, .rows = Rows::edges(), .holds = Holds::sibling}};
  std::size_t found = 0;
  for (const IndexField& field : all) {
    const std::size_t number = add_field(function.index_pulls, kind().index_pulls, field);
    if (field.holds == holds) found = number;
  }
  return found;
}

Expr Tracing::to_children(const Expr& x) {
  if (!kind().any_number()) {
    throw MisuseError(function.name + ": to_children in a function of arity " + std::to_string(kind().arity) +
                      "; expected one of any_arity, or a gather by child");
  }
  if (x.type().rows == Rows::edges()) return x;
  if (x.type().rows.counted()) {
    throw MisuseError(function.name + ": to_children of a parameter; expected a value of the vertex");
  }
  const IndexExpr consumer = index_expr(structure(IndexField::Holds::consumer));
  return add(op::gather_rows, {x}, {&consumer, 1}, {});
}

void Tracing::check_of_edges(const char* what, const Expr& x) const {
  if (x.type().rows == Rows::edges()) return;
  throw MisuseError(function.name + ": " + what + ": operand " + to_string(x.type()) +
                    "; expected a value of edges, such as Vertex::each()");
}

Expr Tracing::over_children(const char* what, const Operator& op, const Expr& x) {
  check_of_edges(what, x);
  const IndexExpr edges = index_expr(structure(IndexField::Holds::edges));
  return add(op, {x}, {&edges, 1}, {});
}

Expr Tracing::is_first_maximum(const Expr& x) {
  const Expr place = over_children("k_max_children", op::segment_argmax, x);
  const IndexExpr sibling = index_expr(structure(IndexField::Holds::sibling));
  return add(op::gather_where, {place, constant(x.width(), 1)}, {&sibling, 1}, {});
}

Expr Tracing::share_of_child() {
  const std::size_t pull = add_field(
      function.pulls, kind().pulls,
      {.name = "(share of child)", .width = 1, .rows = Rows::vertices(), .holds = Field::Holds::share_of_child});
  return expr({.code = Code::pull, .type = {Rows::vertices(), 1}, .number = pull});
}

Expr Tracing::dropout(const Expr& x, const Dropout& how) {
  if (x.type().rows != Rows::vertices()) {
    throw MisuseError(function.name + ": dropout of " + to_string(x.type()) + "; expected a value of the vertex");
  }
  if (how.rate == 0 || dropout_keys_ == DropoutKeys::none) return x;
  const bool by_sample = how.mask == Dropout::Mask::sample;
  const auto filled_in = [&] {
    return add_field(function.index_pulls, kind().index_pulls,
                     {.name = by_sample ? "(dropout by sample)" : "(dropout)",
                      .width = 5,
                      .rows = Rows::vertices(),
                      .holds = by_sample ? IndexField::Holds::dropout_by_sample : IndexField::Holds::dropout});
  };
  const IndexExpr keys = index_expr(dropout_keys_ == DropoutKeys::pulled ? dropout_pull_ : filled_in());
  const Attributes attributes = op::dropout_by(how.rate, 0, dropouts_++);
  if (how.of == Dropout::Of::element) return add(op::dropout, {x}, {&keys, 1}, attributes);
  const Expr ones = expr({.code = Code::fill, .type = {Rows::vertices(), 1}, .constant = 1});
  return add(op::mul_columns, {x, add(op::dropout, {ones}, {&keys, 1}, attributes)}, {}, {});
}

void Tracing::set_dropout_keys(const std::optional<IndexExpr>& keys) {
  dropout_keys_ = keys ? DropoutKeys::pulled : DropoutKeys::none;
  if (keys) dropout_pull_ = keys->pull_;
}

void Tracing::find_gradient() {
  add_field(function.index_pulls, kind().index_pulls,
            {.name = "(row of the gradient of " + function.outputs.back().name + ")",
             .width = 1,
             .rows = Rows::vertices(),
             .holds = IndexField::Holds::gradient_row,
             .tensor = function.outputs.size() - 1});
}

Expr Tracing::row_of(const std::string& tensor, Index width) {
  const std::size_t number = function.tensors.size();
  function.tensors.push_back({tensor, width, Rows::count(0)});
  const IndexExpr row = index_expr(add_field(function.index_pulls, kind().index_pulls,
                                             {.name = "(row of " + tensor + ")",
                                              .width = 1,
                                              .rows = Rows::vertices(),
                                              .holds = IndexField::Holds::row,
                                              .tensor = number}));
  const Expr all = expr({.code = Code::given, .type = {Rows::count(0), width}, .number = number});
  return add(op::gather_rows, {all}, {&row, 1}, {});
}

}  // namespace ir

}  // namespace windrow
