#include "execute/post_mortem.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <new>

#include "execute/scratch.h"
#include "execute/step_kernels.h"
#include "run/origins.h"

namespace windrow {
namespace {

bool finite(Matrix<const float> x) {
  for (Index r = 0; r < x.rows; ++r) {
    for (Index c = 0; c < x.width; ++c) {
      if (!std::isfinite(x.row(r)[c])) return false;
    }
  }
  return true;
}

/// For each node: whether one of `ends` depends on it. All scattered states count as ends.
std::vector<char> lead_to(const ir::Program& program, const std::vector<ir::Value>& ends) {
  std::vector<char> leads(program.nodes.size(), 0);
  for (ir::Value end : ends) leads[ir::at(end)] = 1;
  for (std::size_t i = program.nodes.size(); i-- > 0;) {
    if (program.nodes[i].code == ir::Code::scatter) leads[i] = 1;
    if (!leads[i]) continue;
    for (ir::Value in : program.nodes[i].in) leads[ir::at(in)] = 1;
  }
  return leads;
}

std::vector<char> lead_to_losses(const ir::Program& program) {
  std::vector<ir::Value> all;
  for (const auto& losses : program.losses) all.insert(all.end(), losses.begin(), losses.end());
  return lead_to(program, all);
}

}  // namespace

std::string PostMortem::culprit(VertexRow loss, std::optional<std::size_t> output) {
  const ir::Program& program = of_.plan_->program;
  const std::vector<char> leads =
      output ? lead_to(program, {program.pushes[loss.type][*output]}) : lead_to_losses(program);
  if (const std::string constant = find_constant(leads); !constant.empty()) return constant;
  const auto involved = below(loss);
  if (const std::string input = find_input(involved); !input.empty()) return input;
  if (const std::string row = find_given(involved); !row.empty()) return row;
  const std::string step = find_step(involved, leads);
  return step.empty() ? "no operator gave such a value" : step;
}

/// Finds a parameter, or a value of parameters alone, that is not finite.
std::string PostMortem::find_constant(const std::vector<char>& leads) const {
  for (std::size_t i = 0; i < of_.tensors_.size(); ++i) {
    const TensorSpec& spec = of_.plan_->tensors[i];
    if (spec.is == TensorSpec::Is::parameter && !finite(of_.tensors_[i].view().read())) {
      return "parameter '" + spec.name + "' is not finite";
    }
  }
  for (const TensorStep& step : of_.plan_->before) {
    if (!of_.needs(step.step.out.number)) continue;
    if (leads[ir::at(step.step.node)] && !finite(of_.tensors_[step.step.out.number].view().read())) {
      return "'" + of_.name_of(step.step) + "' of parameters is not finite";
    }
  }
  return {};
}

/// Runs the forward steps, and checks their results.
std::string PostMortem::find_step(const std::vector<std::vector<char>>& involved, const std::vector<char>& leads) {
  const At memory{.tile = of_.tiles_->of_this_thread()};
  std::string found;
  const auto watch = [&](const Step& step, const At& at) {
    if (!found.empty()) return;
    try {
      of_.run(step, at);
    } catch (const std::exception& error) {
      found = explanation(step, at, error);
      return;
    }
    if (step.does == Step::Does::scatter || !leads[ir::at(step.node)]) return;
    const Matrix<const float> out = of_.place(step.out, at);
    for (Index r = 0; r < out.rows && found.empty(); ++r) {
      const VertexRow vertex = vertex_of(at.type, at.rate, at.rows.begin + r);
      const bool concerned = involved[vertex.type][static_cast<std::size_t>(vertex.row)] != 0;
      if (!concerned || finite({out.row(r), 1, out.width, 0})) continue;
      found = "the first such value on its way is of '" + of_.name_of(step) + "'" + of_.origin_of(vertex, &step);
    }
  };
  const auto watch_rows = [&](const PhaseRows& rows) {
    of_.each_segment(rows, memory, [&](const Segment& segment, const At& at) { of_.each_step(segment, at, watch); });
  };
  const auto watch_all = [&](Phase phase, Index group) {
    for (std::size_t t = 0; t < of_.plan_->types.size(); ++t) {
      watch_rows({phase, t, of_.layout_.begin(t, group), of_.layout_.begin(t, group + 1)});
    }
  };
  for (Index g = 0; g < of_.layout_.groups; ++g) {
    watch_all(Phase::eager, g);
    for (const Layout::BatchRows& batch : of_.layout_.batches[static_cast<std::size_t>(g)]) {
      watch_rows({Phase::level, batch.type, batch.begin, batch.end});
    }
    watch_all(Phase::lazy, g);
  }
  return found;
}

std::string PostMortem::find_input(const std::vector<std::vector<char>>& involved) const {
  const auto& pulls = of_.plan_->program.function->pulls;
  for (std::size_t t = 0; t < involved.size(); ++t) {
    for (std::size_t p = 0; p < pulls.size(); ++p) {
      const auto& column = of_.layout_.types[t].values[p];
      const Rate rate = column.edges ? Rate::edges : Rate::vertices;
      for (Index r = 0; r < (column.width > 0 ? of_.layout_.count(t, rate) : 0); ++r) {
        const VertexRow vertex = vertex_of(t, rate, r);
        if (involved[t][static_cast<std::size_t>(vertex.row)] &&
            !finite({column.row(r), 1, column.width, column.width})) {
          return "its input '" + pulls[p].name + "' at " + of_.name_of(vertex) + " is not finite";
        }
      }
    }
  }
  return {};
}

/// Finds a row of a given tensor that is not finite.
std::string PostMortem::find_given(const std::vector<std::vector<char>>& involved) const {
  const ir::Function& function = *of_.plan_->program.function;
  std::vector<const Tensor*> pulled(function.tensors.size(), nullptr);
  for (std::size_t i = 0; i < of_.tensors_.size(); ++i) {
    const TensorSpec& spec = of_.plan_->tensors[i];
    if (spec.is == TensorSpec::Is::given && spec.number < pulled.size()) pulled[spec.number] = &of_.tensors_[i];
  }
  for (std::size_t t = 0; t < involved.size(); ++t) {
    for (std::size_t p = 0; p < function.index_pulls.size(); ++p) {
      const ir::IndexField& field = function.index_pulls[p];
      const auto& column = of_.layout_.types[t].indices[p];
      if (field.holds != ir::IndexField::Holds::row || column.width == 0 || pulled[field.tensor] == nullptr) continue;
      const Matrix<const float> rows = pulled[field.tensor]->view().read();
      for (Index r = 0; r < of_.layout_.types[t].rows; ++r) {
        const std::int32_t row = *column.row(r);
        const bool concerned = involved[t][static_cast<std::size_t>(r)] != 0 && 0 <= row && row < rows.rows;
        if (!concerned || finite({rows.row(row), 1, rows.width, rows.width})) continue;
        const std::string& name = function.tensors[field.tensor].name;
        if (of_.options_.origins)
          return "its input recorded at " + of_.options_.origins->of_row(name, row) + " is not finite";
        return "its row of '" + name + "' at " + of_.name_of(VertexRow{t, r}) + " is not finite";
      }
    }
  }
  return {};
}

/// The vertex and all its descendants, by type and row.
std::vector<std::vector<char>> PostMortem::below(VertexRow top) const {
  std::map<Slot, VertexRow> producer;
  std::vector<std::vector<char>> reached;
  for (std::size_t t = 0; t < of_.layout_.types.size(); ++t) {
    const TypeRows& type = of_.layout_.types[t];
    reached.emplace_back(static_cast<std::size_t>(type.rows), 0);
    for (Index r = 0; r < type.rows; ++r) producer.insert({of_.layout_.slot(t, r), {t, r}});
    for (const TypeRows::Further& more : type.further) producer.insert({more.slot, {t, more.row}});
  }
  std::vector<VertexRow> open = {top};
  while (!open.empty()) {
    const VertexRow v = open.back();
    open.pop_back();
    char& here = reached[v.type][static_cast<std::size_t>(v.row)];
    if (here) continue;
    here = 1;
    for (const Rate rate : {Rate::vertices, Rate::edges}) {
      if (rate == Rate::edges && of_.plan_->types[v.type].per_edge == 0) continue;
      const auto [first, last] = of_.range(v.type, rate, {v.row, v.row + 1});
      const Slot from{static_cast<std::int32_t>(first), static_cast<std::uint16_t>(v.type)};
      const Slot to{static_cast<std::int32_t>(last), static_cast<std::uint16_t>(v.type)};
      for (auto child = producer.lower_bound(from); child != producer.end() && child->first < to; ++child) {
        const bool of_rate = of_.plan_->types[v.type].rate_of_child(child->first.child) == rate;
        if (child->first.type == v.type && of_rate) open.push_back(child->second);
      }
    }
  }
  return reached;
}

/// The vertex of a row, or the consumer of a row that is an edge.
VertexRow PostMortem::vertex_of(std::size_t type, Rate rate, Index row) const {
  if (rate == Rate::vertices) return {type, row};
  const auto& begin = of_.layout_.types[type].edge_begin;
  return {type, std::upper_bound(begin.begin(), begin.end(), row) - begin.begin() - 1};
}

bool PostMortem::explains(const std::exception& error) const {
  if (dynamic_cast<const MisuseError*>(&error) != nullptr) return true;
  const bool of_no_row = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                         dynamic_cast<const OutOfMemory*>(&error) != nullptr ||
                         dynamic_cast<const Cancelled*>(&error) != nullptr;
  return of_.options_.origins != nullptr && !of_no_row;
}

std::string PostMortem::explanation(const Step& step, const At& at, const std::exception& error) {
  if (!explains(error)) return error.what();
  try {
    explain(step, at, error.what());
  } catch (const Error& explained) {
    return explained.what();
  }
}

void PostMortem::explain(const Step& step, const At& at, const std::string& error) {
  for (Index r = at.rows.begin; r < at.rows.end; ++r) {
    try {
      At row = at;
      row.rows = {r, r + 1};
      of_.run(step, row);
    } catch (const std::exception& alone) {
      throw Error(of_.name() + ": " + of_.name_of(step) + of_.origin_of(vertex_of(at.type, at.rate, r), &step) + ": " +
                  alone.what());
    }
  }
  throw Error(of_.name() + ": " + of_.name_of(step) + ": " + error);
}

}  // namespace windrow
