// Keys of operations, and the functions of parameters that they name.
#include "lazy/weights.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "ir/tracing.h"
#include "lazy/keys.h"

namespace windrow {

struct LazyWeight::Made {
  Made(const Operator& applied, const Attributes& with, std::initializer_list<LazyWeight> to, int count)
      : op(&applied), attributes(with), in(to), operations(count) {}
  /// Goes down by the largest operand and ends the others by recursion, which is as deep as the logarithm of the number
  /// of operations at most.
  ~Made();
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;

  const Operator* const op;
  const Attributes attributes;
  std::vector<LazyWeight> in;
  const int operations;  ///< with those of operands, each as often as it is used

  /// Calls leaf(parameter) for parameters, and apply(weight, results of its operands) for what is made of others.
  template <class Result, class Leaf, class Apply>
  static Result evaluate(const LazyWeight& weight, Leaf&& leaf, Apply&& apply);

  static int operations_of(std::initializer_list<LazyWeight> in) {
    int sum = 1;
    for (const LazyWeight& operand : in) sum += operand.made_ == nullptr ? 0 : operand.made_->operations;
    return sum;
  }
};

LazyWeight::Made::~Made() {
  const auto count = [](const LazyWeight& of) { return of.made_ == nullptr ? 0 : of.made_->operations; };
  for (std::vector<LazyWeight> last = std::move(in); !last.empty();) {
    std::shared_ptr<const Made> largest = std::move(std::ranges::max_element(last, {}, count)->made_);
    last.clear();
    if (largest != nullptr && largest.use_count() == 1) last = std::move(const_cast<Made&>(*largest).in);
  }
}

template <class Result, class Leaf, class Apply>
Result LazyWeight::Made::evaluate(const LazyWeight& weight, Leaf&& leaf, Apply&& apply) {
  struct Visited {
    const LazyWeight* of;
    bool has_operands;
  };
  std::vector<Visited> steps{{&weight, false}};
  std::vector<Result> results;
  while (!steps.empty()) {
    const Visited step = steps.back();
    if (!step.has_operands && !step.of->parameter_) {
      steps.back().has_operands = true;
      const std::vector<LazyWeight>& operands = step.of->made_->in;
      for (auto each = operands.rbegin(); each != operands.rend(); ++each) steps.push_back({&*each, false});
      continue;
    }
    steps.pop_back();
    if (step.of->parameter_) {
      results.push_back(leaf(*step.of->parameter_));
      continue;
    }
    const auto first = results.end() - static_cast<std::ptrdiff_t>(step.of->made_->in.size());
    Result made = apply(*step.of, std::vector<Result>(first, results.end()));
    results.erase(first, results.end());
    results.push_back(std::move(made));
  }
  return results.front();
}

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
  return LazyWeight(std::make_shared<LazyWeight::Made>(op, attributes, in, operations), type);
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
  return LazyWeight::Made::evaluate<Expr>(
      weight, [&](const Parameter& of) { return tracing_->expr_of(tracing_->value_of(of)); },
      [&](const LazyWeight& of, const std::vector<Expr>& operands) {
        const std::vector<Operand> in(operands.begin(), operands.end());
        return apply(*of.made_->op, in, {}, of.made_->attributes);
      });
}

namespace lazy {

namespace {

/// Tests set it before they record.
std::atomic<bool> all_collide{false};

void mix(std::size_t& hash, std::size_t more) { hash = (hash ^ more) * 0x9e3779b97f4a7c15u; }

}  // namespace

void Keys::collide(bool all_hashes_equal) { all_collide = all_hashes_equal; }

std::size_t Keys::hash_of(const Key& key) {
  if (all_collide.load(std::memory_order_relaxed)) return 0;
  std::size_t hash = std::hash<const void*>()(key.op);
  for (Index size : key.attributes.sizes) mix(hash, static_cast<std::size_t>(size));
  for (double value : key.attributes.values) mix(hash, std::bit_cast<std::size_t>(value));
  for (std::int32_t operand : key.operands) mix(hash, static_cast<std::size_t>(operand));
  for (Index width : key.widths) mix(hash, static_cast<std::size_t>(width));
  for (Index width : key.index_widths) mix(hash, static_cast<std::size_t>(width));
  return hash ^ hash >> 32;
}

Type Weights::inferred(const Operator& op, const Signature& signature) {
  return infer(op, ir::with_rows_of_parameters(op, signature));
}

std::int32_t Weights::number_of(const LazyWeight& weight, const ParameterStores& parameters) {
  return LazyWeight::Made::evaluate<std::int32_t>(
      weight, [&](const Parameter& of) { return parameters.number_of(of); },
      [&](const LazyWeight& of, std::vector<std::int32_t>&& in) {
        Made wanted{of.made_->op, of.made_->attributes, std::move(in), of.type()};
        const auto known = std::find(made_.begin(), made_.end(), wanted);
        const auto number = static_cast<std::int32_t>(known - made_.begin());
        if (known == made_.end()) made_.push_back(std::move(wanted));
        return first_made + number;
      });
}

Type Weights::type_of(std::int32_t number, const ParameterStores& parameters) const {
  return number < first_made ? parameters[static_cast<std::size_t>(number)].type() : made(number).type;
}

void Weights::add_parameters(std::int32_t number, std::vector<std::int32_t>& to) const {
  std::vector<std::int32_t> rest{number};
  while (!rest.empty()) {
    const std::int32_t next = rest.back();
    rest.pop_back();
    if (next < first_made) {
      to.push_back(next);
    } else {
      rest.insert(rest.end(), made(next).in.rbegin(), made(next).in.rend());
    }
  }
}

Operand Weights::operand(std::int32_t number, const ParameterStores& parameters, Vertex& vertex) const {
  const auto of_parameter = [&](std::int32_t one) -> Operand {
    return vertex.parameter(parameters[static_cast<std::size_t>(one)]);
  };
  if (number < first_made) return of_parameter(number);
  // Operands have lower numbers than what is made of them.
  std::vector<std::int32_t> needed{number};
  for (std::size_t i = 0; i < needed.size(); ++i) {
    for (const std::int32_t one : made(needed[i]).in) {
      if (one >= first_made && std::ranges::find(needed, one) == needed.end()) needed.push_back(one);
    }
  }
  std::ranges::sort(needed);
  std::map<std::int32_t, Operand> results;
  for (const std::int32_t one : needed) {
    std::vector<Operand> in;
    for (const std::int32_t of : made(one).in) in.push_back(of < first_made ? of_parameter(of) : results.at(of));
    results.emplace(one, apply(*made(one).op, in, {}, made(one).attributes));
  }
  return results.at(number);
}

}  // namespace lazy
}  // namespace windrow
