// Functions of parameters, and their numbers in keys of operations.
#include "lazy/weights.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "ir/tracing.h"

namespace windrow {

/// A list of steps instead of a tree, so that deeply nested operations do not need a deep stack. The last step makes
/// the result.
struct LazyWeight::Made {
  /// Takes a parameter, or applies an operator to the results of earlier steps.
  struct Term {
    std::optional<Parameter> parameter = {};
    const Operator* op = nullptr;
    Attributes attributes = {};
    std::vector<std::size_t> in = {};

    friend bool operator==(const Term& a, const Term& b) {
      const auto same_parameter = [&] {
        return !a.parameter || ParameterStore::name_of(*a.parameter) == ParameterStore::name_of(*b.parameter);
      };
      return a.op == b.op && a.in == b.in && a.attributes == b.attributes && same_parameter();
    }
  };
  std::vector<Term> steps;

  const std::optional<Parameter>& alone() const { return steps.back().parameter; }
};

LazyWeight::LazyWeight(const Parameter& parameter)
    : LazyWeight(std::make_shared<Made>(Made{{{.parameter = parameter}}}), parameter.type()) {}

LazyWeight LazyWeightTypes::apply(const Operator& op, const LazyWeight&, std::initializer_list<LazyWeight> in,
                                  std::initializer_list<NoIndices> indices, const Attributes& attributes) {
  if (indices.size() > 0) throw MisuseError(std::string(op.name.text()) + " of parameters alone; expected no indices");
  Signature signature{.attributes = attributes};
  std::vector<LazyWeight::Made::Term> steps;
  LazyWeight::Made::Term last{.op = &op, .attributes = attributes};
  for (const LazyWeight& operand : in) {
    signature.in.push_back(operand.type());
    const std::size_t first = steps.size();
    for (LazyWeight::Made::Term step : operand.made_->steps) {
      for (std::size_t& number : step.in) number += first;
      steps.push_back(std::move(step));
    }
    last.in.push_back(steps.size() - 1);
  }
  steps.push_back(std::move(last));
  const Type type = infer(op, ir::with_rows_of_parameters(op, signature));
  const auto operations = std::ranges::count_if(steps, [](const auto& step) { return step.op != nullptr; });
  if (operations > LazyWeight::most_operations) {
    throw MisuseError(std::string(op.name.text()) + " of parameters alone: " + std::to_string(operations) +
                      " operations on parameters; expected at most " + std::to_string(LazyWeight::most_operations));
  }
  return LazyWeight(std::make_shared<LazyWeight::Made>(LazyWeight::Made{std::move(steps)}), type);
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
  std::vector<Expr> results;
  for (const LazyWeight::Made::Term& step : weight.made_->steps) {
    std::vector<Operand> in;
    for (const std::size_t number : step.in) in.emplace_back(results[number]);
    results.push_back(step.parameter ? parameter(*step.parameter) : apply(*step.op, in, {}, step.attributes));
  }
  return results.back();
}

namespace lazy {

std::int32_t Weights::number_of(const LazyWeight& weight, const ParameterStores& parameters) {
  if (const auto& alone = weight.made_->alone()) return parameters.number_of(*alone);
  const auto known = std::ranges::find_if(made_, [&](const LazyWeight& other) {
    return other.made_ == weight.made_ || other.made_->steps == weight.made_->steps;
  });
  const auto number = first_made + static_cast<std::int32_t>(known - made_.begin());
  if (known != made_.end()) return number;
  for (const LazyWeight::Made::Term& step : weight.made_->steps) {
    if (step.parameter) parameters.number_of(*step.parameter);  // refuses those of other sets
  }
  made_.push_back(weight);
  return number;
}

Type Weights::type_of(std::int32_t number, const ParameterStores& parameters) const {
  return number < first_made ? parameters[static_cast<std::size_t>(number)].type() : made(number).type();
}

void Weights::add_parameters(std::int32_t number, const ParameterStores& parameters,
                             std::vector<std::int32_t>& to) const {
  if (number < first_made) return to.push_back(number);
  for (const LazyWeight::Made::Term& step : made(number).made_->steps) {
    if (step.parameter) to.push_back(parameters.number_of(*step.parameter));
  }
}

Operand Weights::operand(std::int32_t number, const ParameterStores& parameters, Vertex& vertex) const {
  return number < first_made ? vertex.parameter(parameters[static_cast<std::size_t>(number)])
                             : vertex.parameter(made(number));
}

}  // namespace lazy
}  // namespace windrow
