#include "lazy/weights.h"

#include <algorithm>
#include <string>

#include "ir/tracing.h"

namespace windrow {

struct LazyWeight::Made {
  const Operator* op;
  Attributes attributes;
  std::vector<LazyWeight> in;
  int operations;  ///< with those of operands, each as often as it is used

  static int operations_of(std::initializer_list<LazyWeight> in) {
    int sum = 1;
    for (const LazyWeight& operand : in) sum += operand.made_ == nullptr ? 0 : operand.made_->operations;
    return sum;
  }
};

LazyWeight LazyWeightTypes::apply(const Operator& op, const LazyWeight&, std::initializer_list<LazyWeight> in,
                                  std::initializer_list<NoIndices> indices, const Attributes& attributes) {
  if (indices.size() > 0) throw MisuseError(std::string(op.name.text()) + " of parameters alone; expected no indices");
  Signature signature{.attributes = attributes};
  for (const LazyWeight& operand : in) signature.in.push_back(operand.type());
  const Type type = lazy::Weights::inferred(op, signature);
  const int operations = LazyWeight::Made::operations_of(in);
  if (operations > LazyWeight::most_operations) {
    throw MisuseError(std::string(op.name.text()) + " of parameters alone: " + std::to_string(operations) +
                      " operations on parameters; expected at most " + std::to_string(LazyWeight::most_operations));
  }
  return LazyWeight(std::make_shared<LazyWeight::Made>(LazyWeight::Made{&op, attributes, in, operations}), type);
}

LazyWeight LazyWeightTypes::elementwise(const Operator& op, const LazyWeight& x, const LazyWeight& y) {
  return apply(op, x, {x, y});
}

LazyWeight LazyWeightTypes::dropout(const LazyWeight&, const Dropout&) {
  throw MisuseError("dropout of parameters alone; expected an expression");
}

Index LazyWeightTypes::width(const LazyWeight& x) { return x.type().width; }

LazyWeight apply(const Operator& op, std::initializer_list<LazyWeight> in,
                 std::initializer_list<LazyWeightTypes::NoIndices> indices, const Attributes& attributes) {
  if (in.size() == 0) throw MisuseError(std::string(op.name.text()) + " of no operands; expected one or more");
  return LazyWeightTypes::apply(op, *in.begin(), in, indices, attributes);
}

Expr Vertex::parameter(const LazyWeight& weight) {
  if (weight.parameter_) return tracing_->expr_of(tracing_->value_of(*weight.parameter_));
  std::vector<Operand> in;
  for (const LazyWeight& operand : weight.made_->in) in.push_back(parameter(operand));
  return apply(*weight.made_->op, in, {}, weight.made_->attributes);
}

namespace lazy {

Type Weights::inferred(const Operator& op, const Signature& signature) {
  return infer(op, ir::with_rows_of_parameters(op, signature));
}

std::int32_t Weights::number_of(const LazyWeight& weight, const ParameterStores& parameters) {
  if (weight.parameter_) return parameters.number_of(*weight.parameter_);
  Made wanted{weight.made_->op, weight.made_->attributes, {}, weight.type()};
  for (const LazyWeight& operand : weight.made_->in) wanted.in.push_back(number_of(operand, parameters));
  const auto known = std::find(made_.begin(), made_.end(), wanted);
  const auto number = static_cast<std::int32_t>(known - made_.begin());
  if (known == made_.end()) made_.push_back(std::move(wanted));
  return first_made + number;
}

Type Weights::type_of(std::int32_t number, const ParameterStores& parameters) const {
  return number < first_made ? parameters[static_cast<std::size_t>(number)].type() : made(number).type;
}

void Weights::add_parameters(std::int32_t number, std::vector<std::int32_t>& to) const {
  if (number < first_made) return to.push_back(number);
  for (std::int32_t operand : made(number).in) add_parameters(operand, to);
}

Operand Weights::operand(std::int32_t number, const ParameterStores& parameters, Vertex& vertex) const {
  if (number < first_made) return vertex.parameter(parameters[static_cast<std::size_t>(number)]);
  std::vector<Operand> in;
  for (std::int32_t one : made(number).in) in.push_back(operand(one, parameters, vertex));
  return apply(*made(number).op, in, {}, made(number).attributes);
}

}  // namespace lazy
}  // namespace windrow
