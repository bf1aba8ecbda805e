#include "windrow/batching/internal/plan.h"

#include <algorithm>
#include <set>

#include "plan/passes.h"
#include "plan/steps.h"
#include "windrow/ops/operators.h"

namespace windrow {
namespace {

using ir::at, ir::Code, ir::Node, ir::Program, ir::Value;

class Planner {
 public:
  Planner(Program program, const PlanOptions& options)
      : plan_{.program = std::move(program),
              .training = options.training,
              .lazy = options.lazy,
              .slots = options.slots},
        phases_(phases_of(plan_.program, options)),
        roots_(plan_.program),
        steps_(plan_.program, roots_, options) {}

  Plan run() {
    if (program().types.size() > UINT16_MAX) {
      throw MisuseError(program().function->name + ": vertices of " + std::to_string(program().types.size()) +
                        " types; expected at most " + std::to_string(UINT16_MAX));
    }
    note_what_is_read_in_place();
    plan_types();
    plan_tensors();
    note_what_is_read_outside();
    place_all();
    for (TypePlan& type : plan_.types) settle_type(type);
    note_stored();
    for (const Node& n : program().nodes) {
      if (n.code == Code::send_product) add_product(n);
    }
    settle_tensors();
    return std::move(plan_);
  }

 private:
  const Program& program() const { return plan_.program; }
  const Node& node(Value value) const { return program().at(value); }

  void note_what_is_read_in_place() {
    plan_.in_place.assign(program().function->states.size(), 0);
    for (const Node& n : program().nodes) {
      if (n.reads_in_place()) plan_.in_place[n.number] = 1;
    }
  }
  /// Whether the node scatters a state that other vertices read where it was computed.
  bool stores(const Node& n) const {
    return n.code == Code::scatter && (!plan_.slots || plan_.in_place[n.number] != 0);
  }

  // --- Types of vertices

  void plan_types() {
    std::vector<std::array<std::vector<Value>, phase_count>> tasks(program().types.size());
    for (std::size_t i = 0; i < program().nodes.size(); ++i) {
      const Node& n = program().nodes[i];
      if (!n.of_vertices()) continue;
      tasks[static_cast<std::size_t>(n.vertex_type)][static_cast<std::size_t>(phases_[i])].push_back(
          static_cast<Value>(i));
    }
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      TypePlan& type = plan_.types.emplace_back();
      const ir::VertexKind& kind = ir::kind_of(*program().function, program().types[t]);
      const std::size_t links = 2 * program().function->states.size();
      type.by_number = kind.arity;
      type.per_edge = kind.per_edge;
      type.states.resize(links);
      type.gradients.resize(links);
      type.takes_over.assign(links, 0);
      type.in_arena.resize(links);
      for (std::size_t p = 0; p < phase_count; ++p) type.phases[p] = steps_.segments(std::move(tasks[t][p]));
    }
  }

  // --- What belongs to no vertex

  void plan_tensors() {
    std::vector<char> after(program().nodes.size(), 0);
    for (std::size_t i = 0; i < program().nodes.size(); ++i) {
      const Node& n = program().nodes[i];
      if (n.of_vertices()) {
        after[i] = 1;
        continue;
      }
      int summed = -1;
      Rate of = Rate::vertices;
      for (Value in : n.in) {
        after[i] |= after[at(in)];
        if (!node(in).of_vertices()) continue;
        summed = node(in).vertex_type;
        of = rate_of(node(in));
      }
      for (Step& step : steps_.of(static_cast<Value>(i))) {
        step.rate = of;
        (after[i] ? plan_.after : plan_.before).push_back({std::move(step), summed});
      }
    }
  }

  // --- Places

  void note_what_is_read_outside() {
    read_outside_.assign(program().nodes.size(), 0);
    const auto note = [&](Value value) {
      if (value != ir::no_value) read_outside_[at(roots_.of(value).root)] = 1;
    };
    for (const auto& losses : program().losses) std::for_each(losses.begin(), losses.end(), note);
    for (const auto& pushes : program().pushes) std::for_each(pushes.begin(), pushes.end(), note);
    for (const auto& rows : program().rows) note(rows.rows);
    for (const auto* list : {&plan_.before, &plan_.after}) {
      for (const TensorStep& tensor_step : *list) {
        for (const Place& place : tensor_step.step.in) read_outside_[place.number] = 1;
      }
    }
    for (const Node& n : program().nodes) {
      if (stores(n) || n.code == Code::send_product) std::for_each(n.in.begin(), n.in.end(), note);
    }
  }

  /// Decides the place of each root.
  void place_all() {
    std::vector<std::set<const Segment*>> touched_by(program().nodes.size());
    for (const TypePlan& type : plan_.types) {
      for (const auto& segments : type.phases) {
        for (const Segment& segment : segments) {
          for (const Step& step : segment.steps) {
            for (const Place& place : step.in) touched_by[place.number].insert(&segment);
            if (step.does != Step::Does::scatter) touched_by[step.out.number].insert(&segment);
          }
        }
      }
    }
    homes_.resize(program().nodes.size());
    for (std::size_t i = 0; i < program().nodes.size(); ++i) {
      if (roots_.of(static_cast<Value>(i)).root != static_cast<Value>(i)) continue;
      const bool local = touched_by[i].size() == 1 && (*touched_by[i].begin())->fused && !read_outside_[i];
      homes_[i] = home_of(static_cast<Value>(i), local);
    }
  }

  Place home_of(Value root, bool local) {
    const Node& n = node(root);
    const Index width = n.type.width;
    if (!n.of_vertices()) return {Place::In::tensor, tensor_of(n), 0, width};
    if (n.code == Code::pull) return {Place::In::pull, n.number, 0, width};
    if (n.code == Code::scatter || n.code == Code::send_product) return {};
    TypePlan& type = plan_.types[static_cast<std::size_t>(n.vertex_type)];
    const std::size_t link = type.link(n.number, rate_of(n));
    if (n.code == Code::gather) {
      add_slots(n, type, type.states[link]);
      return {Place::In::state, link, 0, width};
    }
    if (n.code == Code::send) {
      add_slots(n, type, type.gradients[link]);
      return {Place::In::state_gradient, link, 0, width};
    }
    if (local) {
      type.locals.push_back(width);
      return {Place::In::local, type.locals.size() - 1, 0, width};
    }
    type.arenas.push_back({width, rate_of(n)});
    return {Place::In::arena, type.arenas.size() - 1, 0, width};
  }

  /// The slots of the children that the node gathers from, or sends to, lie side by side.
  void add_slots(const Node& n, const TypePlan& plan, ChildSlots& slots) const {
    const ir::Function& f = *program().function;
    const ir::VertexType type = program().types[static_cast<std::size_t>(n.vertex_type)];
    const ir::VertexKind& kind = ir::kind_of(f, type);
    const std::uint32_t from = ir::children(f, type) & kind.gathered[n.number];
    slots.width = n.type.width;
    Index next = 0;
    for (std::size_t k = 0; k < kind.child_bits(); ++k) {
      const bool has_slot = (from >> k & 1u) != 0 && plan.rate_of_child(k) == rate_of(n);
      slots.column.push_back(has_slot ? next : -1);
      if (has_slot) next += f.states[n.number].width;
    }
  }

  std::size_t tensor_of(const Node& n) {
    using Is = TensorSpec::Is;
    const Is is = n.code == Code::parameter  ? Is::parameter
                  : n.code == Code::gradient ? Is::gradient
                  : n.code == Code::given    ? Is::given
                                             : Is::derived;
    plan_.tensors.push_back({is, is == Is::derived ? 0 : n.number, n.type.rows.number(), n.type.width});
    return plan_.tensors.size() - 1;
  }

  void settle(Place& place) const {
    const Place& home = homes_[place.number];
    place.in = home.in;
    place.number = home.number;
  }

  Place settled(Value value) const {
    if (value == ir::no_value) return {Place::In::nowhere, 0};
    Place place = steps_.provisional(value);
    settle(place);
    return place;
  }

  // --- Steps settled

  void settle_step(Step& step) const {
    for (Place& place : step.in) settle(place);
    if (step.does != Step::Does::scatter) settle(step.out);
  }

  void settle_type(TypePlan& type) {
    const auto t = static_cast<std::size_t>(&type - plan_.types.data());
    Writes writes(program());
    each_step(type, [&](const Step& step) { writes.announce(step); });
    writes.all_announced();
    type.pulls_values.assign(program().function->pulls.size(), 0);
    type.pulls_indices.assign(program().function->index_pulls.size(), 0);
    for (auto& segments : type.phases) {
      for (Segment& segment : segments) {
        std::vector<Step> steps;
        for (Step& step : segment.steps) {
          for (Step& one : writes.decide(std::move(step))) steps.push_back(std::move(one));
        }
        segment.steps = std::move(steps);
        for (Step& step : segment.steps) settle_step(step);
        note_pulls(type, segment.steps);
      }
    }
    for (Value loss : program().losses[t]) type.losses.push_back(settled(loss));
    for (Value push : program().pushes[t]) type.pushes.push_back(settled(push));
    for (const Place& place : type.losses) note_pull(type, place);
    for (const Place& place : type.pushes) note_pull(type, place);
  }

  /// Without slots, a state stays where it was computed. So does a state that is read in place.
  void note_stored() {
    const bool any = !plan_.slots || std::ranges::find(plan_.in_place, 1) != plan_.in_place.end();
    if (!any) return;
    for (TypePlan& type : plan_.types) type.stored.assign(program().function->states.size(), {Place::In::nowhere, 0});
    for (const Node& n : program().nodes) {
      TypePlan& type = plan_.types[static_cast<std::size_t>(std::max(n.vertex_type, 0))];
      if (n.reads_in_place()) type.in_place = true;
      if (!stores(n)) continue;
      type.stored[n.number] = settled(n.in[0]);
      note_pull(type, type.stored[n.number]);
    }
  }

  void add_product(const Node& n) {
    TypePlan& type = plan_.types[static_cast<std::size_t>(n.vertex_type)];
    const auto& pulls = program().function->index_pulls;  // tracing added the consumers of edges
    const auto consumer = std::ranges::find(pulls, ir::IndexField::Holds::consumer, &ir::IndexField::holds);
    type.products.push_back({n.number, static_cast<std::size_t>(n.child), n.at[0], settled(n.in[0]), settled(n.in[1]),
                             static_cast<std::size_t>(consumer - pulls.begin())});
    type.pulls_indices[type.products.back().consumer] = 1;
    note_pull(type, type.products.back().factor);
    note_pull(type, type.products.back().row);
  }

  static void note_pull(TypePlan& type, const Place& place) {
    if (place.in == Place::In::pull) type.pulls_values[place.number] = 1;
  }
  static void note_pulls(TypePlan& type, const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      for (const Place& place : step.in) note_pull(type, place);
      for (std::size_t pull : step.indices) type.pulls_indices[pull] = 1;
    }
  }

  void settle_tensors() {
    Writes writes(program());
    for (const auto* list : {&plan_.before, &plan_.after}) {
      for (const TensorStep& one : *list) writes.announce(one.step);
    }
    writes.all_announced();
    for (auto* list : {&plan_.before, &plan_.after}) {
      std::vector<TensorStep> settled_steps;
      for (TensorStep& one : *list) {
        for (Step& step : writes.decide(std::move(one.step))) {
          settle_step(step);
          const int vertex_type = step.does == Step::Does::kernel ? one.vertex_type : -1;
          if (vertex_type >= 0) note_pulls(plan_.types[static_cast<std::size_t>(vertex_type)], {step});
          settled_steps.push_back({std::move(step), vertex_type});
        }
      }
      *list = std::move(settled_steps);
    }
    for (const auto& rows : program().rows) {
      const int t = node(rows.rows).vertex_type;
      plan_.rows.push_back({rows.of, rows.number, rows.index_pull, t, settled(rows.rows)});
      plan_.types[static_cast<std::size_t>(t)].pulls_indices[rows.index_pull] = 1;
    }
  }

  Plan plan_;
  std::vector<Phase> phases_;
  Roots roots_;
  Steps steps_;
  std::vector<char> read_outside_;  // by root
  std::vector<Place> homes_;        // by root
};

/// Called when the place of each value is decided.
void find_regions(Plan& plan, const PlanOptions& options) {
  for (TypePlan& type : plan.types) {
    const auto add = [&](Index width, Rate rate) {
      type.regions.push_back({options.row_stride(width), rate});
      return type.regions.size() - 1;
    };
    for (const TypePlan::Arena& arena : type.arenas) add(arena.width, arena.rate);
    for (std::size_t link = 0; link < type.states.size(); ++link) {
      ChildSlots& state = type.states[link];
      if (!state.any()) continue;
      state.region = add(state.width, type.rate_of_link(link));
      ++type.state_regions;
    }
    for (std::size_t link = 0; link < type.gradients.size(); ++link) {
      ChildSlots& gradient = type.gradients[link];
      if (!gradient.any()) continue;
      if (type.takes_over[link] != 0) {
        gradient.region = type.states[link].region;
      } else {
        gradient.region = type.in_arena[link] ? *type.in_arena[link] : add(gradient.width, type.rate_of_link(link));
      }
    }
    type.first_region = plan.regions;
    plan.regions += type.regions.size();
  }
}

}  // namespace

Index work_of(const Step& step) {
  constexpr Index flops_of_an_element = 20;  // of the result, in addition to products
  const Index dot = step.does == Step::Does::gather_dot ? 2 * step.in[0].width : 0;
  return dot + step.flops_a_row + flops_of_an_element * std::max<Index>(step.out.width, 1);
}

Index work_of_edge(const Step& step) {
  const bool sum = step.does == Step::Does::gather_weighted_sum && step.rate == Rate::vertices;
  return sum ? 2 * step.out.width : 0;
}

Plan make_plan(Program program, const PlanOptions& options) {
  Plan plan = Planner(std::move(program), options).run();
  if (options.sharing) share_memory(plan);
  find_regions(plan, options);
  finish(plan);
  return plan;
}

Plan with_kernels(Plan plan, const KernelTable<float>& kernels) {
  const auto add = [&](Step& step) {
    if (step.op != nullptr) step.kernel = kernels.find(*step.op);
  };
  for (TypePlan& type : plan.types) each_step(type, add);
  for (auto* steps : {&plan.before, &plan.after}) {
    for (TensorStep& step : *steps) add(step.step);
  }
  for (const Operator* op : {&op::spread_rows, &op::gather_sum}) kernels.find(*op);
  return plan;
}

Plan with_long_segments(Plan plan) {
  for (TypePlan& type : plan.types) {
    for (auto& segments : type.phases) {
      std::vector<Segment> joined;
      for (Segment& segment : segments) {
        if (joined.empty() || joined.back().rate != segment.rate) {
          joined.push_back(std::move(segment));
          continue;
        }
        joined.back().fused = false;
        std::ranges::move(segment.steps, std::back_inserter(joined.back().steps));
      }
      segments = std::move(joined);
    }
  }
  return plan;
}

}  // namespace windrow
