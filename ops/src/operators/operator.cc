#include "windrow/ops/operator.h"

namespace windrow {
namespace {

std::string rows_text(Rows rows) {
  if (rows == Rows::vertices()) return "vertices";
  if (rows == Rows::edges()) return "edges";
  return std::to_string(rows.number());
}

std::string list(const std::vector<Type>& types) {
  std::string text;
  for (const Type& type : types) text += (text.empty() ? "" : ", ") + to_string(type);
  return text;
}

std::string plural(std::size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

Rows Rows::count(Index rows) {
  if (rows < 0) throw MisuseError("rows: " + std::to_string(rows) + "; expected 0 or more");
  return Rows(Of::number, rows);
}

Index Rows::number() const {
  if (!counted()) throw MisuseError("rows: those of a batch; expected a number");
  return number_;
}

std::string to_string(const Type& type) { return rows_text(type.rows) + " x " + std::to_string(type.width); }

std::string to_string(const IndexRange& range) {
  if (range.last < range.first) return "none, since there is nothing to index";
  if (range.last == range.first) return std::to_string(range.first);
  return std::to_string(range.first) + " to " + std::to_string(range.last);
}

MisuseError shape_error(const Operator& op, const Signature& signature, const std::string& expected) {
  std::string text = std::string(op.name.text()) + ": operands " + list(signature.in);
  if (!signature.indices.empty()) text += ", indices " + list(signature.indices);
  return MisuseError(text + "; expected " + expected);
}

Type infer(const Operator& op, const Signature& signature) {
  if (op.infer == nullptr) throw shape_error(op, signature, "an operator with a rule for types");
  if (op.inputs != Operator::any_number && signature.in.size() != op.inputs) {
    throw shape_error(op, signature, plural(op.inputs, "operand"));
  }
  if (signature.indices.size() != op.index_inputs) {
    throw shape_error(op, signature, plural(op.index_inputs, "index operand"));
  }
  if (signature.attributes.made_by != op.attributes) {
    throw shape_error(op, signature,
                      op.attributes.empty() ? "no attributes" : "attributes made by " + std::string(op.attributes));
  }
  return op.infer(op, signature);
}

}  // namespace windrow
