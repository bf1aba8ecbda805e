// The end of a minibatch: its loss, or the operator and the vertex that caused a failure.
#include <algorithm>
#include <cmath>
#include <map>
#include <new>
#include <optional>

#include "host/host_execution.h"
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

/// By node: whether one of `ends` depends on it. All scattered states count.
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

void HostExecution::finish_losses() {
  const auto values_of = [&](std::size_t type, const Place& place) {
    return operand(place, {type, Rate::vertices, {0, layout_.types[type].rows}});
  };
  if (const auto bad = add_up_losses(values_of)) refuse(bad->what + culprit(*bad), options_.keeps_not_finite);
}

void HostExecution::check_losses(LossCheck check, std::source_location from) {
  std::vector<Access> accesses = {read(check.values.var()), mutate(memory())};
  for (Var var : check.poisoned) accesses.push_back(mutate(var));
  if (check.skips) accesses.push_back(mutate(end_->over.var()));
  for (Var var : inputs()) accesses.push_back(read(var));
  device_.engine->push(
      [self = self(), values = check.values.view(), check = std::move(check)] {
        const auto bad = self->find_bad(check, values.read());
        if (bad) self->refuse(bad->what + self->culprit(*bad), check.skips);
      },
      accesses, {.name = "losses", .lane = device_.lane, .pushed_at = from});
}

std::string HostExecution::culprit(const BadLoss& bad) {
  const ir::Program& program = plan_->program;
  const std::vector<char> leads =
      bad.output ? lead_to(program, {program.pushes[bad.vertex.type][*bad.output]}) : lead_to_losses(program);
  return find_culprit(bad.vertex, leads);
}

std::string HostExecution::find_culprit(VertexRow loss, const std::vector<char>& leads) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const TensorSpec& spec = plan_->tensors[i];
    if (spec.is == TensorSpec::Is::parameter && !finite(tensors_[i].view().read())) {
      return "parameter '" + spec.name + "' is not finite";
    }
  }
  for (const TensorStep& step : plan_->before) {
    if (!needs(step.step.out.number)) continue;
    if (leads[ir::at(step.step.node)] && !finite(tensors_[step.step.out.number].view().read())) {
      return "'" + name_of(step.step) + "' of parameters is not finite";
    }
  }
  const auto involved = below(loss);
  if (const std::string input = find_input(involved); !input.empty()) return input;
  if (const std::string row = find_given(involved); !row.empty()) return row;
  // Steps may have overwritten each other's results, so the forward steps run again, and their results are checked. In
  // other memory, since the backward pass may be running.
  Scratch values(device_.memory, static_cast<Index>(memory_->size() / sizeof(float)));
  Scratch scratch(device_.memory, scratch_of(*lowered_, layout_));
  const TileMemory memory{.scratch = scratch.of_this_thread(), .values = values.of_this_thread()};
  clear_missing(memory.values);
  std::string found;
  const auto watch = [&](const Part& part) {
    each_step(part, memory, [&](const HostStep& step, const Tile& tile) {
      if (!found.empty()) return;
      try {
        run_step(step, tile);
      } catch (const std::exception& error) {
        found = explanation(step, tile, error);
        return;
      }
      if (step.does == Step::Does::scatter || !leads[ir::at(step.node)]) return;
      const Matrix<const float> out = place(step.out, tile);
      for (Index r = 0; r < out.rows && found.empty(); ++r) {
        const VertexRow vertex = vertex_of(tile, tile.rows.begin + r);
        const bool concerned = involved[vertex.type][static_cast<std::size_t>(vertex.row)] != 0;
        if (!concerned || finite({out.row(r), 1, out.width, 0})) continue;
        found = "the first such value on its way is of '" + name_of(step) + "'" + origin_of(vertex, &step);
      }
    });
  };
  const auto watch_all = [&](Phase phase, Index group) {
    for (std::size_t t = 0; t < plan_->types.size(); ++t) {
      watch({phase, t, layout_.begin(t, group), layout_.begin(t, group + 1)});
    }
  };
  for (Index g = 0; g < layout_.groups; ++g) {
    watch_all(Phase::eager, g);
    for (const Layout::BatchRows& batch : layout_.batches[static_cast<std::size_t>(g)]) {
      watch({Phase::level, batch.type, batch.begin, batch.end});
    }
    watch_all(Phase::lazy, g);
  }
  return found.empty() ? "no operator gave such a value" : found;
}

std::string HostExecution::find_input(const std::vector<std::vector<char>>& involved) const {
  const auto& pulls = plan_->program.function->pulls;
  for (std::size_t t = 0; t < involved.size(); ++t) {
    for (std::size_t p = 0; p < pulls.size(); ++p) {
      const auto& column = layout_.types[t].values[p];
      const Rate rate = column.edges ? Rate::edges : Rate::vertices;
      for (Index r = 0; r < (column.width > 0 ? layout_.count(t, rate) : 0); ++r) {
        const VertexRow vertex = vertex_of({t, rate, {}}, r);
        if (involved[t][static_cast<std::size_t>(vertex.row)] &&
            !finite({column.row(r), 1, column.width, column.width})) {
          return "its input '" + pulls[p].name + "' at " + name_of(vertex) + " is not finite";
        }
      }
    }
  }
  return {};
}

/// Finds a row of a given tensor that is not finite.
std::string HostExecution::find_given(const std::vector<std::vector<char>>& involved) const {
  const ir::Function& function = *plan_->program.function;
  std::vector<const Tensor*> pulled(function.tensors.size(), nullptr);
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const TensorSpec& spec = plan_->tensors[i];
    if (spec.is == TensorSpec::Is::given && spec.number < pulled.size()) pulled[spec.number] = &tensors_[i];
  }
  for (std::size_t t = 0; t < involved.size(); ++t) {
    for (std::size_t p = 0; p < function.index_pulls.size(); ++p) {
      const ir::IndexField& field = function.index_pulls[p];
      const auto& column = layout_.types[t].indices[p];
      if (field.holds != ir::IndexField::Holds::row || column.width == 0 || pulled[field.tensor] == nullptr) continue;
      const Matrix<const float> rows = pulled[field.tensor]->view().read();
      for (Index r = 0; r < layout_.types[t].rows; ++r) {
        const std::int32_t row = *column.row(r);
        const bool concerned = involved[t][static_cast<std::size_t>(r)] != 0 && 0 <= row && row < rows.rows;
        if (!concerned || finite({rows.row(row), 1, rows.width, rows.width})) continue;
        const std::string& name = function.tensors[field.tensor].name;
        if (options_.origins) return "its input recorded at " + options_.origins->of_row(name, row) + " is not finite";
        return "its row of '" + name + "' at " + name_of(VertexRow{t, r}) + " is not finite";
      }
    }
  }
  return {};
}

/// The vertex and all its descendants, by type and row.
std::vector<std::vector<char>> HostExecution::below(VertexRow top) const {
  std::map<Slot, VertexRow> producer;
  std::vector<std::vector<char>> reached;
  for (std::size_t t = 0; t < layout_.types.size(); ++t) {
    const TypeRows& type = layout_.types[t];
    reached.emplace_back(static_cast<std::size_t>(type.rows), 0);
    for (Index r = 0; r < type.rows; ++r) producer.insert({layout_.slot(t, r), {t, r}});
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
      if (rate == Rate::edges && plan_->types[v.type].per_edge == 0) continue;
      const auto [first, last] = range(v.type, rate, {v.row, v.row + 1});
      const Slot from{static_cast<std::int32_t>(first), static_cast<std::uint16_t>(v.type)};
      const Slot to{static_cast<std::int32_t>(last), static_cast<std::uint16_t>(v.type)};
      for (auto child = producer.lower_bound(from); child != producer.end() && child->first < to; ++child) {
        const bool of_rate = plan_->types[v.type].rate_of_child(child->first.child) == rate;
        if (child->first.type == v.type && of_rate) open.push_back(child->second);
      }
    }
  }
  return reached;
}

VertexRow HostExecution::vertex_of(const Tile& tile, Index row) const {
  if (tile.rate == Rate::vertices) return {tile.type, row};
  const auto& begin = layout_.types[tile.type].edge_begin;
  return {tile.type, std::upper_bound(begin.begin(), begin.end(), row) - begin.begin() - 1};
}

/// Whether an error of a kernel is to be explained by the vertex that caused it. Without origins, only MisuseError is,
/// so that other errors of user-defined kernels reach the caller unchanged.
bool HostExecution::explains(const std::exception& error) const {
  if (dynamic_cast<const MisuseError*>(&error) != nullptr) return true;
  const bool of_no_row = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                         dynamic_cast<const OutOfMemory*>(&error) != nullptr ||
                         dynamic_cast<const Cancelled*>(&error) != nullptr;
  return options_.origins != nullptr && !of_no_row;
}

std::string HostExecution::explanation(const HostStep& step, const Tile& tile, const std::exception& error) {
  if (!explains(error)) return error.what();
  try {
    explain(step, tile, error.what());
  } catch (const Error& explained) {
    return explained.what();
  }
}

/// Runs the step row by row to find the vertex: the row number in the kernel's error is relative to the tile.
void HostExecution::explain(const HostStep& step, const Tile& tile, const std::string& error) {
  for (Index r = tile.rows.begin; r < tile.rows.end; ++r) {
    try {
      Tile row = tile;
      row.rows = {r, r + 1};
      run_step(step, row);
    } catch (const std::exception& alone) {
      throw Error(name() + ": " + name_of(step) + origin_of(vertex_of(tile, r), &step) + ": " + alone.what());
    }
  }
  throw Error(name() + ": " + name_of(step) + ": " + error);
}

}  // namespace windrow
