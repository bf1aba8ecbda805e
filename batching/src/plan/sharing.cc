#include <algorithm>
#include <limits>

#include "plan/passes.h"

namespace windrow {
namespace {

/// Narrower values share only with values of the same width: their rows are stored without gaps, so kernels process
/// them as one long row.
constexpr Index narrow = 64;
/// A value may begin only at multiples of this column in the matrix of another value: a cache line.
constexpr Index line = 16;

/// The number of a step in the order of execution.
using Moment = std::int64_t;
constexpr Moment never = -1, forever = std::numeric_limits<Moment>::max();

/// A period in which some columns are in use, from the first to the last moment, both included.
struct Stay {
  Index column, width;
  Moment begin, end;

  bool meets(const Stay& other, Index shift) const {
    return begin <= other.end && other.begin <= end && column + shift < other.column + other.width &&
           other.column < column + shift + width;
  }
};

/// A value, or a group of values in which later values take over the columns of earlier ones.
struct Tenant {
  Index width;
  Rate rate;
  std::size_t host;  // the tenant in whose columns it lies; usually itself
  Index column = 0;  // within the host
  std::vector<Stay> stays = {};
  Moment end = never;
};

/// A matrix and the periods in which its columns are in use.
struct Shared {
  TypePlan::Arena arena;
  std::vector<Stay> stays = {};

  bool fits(const Tenant& tenant, Index column) const {
    if (column + tenant.width > arena.width) return false;
    return std::none_of(tenant.stays.begin(), tenant.stays.end(), [&](const Stay& one) {
      return std::any_of(stays.begin(), stays.end(), [&](const Stay& other) { return one.meets(other, column); });
    });
  }

  /// The first column where the tenant fits; -1 for none.
  Index room_for(const Tenant& tenant) const {
    if (arena.rate != tenant.rate) return -1;
    if (tenant.width < narrow || arena.width < narrow) {
      return arena.width == tenant.width && fits(tenant, 0) ? 0 : -1;
    }
    std::vector<Index> columns = {0};
    for (const Stay& stay : stays) columns.push_back((stay.column + stay.width + line - 1) / line * line);
    std::sort(columns.begin(), columns.end());
    const auto found = std::find_if(columns.begin(), columns.end(), [&](Index column) { return fits(tenant, column); });
    return found == columns.end() ? -1 : *found;
  }
};

/// Shares the memory of one vertex type.
class Sharing {
 public:
  explicit Sharing(TypePlan& type) : type_(type), reads_(type.states.size()), writes_(type.states.size()) {
    for (const TypePlan::Arena& arena : type.arenas) tenants_.push_back({arena.width, arena.rate, tenants_.size()});
    note_steps();
  }

  void hold(const Place& place) {
    if (place.in == Place::In::arena) tenants_[place.number].end = forever;
    if (place.in == Place::In::state) reads_[place.number].push_back({place.column, place.width, 0, forever});
  }

  /// For a place that other vertices read. They read it at unknown moments, but before any gradient is computed.
  void hold_through_forward(const Place& place) {
    if (place.in == Place::In::arena) {
      Moment& end = tenants_[place.number].end;
      end = std::max(end, end_of_forward_);
    }
    if (place.in == Place::In::state) reads_[place.number].push_back({place.column, place.width, 0, end_of_forward_});
  }

  void run(const ir::Program& program) {
    for (Tenant& tenant : tenants_) settle_stays(tenant);
    each_step([&](const Step& step, Moment now) { take_over(program, step, now); });
    for (std::size_t s = 0; s < type_.states.size(); ++s) type_.takes_over[s] = may_take_over(s);
    assign();
  }

  void settle(Place& place) const {
    if (place.in != Place::In::arena) return;
    place.column += places_[place.number].column;
    place.number = places_[place.number].arena;
  }

 private:
  template <class Visit>
  void each_step(Visit visit) {
    Moment now = 0;
    for (std::size_t p = 0; p < phase_count; ++p) {
      for (Segment& segment : type_.phases[p]) {
        for (Step& step : segment.steps) visit(step, now++);
      }
      if (static_cast<Phase>(p) == Phase::eager) end_of_eager_ = now++;
      if (static_cast<Phase>(p) == Phase::lazy) end_of_forward_ = now++;
    }
  }

  /// The first step that writes columns overwrites them, so overwriting steps begin stays.
  void note_steps() {
    each_step([&](const Step& step, Moment now) {
      for (const Place& place : step.in) {
        if (place.in == Place::In::arena) tenants_[place.number].end = now;
        if (place.in == Place::In::state) reads_[place.number].push_back({place.column, place.width, 0, now});
      }
      if (step.does == Step::Does::scatter) return;
      if (step.out.in == Place::In::state) reads_[step.out.number].push_back({step.out.column, step.out.width, 0, now});
      if (step.out.in == Place::In::state_gradient) {
        writes_[step.out.number].push_back({step.out.column, step.out.width, now, forever});
      }
      if (step.out.in != Place::In::arena) return;
      Tenant& out = tenants_[step.out.number];
      out.end = now;
      if (step.write == Write::overwrite) out.stays.push_back({step.out.column, step.out.width, now, never});
    });
    // Children write all columns, also those that no step reads, in separate phases before the levels above.
    for (std::size_t s = 0; s < reads_.size(); ++s) reads_[s].push_back({0, type_.states[s].width, 0, end_of_eager_});
  }

  /// Keeps one stay for each part that is written separately. If the parts do not partition the columns, replaces them
  /// by one stay for all columns.
  static void settle_stays(Tenant& tenant) {
    std::vector<Stay>& stays = tenant.stays;
    if (tenant.end == never) return;
    const Moment begin = stays.empty() ? 0 : stays.front().begin;
    std::vector<Stay> sorted = stays;
    std::sort(sorted.begin(), sorted.end(), [](const Stay& a, const Stay& b) { return a.column < b.column; });
    Index covered = 0;
    for (const Stay& stay : sorted) covered = stay.column == covered ? covered + stay.width : -1;
    if (covered != tenant.width) stays = {{0, tenant.width, begin, never}};
    for (Stay& stay : stays) stay.end = tenant.end;
  }

  /// The result of an elementwise step takes over the place of an operand that no later step reads: for example the
  /// gradients of gates take over the places of the gates.
  void take_over(const ir::Program& program, const Step& step, Moment now) {
    if (step.does != Step::Does::kernel || step.write != Write::overwrite || step.out.in != Place::In::arena) return;
    const ir::Node& node = program.at(step.node);
    if (node.op == nullptr || node.op->locality != Locality::elementwise) return;
    for (const Place& place : step.in) {
      if (place.in == Place::In::arena && take_over(step.out, place, now)) return;
    }
  }

  bool take_over(const Place& out, const Place& in, Moment now) {
    Tenant &to = tenants_[out.number], &from = tenants_[in.number];
    const bool alike = in.rate == out.rate && in.width == from.width && out.width == from.width &&
                       (from.width < narrow ? to.width == from.width : out.column % line == 0);
    if (!alike || out.number == in.number || from.end != now || from.host != in.number) return false;
    const bool begins = std::any_of(to.stays.begin(), to.stays.end(), [&](const Stay& stay) {
      return stay.column == out.column && stay.width == out.width && stay.begin == now;
    });
    if (!begins) return false;
    from.host = out.number;
    from.column = out.column;
    for (Stay stay : from.stays) {
      stay.column += out.column;
      to.stays.push_back(stay);
    }
    return true;
  }

  /// First fit, widest tenants first. Gradients for the children come before all others, since they lie at the
  /// beginning of a matrix of their width. Children read them at unknown moments, so their columns are never reused.
  void assign() {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < tenants_.size(); ++i) {
      if (tenants_[i].host == i && !tenants_[i].stays.empty()) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return tenants_[a].width > tenants_[b].width; });
    places_.resize(tenants_.size());
    std::vector<Shared> all;
    for (std::size_t s = 0; s < type_.states.size(); ++s) {
      const ChildSlots& gradients = type_.gradients[s];
      if (!gradients.any() || type_.takes_over[s] != 0) continue;
      type_.in_arena[s] = all.size();
      all.push_back({{gradients.width, type_.rate_of_link(s)}, writes_[s]});
      if (writes_[s].empty()) all.back().stays.push_back({0, gradients.width, 0, forever});
    }
    for (std::size_t i : order) {
      const Tenant& tenant = tenants_[i];
      Index column = -1;
      std::size_t arena = 0;
      while (arena < all.size() && (column = all[arena].room_for(tenant)) < 0) ++arena;
      if (arena == all.size()) {
        all.push_back({{tenant.width, tenant.rate}});
        column = 0;
      }
      for (Stay stay : tenant.stays) {
        stay.column += column;
        all[arena].stays.push_back(stay);
      }
      places_[i] = {arena, column};
    }
    for (std::size_t i = 0; i < tenants_.size(); ++i) {
      std::size_t host = i;
      Index column = 0;
      for (; tenants_[host].host != host; host = tenants_[host].host) column += tenants_[host].column;
      if (host != i) places_[i] = {places_[host].arena, places_[host].column + column};
    }
    type_.arenas.clear();
    for (const Shared& shared : all) type_.arenas.push_back(shared.arena);
  }

  /// Whether each column of the gradient is first written after the last read of that column of the state.
  bool may_take_over(std::size_t state) const {
    if (!type_.gradients[state].any() || !type_.gradients[state].same_shape(type_.states[state])) return false;
    return std::none_of(reads_[state].begin(), reads_[state].end(), [&](const Stay& read) {
      return std::any_of(writes_[state].begin(), writes_[state].end(),
                         [&](const Stay& write) { return write.meets(read, 0); });
    });
  }

  struct At {
    std::size_t arena = 0;
    Index column = 0;
  };
  TypePlan& type_;
  Moment end_of_eager_ = never;                    // after the last eager step
  Moment end_of_forward_ = never;                  // between the last forward and the first backward step
  std::vector<std::vector<Stay>> reads_, writes_;  // by state: uses of the children's states, writes of gradients
  std::vector<Tenant> tenants_;                    // by arena before sharing
  std::vector<At> places_;                         // by arena before sharing
};

}  // namespace

void share_memory(Plan& plan) {
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    TypePlan& type = plan.types[t];
    std::vector<Place*> outside;
    for (Place& loss : type.losses) outside.push_back(&loss);
    for (Place& push : type.pushes) outside.push_back(&push);
    for (TypePlan::Product& product : type.products) {
      outside.push_back(&product.factor);
      outside.push_back(&product.row);
    }
    for (TensorStep& step : plan.after) {
      if (step.vertex_type != static_cast<int>(t)) continue;
      for (Place& place : step.step.in) outside.push_back(&place);
    }
    for (Plan::Rows& rows : plan.rows) {
      if (rows.vertex_type == static_cast<int>(t)) outside.push_back(&rows.rows);
    }
    Sharing sharing(type);
    for (const Place* place : outside) sharing.hold(*place);
    for (std::size_t s = 0; s < type.stored.size(); ++s) {
      // Gradients read states in place, too.
      if (plan.in_place[s] != 0 && plan.training) {
        sharing.hold(type.stored[s]);
      } else {
        sharing.hold_through_forward(type.stored[s]);
      }
    }
    sharing.run(plan.program);
    for (Place* place : outside) sharing.settle(*place);
    for (Place& place : type.stored) sharing.settle(place);
    each_step(type, [&](Step& step) {
      for (Place& place : step.in) sharing.settle(place);
      if (step.does != Step::Does::scatter) sharing.settle(step.out);
    });
  }
}

}  // namespace windrow
