// Plans: where each value of a program lies, and in which steps, segments and phases it is computed.
//
// A plan knows no sizes: it serves every minibatch of the same types of vertices, on one kind of device. Pure data.
#pragma once

#include <array>
#include <vector>

#include "ir/program.h"
#include "windrow/memory/allocator.h"
#include "windrow/ops/kernel.h"

namespace windrow {

/// When the values of a vertex type are computed, for a group of samples.
enum class Phase : std::uint8_t {
  eager,       ///< once for all levels, first: what depends on no child
  level,       ///< level by level, upwards: what depends on children, and consumers depend on
  lazy,        ///< once for all levels: what no consumer depends on, and its gradients
  back_level,  ///< level by level, downwards: what depends on consumers' gradients, and children depend on
  back_lazy,   ///< once for all levels: what no child depends on
};
inline constexpr std::size_t phase_count = 5;

/// What a row of a value of a vertex type belongs to.
enum class Rate : std::uint8_t { vertices, edges };

/// Where a value lies: columns of a matrix.
struct Place {
  enum class In : std::uint8_t {
    arena,           ///< matrix `number` of the vertex type
    tile,            ///< matrix `number` of scratch, for the rows at hand
    pull,            ///< input `number`
    state,           ///< state `number` of the children, as ChildSlots says
    state_gradient,  ///< the same of the gradient
    tensor,          ///< tensor `number` of the plan, which belongs to no vertex
    nowhere,         ///< zero, and not computed
  } in;
  std::size_t number;
  Index column = 0, width = 0;
  Rate rate = Rate::vertices;
};

/// One kernel over some rows, or one of the moves between vertices.
struct Step {
  enum class Does : std::uint8_t { kernel, fill, scatter, gather, incoming } does;
  ir::Value node;  ///< that it is for
  Kernel<float> kernel = nullptr;
  Attributes attributes = {};
  std::vector<Place> in = {};
  std::vector<std::size_t> indices = {};  ///< index pulls
  Place out = {};                         ///< scatter: none
  Write write = Write::overwrite;
  float constant = 0;          ///< fill
  std::size_t state = 0;       ///< scatter, gather, incoming
  Index flops_a_row = 0;       ///< of products
  Rate rate = Rate::vertices;  ///< what its rows are; an operand of another rate is handed over whole
  bool may_lack = false;       ///< rows that lack one of its indices are zero, and the kernel is not told of them
  /// Of a product with a transposed copy: the same by what was transposed, for minibatches that do without the copy.
  struct Direct {
    Kernel<float> kernel = nullptr;
    Place factor = {};
  } direct = {};
  /// What its time counts as; see StepTimes.
  enum class Counts : std::uint8_t { product, arithmetic, move } counts = Counts::move;
};

/// Steps that run one after the other over the same rows: all rows at once, or tile by tile, so that what one step
/// writes is still in the cache when the next one reads it.
struct Segment {
  bool tiled;
  Rate rate;
  std::vector<Step> steps = {};
  Index tile_rows = 0;
};

/// What belongs to no vertex, or sums over all vertices of a type: pushed as an op of its own.
struct TensorStep {
  Step step;             ///< into a tensor
  int vertex_type = -1;  ///< whose rows it sums over; -1 for none
};

struct TensorSpec {
  /// given: `number` is as ir::Code::given says, and rows are as many as it has.
  enum class Is : std::uint8_t { parameter, gradient, derived, given } is;
  std::size_t number;  ///< of the parameter; 0 for derived
  Index rows, width;
  std::string name = {};  ///< of a parameter
};

/// The slots of a vertex type for one state of its children, or for the gradient that it sends them: one row for each
/// vertex, with the slots of its children side by side, or one row for each edge.
struct ChildSlots {
  Index width = 0;            ///< of a row
  std::vector<Index> column;  ///< of the slot of each child, -1 for no slot; empty if no child has one
  std::size_t region = 0;     ///< that it lies in; see TypePlan::regions
  bool any() const { return !column.empty(); }
  bool same_shape(const ChildSlots& other) const { return width == other.width && column == other.column; }
};

struct TypePlan {
  Rate children = Rate::vertices;  ///< edges: any number of them, each has a row of its own
  struct Arena {
    Index width;
    Rate rate;
  };
  std::vector<Arena> arenas;
  std::vector<ChildSlots> states, gradients;  ///< by state
  std::vector<Place> stored;                  ///< by state, where there are no slots: its own, for consumers to gather
  std::vector<char> takes_over;               ///< by state: whether the gradients overwrite the slots of the states
  /// What its vertices take of a minibatch's memory: a matrix for each arena, then one for each state with slots,
  /// then one for each gradient that does not take over the slots of its state.
  struct Region {
    Index stride;
    Rate rate;
  };
  std::vector<Region> regions;
  std::size_t state_regions = 0;  ///< the number of regions for states
  std::size_t first_region = 0;   ///< among those of all types
  struct Tile {
    Index width;
    Index offset = 0;  ///< elements from the start of scratch
  };
  std::vector<Tile> tiles;
  Index scratch = 0;  ///< elements that the tiles of any one segment take
  std::array<std::vector<Segment>, phase_count> phases;
  struct Cost {
    Index segments = 0, steps = 0;       ///< of a batch
    Index multiply_flops = 0, work = 0;  ///< of a row: floating point operations, of products and in all
  };
  std::array<std::array<Cost, 2>, phase_count> costs = {};         ///< by phase and rate
  Index cost = 0;                                                  ///< of a vertex, in all phases, where it has an edge
  std::array<std::vector<std::size_t>, phase_count> tensors = {};  ///< by phase: that its steps read, ascending
  std::vector<Place> losses;
  std::vector<Place> pushes;
  std::vector<char> pulls_values, pulls_indices;  ///< by number: whether anything reads it
};

struct PlanOptions {
  bool training = false;
  bool eager = true, lazy = true, slots = true, sharing = true, fusion = true;  ///< see Optimisations
};

struct Plan {
  ir::Program program;
  bool training = false;
  bool lazy = true;                       ///< else gradients of parameters are added up batch by batch
  bool slots = true;                      ///< else a vertex gathers its children's states, by Layout's producers
  std::vector<std::size_t> outputs = {};  ///< whose gradients are given
  std::vector<TypePlan> types = {};
  std::size_t regions = 0;               ///< of all types
  std::vector<TensorSpec> tensors = {};  ///< parameters that are used, gradients, and what is derived, in any order
  std::vector<TensorStep> before = {};   ///< made of parameters alone
  std::vector<TensorStep> after = {};    ///< gradients of parameters
  struct Rows {
    ir::Program::Rows::Of of;
    std::size_t number, index_pull;
    int vertex_type;
    Place rows;
  };
  std::vector<Rows> rows = {};
  /// Of a transposed copy that only products use that can do without it: their types and phases.
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

/// Elements, rounded up so that what follows them is aligned.
inline Index aligned(Index elements) {
  return static_cast<Index>(aligned_size(static_cast<std::size_t>(elements) * sizeof(float)) / sizeof(float));
}

/// Throws MisuseError for an operator that mixes rows, or that the table has no kernel for.
Plan make_plan(ir::Program program, const PlanOptions& options, const KernelTable<float>& kernels);

/// For people.
std::string to_string(const Plan& plan);

}  // namespace windrow
