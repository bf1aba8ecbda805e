// Functions in files: selects the parts to write, and checks functions that were read.
#include <algorithm>
#include <set>

#include "ir/tracing.h"
#include "parameters/parameter_store.h"
#include "windrow/ops/internal/number.h"
#include "windrow/ops/operators.h"

namespace windrow::ir {
namespace {

using Numbers = std::vector<std::size_t>;

// --- What outputs need

/// Marks the nodes and fields that the outputs of a function need.
struct NeededByOutputs {
  explicit NeededByOutputs(const Function& function)
      : states(function.states.size()),
        pulls(function.pulls.size()),
        index_pulls(function.index_pulls.size()),
        tensors(function.tensors.size()),
        parameters(function.parameters.size()) {
    for (const VertexKind& kind : function.kinds) nodes.emplace_back(kind.nodes.size());
    while (mark(function)) continue;
  }

  std::vector<std::vector<char>> nodes;  // by kind
  std::vector<char> states, pulls, index_pulls, tensors, parameters;

 private:
  /// Returns whether a state was newly marked, so that its producers must be marked next.
  bool mark(const Function& function) {
    bool more = false;
    for (std::size_t k = 0; k < function.kinds.size(); ++k) {
      const VertexKind& kind = function.kinds[k];
      const auto root = [&](Value value) {
        if (value != no_value) nodes[k][at(value)] = 1;
      };
      for (const Value value : kind.pushes) root(value);
      for (std::size_t s = 0; s < states.size(); ++s) {
        if (states[s] != 0) root(kind.scattered[s]);
      }
      for (std::size_t n = kind.nodes.size(); n-- > 0;) {
        const Node& node = kind.nodes[n];
        if (nodes[k][n] == 0) continue;
        for (const Value in : node.in) root(in);
        for (const std::size_t pull : node.indices) index_pulls[pull] = 1;
        if (node.code == Code::pull) pulls[node.number] = 1;
        if (node.code == Code::given) tensors[node.number] = 1;
        if (node.code == Code::parameter) parameters[node.number] = 1;
        if (node.code == Code::gather) more |= std::exchange(states[node.number], 1) == 0;
      }
    }
    return more;
  }
};

/// Keeps the marked elements; returns the new number of each.
template <class T>
Numbers keep(std::vector<T>& list, const std::vector<char>& marked) {
  Numbers numbers(list.size());
  std::size_t kept = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    numbers[i] = kept;
    if (marked[i] == 0) continue;
    if (kept != i) list[kept] = std::move(list[i]);
    ++kept;
  }
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(kept), list.end());
  return numbers;
}

/// The same for a list of numbers of such elements.
void keep(Numbers& list, const std::vector<char>& marked, const Numbers& numbers) {
  std::erase_if(list, [&](std::size_t number) { return marked[number] == 0; });
  for (std::size_t& number : list) number = numbers[number];
}

// --- Checks

// Limits of the elements of a vertex or an edge, and of values of parameters alone relative to the parameters' size.
// They bound the memory that a damaged number in a file can take.
constexpr Index most_elements = Index{1} << 24, most_added_elements = Index{1} << 20, most_times_parameters = 64;
constexpr std::size_t most_nodes = 1 << 16, most_fields = 1 << 12;

/// Checks everything that tracing ensures, and fills in the types of the nodes.
class Check {
 public:
  Check(Function& function, const std::vector<Parameter>& parameters) : function_(function), parameters_(parameters) {}

  void run() {
    require(!function_.kinds.empty() && function_.kinds.size() <= most_fields, "no kind, or too many");
    check(function_.states, "state");
    check(function_.pulls, "input");
    check(function_.index_pulls, "input");
    check(function_.tensors, "tensor");
    check(function_.outputs, "output");
    for (Field& field : function_.states) field.rows = Rows::vertices();
    for (Field& field : function_.outputs) field.rows = Rows::vertices();
    for (Field& field : function_.tensors) field.rows = Rows::count(0);
    for (const Field& field : function_.pulls) check_pull(field);
    for (const IndexField& field : function_.index_pulls) check_pull(field);
    for (VertexKind& kind : function_.kinds) check(kind);
    finish(function_);
    check_complete(function_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { throw MisuseError(function_.name + ": " + what); }
  void require(bool holds, const std::string& otherwise) const {
    if (!holds) refuse(otherwise);
  }

  template <class Fields>
  void check(const Fields& fields, const std::string& what) const {
    require(fields.size() <= most_fields, "more than " + std::to_string(most_fields) + " times " + what);
    std::set<std::string> names;
    for (const auto& field : fields) {
      require(names.insert(field.name).second, what + " '" + field.name + "' twice; expected once");
      require(0 <= field.width && field.width <= most_elements, what + " '" + field.name + "' has width " +
                                                                    std::to_string(field.width) + "; expected 0 to " +
                                                                    std::to_string(most_elements));
    }
  }
  template <class Pulled>
  void check_pull(const Pulled& field) const {
    require(!field.rows.counted() && fits(field), "input '" + field.name + "' does not fit what it holds");
  }
  static bool fits(const Field& field) {
    return field.holds == Field::Holds::input || (field.width == 1 && field.rows == Rows::vertices());
  }
  bool fits(const IndexField& field) const {
    using Holds = IndexField::Holds;
    const auto is = [&](Rows rows, Index width) {
      return field.rows == rows && field.width == width && !field.optional;
    };
    switch (field.holds) {
      case Holds::input:
        return !field.optional || field.width == 1;
      case Holds::edges:
        return is(Rows::vertices(), 2);
      case Holds::consumer:
        return is(Rows::edges(), 1);
      case Holds::sibling:
        return is(Rows::edges(), 2);
      case Holds::row:
        return is(Rows::vertices(), 1) && field.tensor < function_.tensors.size();
      case Holds::gradient_row:
        return false;
      default:
        return is(Rows::vertices(), 5);  // of dropout
    }
  }

  void check(VertexKind& kind) {
    kind_ = &kind;
    check_numbers(kind.pulls, function_.pulls);
    check_numbers(kind.index_pulls, function_.index_pulls);
    elements_ = constants_ = of_parameters_ = 0;
    counted_.clear();
    nodes_ += kind.nodes.size();
    require(nodes_ <= most_nodes, "too many nodes; expected at most " + std::to_string(most_nodes));
    for (at_ = 0; at_ < kind.nodes.size(); ++at_) {
      Node& node = kind.nodes[at_];
      node.type = type_of(node);
      count(node);
    }
    require(constants_ <= most_added_elements + most_times_parameters * of_parameters_,
            "values of parameters alone are too large");
    check_values(kind.scattered, function_.states, "state");
    check_values(kind.pushes, function_.outputs, "output");
  }

  template <class Fields>
  void check_numbers(const Numbers& numbers, const Fields& fields) const {
    const std::set<std::size_t> all(numbers.begin(), numbers.end());
    const bool fit = all.size() == numbers.size() && (all.empty() || *all.rbegin() < fields.size());
    require(fit, "inputs of a kind; expected different ones that there are");
    for (const std::size_t number : numbers) {
      require(!of_edges(fields[number]) || kind_->any_number(), "an input of edges in a kind of fixed arity");
    }
  }
  static bool of_edges(const Field& field) {
    return field.rows == Rows::edges() || field.holds == Field::Holds::share_of_child;
  }
  static bool of_edges(const IndexField& field) {
    return field.rows == Rows::edges() || field.holds == IndexField::Holds::edges;
  }
  bool has(Value value, const Type& type) const {
    return 0 <= value && at(value) < kind_->nodes.size() && kind_->nodes[at(value)].type == type;
  }
  template <class Fields>
  void check_values(const std::vector<Value>& values, const Fields& fields, const std::string& what) const {
    require(values.size() == fields.size(), "values for " + std::to_string(values.size()) + " " + what +
                                                "s; expected " + std::to_string(fields.size()));
    for (std::size_t i = 0; i < fields.size(); ++i) {
      require(values[i] == no_value || has(values[i], {Rows::vertices(), fields[i].width}),
              what + " '" + fields[i].name + "' does not fit its value");
    }
  }

  /// Counts elements of values.
  void count(const Node& node) {
    if (node.of_vertices()) {
      const Index width = std::clamp<Index>(node.type.width, 0, most_elements + 1);
      elements_ += width;
      require(width <= most_elements && elements_ <= most_elements,
              "values of more than " + std::to_string(most_elements) + " elements");
      return;
    }
    if (node.code == Code::given) return;
    const Index rows = node.type.rows.number();
    require(rows <= INT32_MAX && node.type.width <= INT32_MAX, "a value of parameters alone is too large");
    if (node.code != Code::parameter) {
      constants_ = std::min(constants_, INT64_MAX / 2) + rows * std::max<Index>(node.type.width, 1);
    } else if (counted_.insert(node.number).second) {
      of_parameters_ += std::min(rows * node.type.width, Index{1} << 40);
    }
  }

  Type type_of(Node& node) const {
    switch (node.code) {
      case Code::parameter:
        require(node.number < parameters_.size(), "an unknown parameter");
        return parameters_[node.number].type();
      case Code::pull: {
        require(std::ranges::count(kind_->pulls, node.number) == 1, "an input that its kind does not pull");
        const Field& field = function_.pulls[node.number];
        return {field.rows, field.width};
      }
      case Code::given:
        require(node.number < function_.tensors.size(), "an unknown tensor");
        return {Rows::count(0), function_.tensors[node.number].width};
      case Code::gather: {
        require(node.number < function_.states.size(), "an unknown state");
        const auto children = static_cast<Index>(kind_->child_bits());
        require(0 <= node.child && node.child < children, "a child beyond the arity");
        const bool by_number = node.child < static_cast<Index>(kind_->arity);
        return {by_number ? Rows::vertices() : Rows::edges(), function_.states[node.number].width};
      }
      case Code::fill: {
        const bool fit = node.type.rows == Rows::vertices() || (node.of_edges() && kind_->any_number());
        require(fit && node.type.width >= 0, "a constant that does not fit");
        held_by_float(function_.name + ": constant", node.constant);
        return node.type;
      }
      case Code::apply:
        return applied(node);
      default:
        refuse("a node that tracing does not make");
    }
  }

  Type applied(Node& node) const {
    require(node.op != nullptr && !node.in.empty(), "an operator without operands");
    node.attributes = op::remade(*node.op, node.attributes);
    for (const Value in : node.in) {
      require(0 <= in && at(in) < at_, "an operand that is not computed before its use");
    }
    const IndexField* structure = nullptr;
    for (const std::size_t pull : node.indices) {
      require(std::ranges::count(kind_->index_pulls, pull) == 1, "an input that its kind does not pull");
      const IndexField& field = function_.index_pulls[pull];
      if (field.holds != IndexField::Holds::input) structure = &field;
    }
    const Signature signature = signature_of(function_, kind_->nodes, node);
    const Type type = infer(*node.op, signature);
    if (structure == nullptr || structure->holds_dropout()) check_locality(*node.op, signature, type);
    require(structure == nullptr || reads(node, *structure), "an operator with indices that it does not read");
    const bool given = std::ranges::any_of(node.in, [&](Value in) { return kind_->nodes[at(in)].code == Code::given; });
    require(!given || (structure != nullptr && structure->holds == IndexField::Holds::row), "a use of a whole tensor");
    return type;
  }

  /// Whether tracing could apply the operator to these indices and operands.
  bool reads(const Node& node, const IndexField& field) const {
    using Holds = IndexField::Holds;
    const auto all = [&](Rows rows) {
      return std::ranges::all_of(node.in, [&](Value in) { return kind_->nodes[at(in)].type.rows == rows; });
    };
    const Node& first = kind_->nodes[at(node.in[0])];
    switch (field.holds) {
      case Holds::edges:
        return (node.is(op::segment_sum) || node.is(op::segment_max) || node.is(op::segment_argmax)) &&
               all(Rows::edges());
      case Holds::consumer:
        return node.is(op::gather_rows) && all(Rows::vertices());
      case Holds::sibling:
        return node.is(op::gather_where) && all(Rows::vertices());
      case Holds::row:
        return node.is(op::gather_rows) && first.code == Code::given && first.number == field.tensor;
      default:
        return field.holds_dropout() && node.is(op::dropout) && all(Rows::vertices());
    }
  }

  Function& function_;
  const std::vector<Parameter>& parameters_;
  VertexKind* kind_ = nullptr;
  std::size_t at_ = 0, nodes_ = 0;              // the current node; the number of nodes so far
  std::set<std::size_t> counted_;               // parameters of the kind
  Index elements_, constants_, of_parameters_;  // of the kind
};

}  // namespace

Function for_outputs(const Function& whole) {
  Function function = whole;
  const NeededByOutputs needed(function);
  const Numbers states = keep(function.states, needed.states), pulls = keep(function.pulls, needed.pulls),
                index_pulls = keep(function.index_pulls, needed.index_pulls),
                tensors = keep(function.tensors, needed.tensors),
                parameters = keep(function.parameters, needed.parameters);
  for (IndexField& field : function.index_pulls) {
    if (field.holds == IndexField::Holds::row) field.tensor = tensors[field.tensor];
  }
  for (std::size_t k = 0; k < function.kinds.size(); ++k) {
    VertexKind& kind = function.kinds[k];
    const Numbers values = keep(kind.nodes, needed.nodes[k]);
    keep(kind.scattered, needed.states);
    const auto renumber = [&](Value& value) {
      if (value != no_value) value = static_cast<Value>(values[at(value)]);
    };
    for (Node& node : kind.nodes) {
      for (Value& in : node.in) renumber(in);
      for (std::size_t& pull : node.indices) pull = index_pulls[pull];
      const Numbers* const of = node.code == Code::gather      ? &states
                                : node.code == Code::pull      ? &pulls
                                : node.code == Code::given     ? &tensors
                                : node.code == Code::parameter ? &parameters
                                                               : nullptr;
      if (of != nullptr) node.number = (*of)[node.number];
    }
    for (std::vector<Value>* const list : {&kind.scattered, &kind.pushes}) std::ranges::for_each(*list, renumber);
    kind.losses.clear();
    keep(kind.pulls, needed.pulls, pulls);
    keep(kind.index_pulls, needed.index_pulls, index_pulls);
  }
  finish(function);
  return function;
}

VertexFunction vertex_function_of(Function function, const std::vector<Parameter>& parameters) {
  function.parameters.clear();
  for (const Parameter& parameter : parameters) function.parameters.push_back(ParameterStore::name_of(parameter));
  Check(function, parameters).run();
  return VertexFunction(std::make_shared<const Function>(std::move(function)));
}

}  // namespace windrow::ir
