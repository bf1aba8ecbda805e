// Cells: properties of calls that follow from the body of a cell. A call is a separate run: it has a node for each
// result, and the first node has the operands.
//
// The elements of a list are gathered along edges. Edges lead to vertices of the same flush, and each place in the
// elements reads one state, which two results of one call cannot share. So a place reads in place only results of cells
// in the same flush that have one number: the number of the first result that it is given. All states of a tree are an
// example, whichever of its cells computed them. A list holds copies of all other values, one copy of each value for
// all lists of a cell and a flush. Lists of the graph's own cells hold only copies, which lie side by side for all
// calls that read them.
//
// Operations may have merged results of two numbers into one state. If a list cannot gather its elements for this
// reason, kinds are found again. From then on each place of an operation also reads results of one number only
// (Kinds::begin_again).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lazy/keys.h"
#include "windrow/batching/lazy_cell.h"

namespace windrow {

namespace lazy {

/// Gives a body its operands and indices, and hides the vertex function from it.
class CellInputs {
 public:
  CellInputs(const CellInputs&) = delete;
  CellInputs& operator=(const CellInputs&) = delete;
  virtual Expr operand(Index width) = 0;
  virtual Expr each(Index width) = 0;
  virtual IndexExpr index(Presence presence, Index width) = 0;
  virtual void result(const Expr& value) = 0;
  Vertex& vertex() { return vertex_; }

 protected:
  explicit CellInputs(Vertex& vertex) : vertex_(vertex) {}
  ~CellInputs() = default;
  /// Sets the keys of the masks of dropout() in the body; without keys there is no dropout.
  void set_dropout_keys(const std::optional<IndexExpr>& keys);

 private:
  Vertex& vertex_;
};

/// Cells that the graph makes itself, and the contents of their elements.
enum class OwnCell : std::uint8_t {
  attention,     ///< key, value, and perhaps a mask
  weighted_sum,  ///< value, weight
  end
};

struct Cell {
  struct IndexOperand {
    Index width;
    Presence presence;
    IndexRange range;
    bool optional() const { return presence == Presence::sometimes; }
    bool takes(std::int32_t value) const { return range.contains(value) || (optional() && value == -1); }
  };
  /// The numbers of the keys of the results, which depend on the operands that are missing.
  struct Keys {
    std::uint32_t missing;  ///< a bit for each operand
    std::vector<std::uint32_t> of_results;
  };

  /// Runs the body once. Throws MisuseError if it misuses its argument.
  Cell(std::string called, std::function<void(CellBody&)> computes, const ParameterStores& known, LazyOptions::For use);

  std::string name;
  std::function<void(CellBody&)> body;
  std::vector<Index> operands, each, results;  // widths
  std::vector<IndexOperand> indices;
  std::vector<std::int32_t> parameters;
  std::int64_t flops = 0;  // in products with parameters
  /// Whether each call draws keys of masks, which all dropout() in the body use. The keys follow the indices. False in
  /// inference.
  bool draws_dropout = false;
  static constexpr Index dropout_keys = 5;  // three keys and the seed, as for op::dropout
  std::optional<OwnCell> own = {};
  std::int32_t number = 0;  // among the cells that the program made, from 1 on
  // Until the record forgets its keys:
  std::vector<Keys> keys = {};
  std::vector<std::int32_t> reads = {};  // by place in the elements: the number of the results read in place, or -1
};

/// The key of a result of a call that lacks the operands whose bits are set in `missing`.
Key key_of(const Cell& cell, std::uint32_t missing, std::size_t result);

/// The first result of a call, or with attributes.sizes[0] > 0 a further result of the same call. Only recorded.
extern const Operator result_of_cell;

}  // namespace lazy
}  // namespace windrow
