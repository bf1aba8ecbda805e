#include "windrow/ops/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace windrow {
namespace {

using Values = std::vector<double>;

std::size_t elements(const Type& type) { return static_cast<std::size_t>(type.rows.number() * type.width); }

template <class T>
std::vector<Matrix<const T>> matrices(const Operator& op, const Signature& signature, const std::vector<Type>& types,
                                      const std::vector<std::vector<T>>& values) {
  if (types.size() != values.size()) throw shape_error(op, signature, "values for each operand");
  std::vector<Matrix<const T>> result;
  for (std::size_t k = 0; k < types.size(); ++k) {
    if (values[k].size() != elements(types[k])) throw shape_error(op, signature, "as many values as elements");
    result.push_back({values[k].data(), types[k].rows.number(), types[k].width, types[k].width});
  }
  return result;
}

double weight(std::size_t i) { return (i % 2 == 0 ? 1.0 : -1.0) / static_cast<double>(i + 1); }

/// The application of a gradient term.
Application applied(const GradientTerm& term, const Application& application, const Type& type, const Values& result,
                    const Values& gradient) {
  Application made;
  for (const Ref& ref : term.in) {
    const bool operand = ref.of == Ref::Of::operand;
    made.signature.in.push_back(operand ? application.signature.in.at(ref.number) : type);
    made.in.push_back(operand ? application.in.at(ref.number) : ref.of == Ref::Of::result ? result : gradient);
  }
  for (std::size_t number : term.indices) {
    made.signature.indices.push_back(application.signature.indices.at(number));
    made.indices.push_back(application.indices.at(number));
  }
  made.signature.attributes = term.attributes;
  return made;
}

/// The central difference of the weighted sum with respect to one element. Restores the element.
double difference(const KernelTable<double>& kernels, const Operator& op, Application& application, double& element) {
  constexpr double step = 1e-6;
  const double at = element;
  const auto sum = [&](double value) {
    element = value;
    const Values values = evaluate(kernels, op, application);
    double total = 0;
    for (std::size_t i = 0; i < values.size(); ++i) total += weight(i) * values[i];
    return total;
  };
  const double slope = (sum(at + step) - sum(at - step)) / (2 * step);
  element = at;
  return slope;
}

}  // namespace

Values evaluate(const KernelTable<double>& kernels, const Operator& op, const Application& application,
                std::optional<Values> before) {
  const Signature& signature = application.signature;
  const Type type = infer(op, signature);
  const Write write = before ? Write::add : Write::overwrite;
  const std::size_t matrix = elements(type), all = (1 + op.states) * matrix;
  Values out = before ? *std::move(before) : Values(all);
  if (out.size() != all) throw shape_error(op, signature, "a result " + to_string(type) + ", and its states");
  const auto in = matrices(op, signature, signature.in, application.in);
  const auto indices = matrices(op, signature, signature.indices, application.indices);
  std::vector<Matrix<double>> written;  // the result, then the states
  for (std::size_t k = 0; k <= op.states; ++k) {
    written.push_back({out.data() + k * matrix, type.rows.number(), type.width, type.width});
  }
  const std::shared_ptr<Allocator> memory = host_allocator();
  kernels.find(op)({.in = in,
                    .indices = indices,
                    .out = written[0],
                    .attributes = signature.attributes,
                    .write = write,
                    .op = &op,
                    .states = std::span(written).subspan(1)},
                   *memory);
  return out;
}

double gradient_error(const KernelTable<double>& kernels, const Operator& op, const Application& application) {
  if (op.gradients == nullptr) throw MisuseError(std::string(op.name.text()) + ": no gradient to check");
  const Type type = infer(op, application.signature);
  const Values result = evaluate(kernels, op, application);
  Values gradient(result.size());
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = weight(i);

  double error = 0;
  Application moved = application;
  const GradientTerms terms = op.gradients(application.signature);
  for (std::size_t k = 0; k < terms.size(); ++k) {
    if (!terms[k]) continue;
    const Application made = applied(*terms[k], application, type, result, gradient);
    const Values values = terms[k]->op == nullptr ? made.in.at(0) : evaluate(kernels, *terms[k]->op, made);
    if (values.size() != application.in[k].size()) return std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double expected = difference(kernels, op, moved, moved.in[k][i]);
      const double off = std::abs(values[i] - expected) / (1 + std::abs(expected));
      error = std::isnan(off) ? std::numeric_limits<double>::infinity() : std::max(error, off);
    }
  }
  return error;
}

}  // namespace windrow
