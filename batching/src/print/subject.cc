#include <algorithm>

#include "print/print.h"
#include "windrow/ops/operators.h"

namespace windrow::print {
namespace {

using ir::at, ir::Code;

[[noreturn]] void refuse(const Subject& subject, const std::string& what) {
  throw MisuseError(subject.function().name + " cannot be exported: " + what);
}

bool looks_up(const Step& step) {
  const Operator* const those[] = {&op::embedding, &op::gather_rows, &op::embedding_bag};
  return std::ranges::find(those, step.op) != std::end(those);
}

}  // namespace

Subject::Subject(const Plan& of_plan, const Plan& of_lowered, const std::string& named)
    : plan(of_plan), lowered(of_lowered) {
  if (plan.types.empty()) refuse(*this, "no vertex types are known; expected a runner that has computed minibatches");
  find_needed();
  require_printable();
  Identifiers names;
  name = namespace_name(named.empty() ? function().name : named);
  for (std::size_t t = 0; t < plan.types.size(); ++t) types.push_back(names.add(name_of_type(t)));
  name_tensors();
  name_inputs();
}

void Subject::find_needed() {
  const std::vector<ir::Node>& nodes = plan.program.nodes;
  needed_.assign(nodes.size(), 0);
  for (std::size_t n = 0; n < nodes.size(); ++n) needed_[n] = nodes[n].code == Code::scatter;
  for (const auto& pushes : plan.program.pushes) {
    for (const ir::Value push : pushes) {
      if (push != ir::no_value) needed_[at(push)] = 1;
    }
  }
  for (std::size_t n = nodes.size(); n-- > 0;) {  // operands precede their users
    if (needed_[n] == 0) continue;
    for (const ir::Value in : nodes[n].in) needed_[at(in)] = 1;
  }
}

void Subject::require_printable() const {
  if (function().outputs.empty()) refuse(*this, "it pushes no output; expected one");
  if (!function().tensors.empty()) {
    refuse(*this, "it pulls rows of tensor '" + function().tensors.front().name + "', which each call gives it");
  }
  if (!lowered.copies.empty())
    refuse(*this, "it uses transposed parameters, of which a minibatch may do without copies");
  if (std::ranges::any_of(plan.program.general, [](char general) { return general != 0; })) {
    refuse(*this,
           "vertices of rare types are computed as others; expected few vertex types (RunnerOptions::own_types)");
  }
  const auto listed = op::all();
  each_step([&](std::size_t, std::size_t, const Segment&, const Step& step) {
    if (step.does == Step::Does::gather_dot || step.does == Step::Does::gather_weighted_sum) {
      refuse(*this, "attention, which reads states where they were computed, is not printed yet");
    }
    if (step.may_lack) refuse(*this, "edges may lack an index, which is not printed yet");
    if (step.op != nullptr && std::ranges::find(listed, step.op) == listed.end()) {
      refuse(*this, "operator '" + std::string(step.op->name.text()) + "' is not one of Windrow's own");
    }
  });
}

/// Its kind, and which children and inputs it has, if other types of the kind have others.
std::string Subject::name_of_type(std::size_t type) const {
  const ir::VertexType key = plan.program.types[type];
  const ir::Kind& kind = ir::kind_of(function(), key);
  const auto of_kind = std::ranges::count_if(
      plan.program.types, [&](ir::VertexType other) { return ir::kind_of(other) == ir::kind_of(key); });
  if (of_kind == 1) return kind.name;
  std::string text = kind.name;
  const std::uint32_t children = ir::children(function(), key);
  if (children == 0) text += " leaf";
  for (std::size_t k = 0; k < kind.arity; ++k) {
    if (children != 0 && (children >> k & 1u) != 0) text += " " + std::to_string(k);
  }
  if (ir::has_edges(kind, key)) text += " edges";
  for (const std::size_t pull : kind.index_pulls) {
    const ir::IndexField& field = function().index_pulls[pull];
    if (field.has_type_bit() && ir::has_index(function(), key, pull)) text += " " + field.name;
  }
  return text;
}

/// Tensors that some step reads.
void Subject::name_tensors() {
  std::vector<char> read(plan.tensors.size(), 0), whole(plan.tensors.size(), 0);
  const auto note = [&](const Step& step) {
    for (std::size_t k = 0; k < step.in.size(); ++k) {
      if (step.in[k].in != Place::In::tensor) continue;
      read[step.in[k].number] = 1;
      if (k != 0 || !looks_up(step)) whole[step.in[k].number] = 1;
    }
    if (step.op != nullptr) operators.insert(std::string(step.op->name.text()));
  };
  each_step([&](std::size_t, std::size_t, const Segment&, const Step& step) { note(step); });
  for (const TypePlan& type : plan.types) {
    for (const Place& push : type.pushes) {
      if (push.in == Place::In::tensor) read[push.number] = whole[push.number] = 1;
    }
  }
  for (auto one = plan.before.rbegin(); one != plan.before.rend(); ++one) {
    if (read[one->step.out.number] != 0) note(one->step);
  }
  Identifiers names;
  names.add("op");
  for (const std::string& op : operators) names.add("op_" + op);
  for (std::size_t n = 0; n < plan.tensors.size(); ++n) {
    const TensorSpec& spec = plan.tensors[n];
    const bool parameter = spec.is == TensorSpec::Is::parameter;
    tensors.push_back(read[n] == 0 ? "" : names.add(parameter ? spec.name : "derived"));
    tables.push_back(parameter && whole[n] == 0);
  }
}

void Subject::name_inputs() {
  reads_indices.assign(plan.types.size(), std::vector<char>(function().index_pulls.size(), 0));
  reads_values.assign(plan.types.size(), std::vector<char>(function().pulls.size(), 0));
  std::vector<char> needs_index(function().index_pulls.size(), 0), needs_value(function().pulls.size(), 0);
  const auto note_value = [&](std::size_t type, const Place& place) {
    if (place.in == Place::In::pull) reads_values[type][place.number] = needs_value[place.number] = 1;
  };
  each_step([&](std::size_t type, std::size_t, const Segment&, const Step& step) {
    for (const Place& place : step.in) note_value(type, place);
    for (const std::size_t pull : step.indices) reads_indices[type][pull] = needs_index[pull] = 1;
  });
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    for (const Place& push : plan.types[t].pushes) note_value(t, push);
  }
  Identifiers names;
  for (const char* const taken : {"child_begin", "children", "kinds", "arrays"}) names.add(taken);
  for (std::size_t i = 0; i < needs_index.size(); ++i) {
    const ir::IndexField& field = function().index_pulls[i];
    const bool given = field.holds == ir::IndexField::Holds::input && (needs_index[i] != 0 || field.has_type_bit());
    indices.push_back(given ? names.add(field.name) : "");
  }
  for (std::size_t i = 0; i < needs_value.size(); ++i) {
    const ir::Field& field = function().pulls[i];
    values.push_back(field.holds == ir::Field::Holds::input && needs_value[i] != 0 ? names.add(field.name) : "");
  }
  Identifiers of_outputs;
  for (const ir::Field& output : function().outputs) outputs.push_back(of_outputs.add(output.name));
}

}  // namespace windrow::print
