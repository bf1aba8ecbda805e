#include "lazy/weights.h"

#include <algorithm>
#include <string>

namespace windrow {

struct LazyWeight::Made {
  const Operator* op;
  Attributes attributes;
  std::vector<LazyWeight> in;
};

LazyWeight LazyWeightTypes::apply(const Operator& op, const LazyWeight&, std::initializer_list<LazyWeight> in,
                                  std::initializer_list<NoIndices> indices, const Attributes& attributes) {
  if (indices.size() > 0) throw MisuseError(std::string(op.name.text()) + " of parameters alone; expected no indices");
  Signature signature{.attributes = attributes};
  for (const LazyWeight& operand : in) signature.in.push_back(operand.type());
  const Type type = infer(op, signature);
  return LazyWeight(std::make_shared<LazyWeight::Made>(LazyWeight::Made{&op, attributes, in}), type);
}

LazyWeight LazyWeightTypes::dropout(const LazyWeight&, const Dropout&) {
  throw MisuseError("dropout of parameters alone; expected an expression");
}

Index LazyWeightTypes::width(const LazyWeight& x) { return x.type().width; }

namespace lazy {

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

Expr Weights::expr(const LazyWeight& weight, Vertex& vertex) {
  if (weight.parameter_) return vertex.parameter(*weight.parameter_);
  std::vector<Operand> in;
  for (const LazyWeight& operand : weight.made_->in) in.push_back(expr(operand, vertex));
  return apply(*weight.made_->op, in, {}, weight.made_->attributes);
}

}  // namespace lazy
}  // namespace windrow
