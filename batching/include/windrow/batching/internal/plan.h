// Plans: the place of each value of a program, and the steps, segments and phases that compute it.
//
// A plan contains no sizes of minibatches: it serves every minibatch with the same vertex types. A back end lowers it
// for a device: with_kernels() adds kernels, and the device's own back end may add more. Pure data.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <array>
#include <optional>
#include <vector>

#include "windrow/batching/internal/program.h"
#include "windrow/ops/kernel.h"

namespace windrow {

/// When the values of a vertex type are computed, for a group of samples.
enum class Phase : std::uint8_t {
  eager,       ///< once for all levels, first: values that depend on no child
  level,       ///< level by level, upwards: values that depend on children and that consumers depend on
  lazy,        ///< once for all levels: other values, and gradients that depend on nothing but values
  back_eager,  ///< once for all levels: gradients that depend on given gradients of outputs, and on no consumer
  back_level,  ///< level by level, downwards: gradients that depend on consumers and that children depend on
  back_lazy,   ///< once for all levels: gradients that no child depends on
};
inline constexpr std::array phase_names = {"eager", "level", "lazy", "back_eager", "back_level", "back_lazy"};
inline constexpr std::size_t phase_count = phase_names.size();

/// Whether a value of a vertex type has a row for each vertex or for each edge.
enum class Rate : std::uint8_t { vertices, edges };

/// The place of a value: columns of a matrix.
struct Place {
  enum class In : std::uint8_t {
    arena,           ///< matrix `number` of the vertex type
    local,           ///< matrix `number` of those that only one segment uses, so it needs memory only in this segment
    pull,            ///< input `number`
    state,           ///< link `number` of the children, see ChildSlots
    state_gradient,  ///< the gradient of link `number` of the children, see ChildSlots
    tensor,          ///< tensor `number` of the plan, which belongs to no vertex
    nowhere,         ///< zero, and not computed
  } in;
  std::size_t number;
  Index column = 0, width = 0;
  Rate rate = Rate::vertices;
};

/// One operator over some rows, or a move between vertices. The last three of `Does` read values of other vertices in
/// place; `op` sums them: op::gather_dot or op::gather_weighted_sum.
struct Step {
  enum class Does : std::uint8_t {
    kernel,
    fill,
    scatter,
    gather,
    incoming,
    gather_dot,           ///< for each edge: the dot product of the child's state (`part`) and in[0]
    gather_weighted_sum,  ///< the child's state (`part`) times in[0]; for each vertex, the sum of these over its edges
    incoming_products,    ///< the sum of what consumers send as products (TypePlan::products)
  } does;
  ir::Value node;                ///< the node that it computes
  const Operator* op = nullptr;  ///< kernel and the last three: what it computes
  Attributes attributes = {};
  std::vector<Place> in = {};
  std::vector<std::size_t> indices = {};  ///< index pulls
  Place out = {};                         ///< scatter: none
  Write write = Write::overwrite;
  float constant = 0;          ///< fill
  std::size_t state = 0;       ///< of all but kernel and fill
  std::size_t child = 0;       ///< gather_dot, gather_weighted_sum
  Index first_column = 0;      ///< the same: of the state
  Index flops_a_row = 0;       ///< of products
  Rate rate = Rate::vertices;  ///< of its rows; an operand of the other rate is passed as a whole
  bool may_lack = false;       ///< rows may lack one of its indices; they become zero without a call of the kernel
  /// The category of its time; see StepTimes.
  enum class Counts : std::uint8_t { product, arithmetic, move } counts = Counts::move;
  Kernel<float> kernel = {};  ///< of `op` on the device that the plan was lowered for
  /// For a product with a transposed copy of a parameter, on the host: the equivalent product without the copy, for
  /// minibatches that make no copy.
  struct WithoutCopy {
    const Operator* op = nullptr;  ///< null if there is none
    Kernel<float> kernel = {};
    Place factor = {};
  } without_copy = {};
};

/// Steps that run in order over the same rows. If `fused`, all steps run for some rows at a time, since a row depends
/// on no other row of the segment; otherwise each step runs over all rows.
struct Segment {
  bool fused;
  Rate rate;
  std::vector<Step> steps = {};
  Index tile_rows = 0;  ///< if fused: so many rows at a time that their values stay in a cache of the host
};

/// A step that belongs to no vertex, or that sums over all vertices of a type. It is pushed as a separate op.
struct TensorStep {
  Step step;                       ///< into a tensor
  int vertex_type = -1;            ///< the type over whose rows it sums; -1 for none
  Phase after = Phase::back_lazy;  ///< the last phase of that type which writes what it reads; eager if it reads none
};

struct TensorSpec {
  /// given: a caller's tensor, numbered as in ir::Code::given; its row count is known only at run time.
  enum class Is : std::uint8_t { parameter, gradient, derived, given } is;
  std::size_t number;  ///< of the parameter; 0 for derived
  Index rows, width;
  std::string name = {};  ///< of a parameter
};

/// The slots of a vertex type for one link, or for the gradient that it sends along the link: one row for each vertex,
/// or one row for each edge, with the slots of its children side by side. A *link* is a state and the rate of its rows:
/// vertices for children that are gathered by number, edges for the others.
struct ChildSlots {
  Index width = 0;            ///< of a row
  std::vector<Index> column;  ///< of the slot of each child, -1 for no slot; empty if no child has one
  std::size_t region = 0;     ///< index into TypePlan::regions
  bool any() const { return !column.empty(); }
  bool same_shape(const ChildSlots& other) const { return width == other.width && column == other.column; }
};

struct TypePlan {
  std::size_t by_number = 0;  ///< how many children are gathered by number
  std::size_t per_edge = 0;   ///< how many children an edge has; 0 if vertices have no edges
  Rate rate_of_child(std::size_t child) const { return child < by_number ? Rate::vertices : Rate::edges; }
  struct Arena {
    Index width;
    Rate rate;
  };
  std::vector<Arena> arenas;
  std::vector<ChildSlots> states, gradients;  ///< by link
  /// The number of a link.
  std::size_t link(std::size_t state, Rate rate) const {
    return rate == Rate::vertices ? state : states.size() / 2 + state;
  }
  Rate rate_of_link(std::size_t link) const { return link < states.size() / 2 ? Rate::vertices : Rate::edges; }
  /// By state: the place of its own state, which consumers gather (without slots) or read (Plan::in_place); empty if no
  /// consumer does.
  std::vector<Place> stored;
  /// Gradients that it sends to children of its edges: for each edge a factor times a row of the vertex, which belongs
  /// to columns of the state. The producers add them up (Step::Does::incoming_products).
  struct Product {
    std::size_t state, child;
    Index first_column;
    Place factor, row;
    std::size_t consumer;  ///< index pull: for each edge, its vertex
  };
  std::vector<Product> products;
  bool in_place = false;         ///< whether steps read states of children of edges where these were stored
  std::vector<char> takes_over;  ///< by link: whether the gradients overwrite the slots of the states
  /// By link: the arena of their width in which the gradients lie; none if they lie in no arena.
  std::vector<std::optional<std::size_t>> in_arena;
  /// The memory of its vertices in a minibatch: a matrix for each arena, then one for each link with slots, then one
  /// for each link whose gradients neither take over these slots nor lie in an arena.
  struct Region {
    Index stride;
    Rate rate;
  };
  std::vector<Region> regions;
  std::size_t state_regions = 0;  ///< the number of regions for links
  std::size_t first_region = 0;   ///< among those of all types
  std::vector<Index> locals;      ///< the widths of the matrices that only one segment uses
  std::array<std::vector<Segment>, phase_count> phases;
  std::vector<Index> local_offsets;  ///< their offsets in the memory of a tile, in elements
  Index tile_elements = 0;           ///< the most memory that the tiles of one segment take
  Index cost = 0;                    ///< floating point operations of a vertex with one edge in all phases, an estimate
  struct Cost {
    Index segments = 0, steps = 0;       ///< per batch
    Index multiply_flops = 0, work = 0;  ///< floating point operations per row: of products, and in total
  };
  std::array<std::array<Cost, 2>, phase_count> costs = {};         ///< by phase and rate
  std::array<std::vector<std::size_t>, phase_count> tensors = {};  ///< by phase: that its steps read, ascending
  std::vector<Place> losses;
  std::vector<Place> pushes;
  std::vector<char> pulls_values, pulls_indices;  ///< by number: whether anything reads it
};

struct PlanOptions {
  bool training = false;
  bool eager = true, lazy = true, slots = true, sharing = true, fusion = true;  ///< see Optimisations
  bool in_place = true;  ///< see Optimisations; used by the runner, which changes the program
  Index (*row_stride)(Index width) = windrow::row_stride;  ///< of the device
};

struct Plan {
  ir::Program program;
  bool training = false;
  bool lazy = true;                       ///< false: gradients of parameters are summed batch by batch
  bool slots = true;                      ///< false: a vertex gathers its children's states, by Layout's producers
  std::vector<char> in_place = {};        ///< by state: whether steps read it where it was stored
  std::vector<std::size_t> outputs = {};  ///< whose gradients are given
  std::vector<TypePlan> types = {};
  std::size_t regions = 0;               ///< of all types
  std::vector<TensorSpec> tensors = {};  ///< used parameters, gradients, derived and given tensors, in any order
  std::vector<TensorStep> before = {};   ///< compute tensors from parameters alone
  std::vector<TensorStep> after = {};    ///< compute gradients of parameters
  /// Rows of the gradient of a table, from a lookup; see ir::Program::Rows.
  struct Rows {
    ir::Program::Rows::Of of;
    std::size_t number, index_pull;
    int vertex_type;
    Place rows;
  };
  std::vector<Rows> rows = {};
  /// A transposed copy of a parameter that is used only by products with an alternative (Step::without_copy): the types
  /// and phases of these products.
  struct Copy {
    std::size_t tensor;
    struct User {
      std::size_t type;
      Phase phase;
      Rate rate;
    };
    std::vector<User> users;
  };
  std::vector<Copy> copies = {};
};

/// Calls visit(step) for the steps of a vertex type, in order.
template <class Type, class Visit>
void each_step(Type& type, Visit visit) {
  for (auto& segments : type.phases) {
    for (auto& segment : segments) {
      for (auto& step : segment.steps) visit(step);
    }
  }
}

/// An estimate of the floating point operations of a step for each of its rows, and for each edge of its rows.
Index work_of(const Step& step);
Index work_of_edge(const Step& step);

/// Throws MisuseError for an operator that mixes rows.
Plan make_plan(ir::Program program, const PlanOptions& options);
/// The plan with kernels of this table. Throws MisuseError for an operator for which the table has no kernel; this
/// includes op::spread_rows and op::gather_sum, which move values between vertices.
Plan with_kernels(Plan plan, const KernelTable<float>& kernels);
/// The plan without transposed copies of parameters that only products read: these multiply by op::matmul_nt instead.
/// For devices whose products take as long either way.
Plan without_copies(Plan plan, const KernelTable<float>& kernels);
/// The plan with neighbouring segments of a phase and of a rate joined: for back ends that divide segments themselves.
Plan with_long_segments(Plan plan);

/// A readable description.
std::string to_string(const Plan& plan);

}  // namespace windrow
