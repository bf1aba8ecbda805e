// Combines functions of one kind each into one function of several kinds.
#include <algorithm>

#include "ir/tracing.h"

namespace windrow::ir {
namespace {

std::string shape_of(const Field& field) { return to_string({field.rows, field.width}); }
std::string shape_of(const IndexField& field) {
  return to_string({field.rows, field.width}) + (field.optional ? ", of some vertices," : "");
}

bool fit(const Field& a, const Field& b) { return a.width == b.width && a.rows == b.rows && a.holds == b.holds; }
bool fit(const IndexField& a, const IndexField& b) {
  return a.width == b.width && a.rows == b.rows && a.holds == b.holds && a.optional == b.optional;
}

class SeveralKinds {
 public:
  explicit SeveralKinds(std::string name) { whole_.name = std::move(name); }

  void add(const Function& part) {
    if (part.kinds.size() != 1) refuse("'" + part.name + "' is of several kinds itself; expected one");
    const auto states = numbers(whole_.states, part.states, "state");
    const auto pulls = numbers(whole_.pulls, part.pulls, "input");
    const auto tensors = numbers(whole_.tensors, part.tensors, "tensor");
    const auto index_pulls = numbers(whole_.index_pulls, part.index_pulls, "input");
    const auto outputs = numbers(whole_.outputs, part.outputs, "output");
    for (std::size_t i = 0; i < index_pulls.size(); ++i) {
      IndexField& field = whole_.index_pulls[index_pulls[i]];
      const std::size_t tensor = part.index_pulls[i].tensor;
      if (field.holds == IndexField::Holds::row) field.tensor = tensors[tensor];
      if (field.holds == IndexField::Holds::gradient_row) field.tensor = outputs[tensor];
    }
    VertexKind kind = part.kinds[0];
    const std::uint32_t first_site = sites_;
    for (Node& node : kind.nodes) {
      if (drops_by_sample(part, node)) {
        const auto site = static_cast<std::uint32_t>(node.attributes.sizes[1]);
        node.attributes = op::dropout_by(node.attributes.values[0], 0, first_site + site);
        sites_ = std::max(sites_, first_site + site + 1);
      }
      if (node.code == Code::parameter) node.number = number_in(whole_.parameters, part.parameters[node.number]);
      if (node.code == Code::gather) node.number = states[node.number];
      if (node.code == Code::pull) node.number = pulls[node.number];
      if (node.code == Code::given) node.number = tensors[node.number];
      for (std::size_t& pull : node.indices) pull = index_pulls[pull];
    }
    for (std::size_t& pull : kind.pulls) pull = pulls[pull];
    for (std::size_t& pull : kind.index_pulls) pull = index_pulls[pull];
    kind.scattered = spread(kind.scattered, states, no_value);
    kind.gathered = spread(kind.gathered, states, std::uint32_t{0});
    kind.pushes = spread(kind.pushes, outputs, no_value);
    whole_.kinds.push_back(std::move(kind));
  }

  Function take() {
    if (whole_.kinds.empty()) refuse("is put together of no functions; expected one or more");
    for (VertexKind& kind : whole_.kinds) {  // later parts may have added states and outputs
      kind.scattered.resize(whole_.states.size(), no_value);
      kind.gathered.resize(whole_.states.size(), 0);
      kind.pushes.resize(whole_.outputs.size(), no_value);
    }
    return std::move(whole_);
  }

 private:
  using Numbers = std::vector<std::size_t>;

  /// Whether all vertices of a sample share a mask: then only the site distinguishes the masks of different kinds.
  static bool drops_by_sample(const Function& part, const Node& node) {
    return node.is(op::dropout) && part.index_pulls[node.indices[0]].holds == IndexField::Holds::dropout_by_sample;
  }
  [[noreturn]] void refuse(const std::string& why) const { throw MisuseError(whole_.name + ": " + why); }

  /// The numbers of a part's fields among the fields of the whole. Adds new fields to the whole.
  template <class Field>
  Numbers numbers(std::vector<Field>& all, const std::vector<Field>& of_part, const char* what) const {
    Numbers result;
    for (const Field& field : of_part) {
      const auto known = std::find_if(all.begin(), all.end(), [&](const Field& f) { return f.name == field.name; });
      result.push_back(static_cast<std::size_t>(known - all.begin()));
      if (known == all.end()) {
        all.push_back(field);
      } else if (!fit(*known, field)) {
        refuse(std::string(what) + " '" + field.name + "' is " + shape_of(*known) + " in one kind and " +
               shape_of(field) + " in another; expected one of a kind");
      }
    }
    return result;
  }

  template <class T>
  static std::vector<T> spread(const std::vector<T>& list, const Numbers& to, T none) {
    std::vector<T> result;
    for (std::size_t i = 0; i < list.size(); ++i) {
      result.resize(std::max(result.size(), to[i] + 1), none);
      result[to[i]] = list[i];
    }
    return result;
  }

  Function whole_;
  std::uint32_t sites_ = 0;  // sites of dropout by samples so far
};

}  // namespace

std::size_t number_in(std::vector<ParameterName>& parameters, const ParameterName& parameter) {
  const auto known = std::find(parameters.begin(), parameters.end(), parameter);
  const auto number = static_cast<std::size_t>(known - parameters.begin());
  if (known == parameters.end()) parameters.push_back(parameter);
  return number;
}

Function with_kinds(std::string name, const std::vector<const Function*>& parts) {
  SeveralKinds whole(std::move(name));
  for (const Function* part : parts) whole.add(*part);
  return whole.take();
}

void check_complete(const Function& function) {
  for (std::size_t s = 0; s < function.states.size(); ++s) {
    const bool scattered = std::any_of(function.kinds.begin(), function.kinds.end(),
                                       [&](const VertexKind& kind) { return kind.scattered[s] != no_value; });
    if (scattered) continue;
    throw MisuseError(function.name + ": state '" + function.states[s].name + "' is never scattered; expected once");
  }
}

}  // namespace windrow::ir
