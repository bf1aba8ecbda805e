// Kinds: the computation of each pattern of runs, as a kind of one vertex function.
//
// A kind's values from outside are given as tensors, or gathered from its children, which are the vertices of other
// runs. A state is a set of nodes of kinds. Nodes belong to the same state if the same outside value of a kind is
// gathered from both. Two nodes of one kind cannot have the same state; a vertex that would require this gets another
// kind.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lazy/runs.h"

namespace windrow::lazy {

using KindId = std::int32_t;

/// A node of a kind; `node` counts from the begin of the run.
struct KindNode {
  KindId kind;
  std::int32_t node;
  friend auto operator<=>(const KindNode&, const KindNode&) = default;
};

/// Column names that kinds share: one for each width and number, such as "index1.0".
class Columns {
 public:
  explicit Columns(const char* name) : name_(name) {}
  struct Column {
    std::string name;
    Index width;
  };
  /// The column of the `number`-th of that width; optional ones are counted separately.
  std::int32_t id(Index width, std::int32_t number, bool optional = false);
  const Column& operator[](std::int32_t id) const { return all_[at(id)]; }
  std::int32_t size() const { return static_cast<std::int32_t>(all_.size()); }
  void clear() { all_.clear(); }

 private:
  const char* name_;
  std::vector<Column> all_;
};

class Kinds {
 public:
  Kinds(const Record& record, const Runs& runs, const ParameterStores& parameters)
      : record_(record), runs_(runs), parameters_(parameters) {}

  struct Outside {
    bool given;
    std::int32_t child;  ///< if gathered
    Index width;
    std::int32_t column;  ///< if given: column of given()
    std::int32_t state = -1;
    std::vector<KindNode> met = {};  ///< nodes that are known to have this state
    bool has_met(const KindNode& producer) const {
      for (const KindNode& node : met) {
        if (node == producer) return true;
      }
      return false;
    }
  };
  struct IndexOperand {
    std::int32_t node, column, at;  ///< `at`: the position of its first number among the indices of the node
  };
  struct Kind {
    std::uint32_t pattern = 0;
    std::int32_t children = 0;
    bool takes_given = false;  ///< whether it has inputs, or values from outside that are given
    std::vector<Outside> outside = {};
    const Cell* cell = nullptr;
    std::size_t list = 0;  ///< where the operands of each element of the cell's list begin in `outside`
    using NodeColumns = std::vector<std::pair<std::int32_t, std::int32_t>>;  // a node, and its column
    NodeColumns inputs = {}, factors = {};
    std::vector<IndexOperand> indices = {};
    std::vector<std::int32_t> state = {};   ///< by node; -1 if no kind gathers it
    std::vector<std::int32_t> output = {};  ///< by node: column in outputs(); -1 for none
    std::int64_t flops = 0;                 ///< in products with parameters
    std::vector<std::int32_t> parameters = {};
  };

  /// The kind of a run. `kinds` contains the kinds of the runs before it. Appends the runs that its values from outside
  /// come from to `children`, each once.
  KindId kind_of(const LazyRun& run, const std::vector<KindId>& kinds, std::vector<std::int32_t>& children);
  /// The additional kinds that were needed because two nodes of a kind cannot have the same state.
  struct Splits {
    std::set<KindId> kinds = {};  ///< the additional kinds of the current vertices
    /// By pattern with two such nodes: the node before which to divide it, after the first of them and at most the
    /// second. Calls of cells have none.
    std::map<std::uint32_t, std::int32_t> between = {};
  };
  /// The splits since the last call of this function.
  Splits take_splits() { return std::exchange(splits_, {}); }
  /// Makes the node an output of its kind.
  std::int32_t output(const KindNode& node);

  const Kind& operator[](KindId kind) const { return kinds_[at(kind)]; }
  std::int32_t size() const { return static_cast<std::int32_t>(kinds_.size()); }
  const Columns& given() const { return given_; }
  const Columns& indices() const { return indices_; }
  const Columns& factors() const { return factors_; }
  const Columns& outputs() const { return outputs_; }

  /// As in Runs; kinds and runs are forgotten together.
  bool remember_too_much() const;
  void forget();
  /// Whether a list could not gather its elements, so that the kinds since take_splits() are wrong. If so, forgets all
  /// kinds. From then on each place of a kind reads results of one number, or no results. So results of two numbers
  /// never share a state, and lists can gather what they read in place.
  bool begin_again();

  /// The number of changes that affect function().
  std::int64_t version() const { return version_; }
  VertexFunction function() const;

 private:
  KindId find_or_add();
  void append_results(std::span<const NodeId> nodes);
  void append_producers(std::span<const NodeId> nodes, const std::vector<KindId>& kinds);
  Kind make(std::span<const std::uint32_t> key);
  std::vector<Outside> outside_of(std::span<const std::uint32_t> key);
  KindNode place_of(NodeId node, const std::vector<KindId>& kinds) const;
  bool meet_all(KindId kind, std::span<const NodeId> values, const std::vector<KindId>& kinds);
  void meet_list(KindId kind, std::span<const NodeId> list, const std::vector<KindId>& kinds);
  bool meets(KindId kind, std::size_t outside, const KindNode& producer);
  bool unite(std::int32_t& a, std::int32_t& b, const Outside& outside, const KindNode& producer);
  void note_split(KindId kind, std::int32_t one, std::int32_t other);
  Index width_of(const Kind& kind, std::int32_t node) const;
  VertexFunction function_of(KindId kind) const;

  const Record& record_;
  const Runs& runs_;
  const ParameterStores& parameters_;
  // By kind: its pattern, and the child of each gathered value but those of lists; after begin_again() also the numbers
  // of the results among these; for kinds split from others also the producers of these.
  Lists keys_;
  std::vector<Kind> kinds_;
  LastUse used_;
  struct State {
    Index width;
    std::vector<KindNode> nodes;  // the nodes that have the state; at most one of each kind
  };
  std::vector<State> states_;
  Columns given_{"given"}, indices_{"index"}, factors_{"factor"}, outputs_{"out"};
  bool by_result_ = false, clashed_ = false;  // see begin_again()
  std::int64_t version_ = 0;
  Splits splits_;
  std::vector<std::uint32_t> scratch_;
};

}  // namespace windrow::lazy
