// Epochs: each flush computes one minibatch, called an epoch. Later epochs read rows of earlier ones, and gradients go
// back through all of them.
//
// Programs that read values often have many small flushes. Such an epoch retains only its values. backward() recomputes
// what gradients need, for consecutive epochs of this kind at once, so that they share batches.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "lazy/kinds.h"
#include "lazy/versions.h"
#include "run/origins.h"
#include "windrow/batching/runner.h"

namespace windrow::lazy {

/// The lines of the runs of one flush. Copies what it needs from the nodes, since ops may use it after clear().
class Lines final : public Origins {
 public:
  Lines(const Nodes& nodes, const std::vector<LazyRun>& runs);
  void add_rows(const std::string& tensor, std::vector<std::source_location> rows) { rows_[tensor] = std::move(rows); }

  std::string of(std::int32_t vertex, const Operator* op) const override;
  std::string of_row(const std::string& tensor, Index row) const override;

 private:
  struct Line {
    std::uint32_t key;
    std::source_location from;
  };
  std::vector<const Operator*> ops_;  // by key; null for an input
  std::vector<Line> lines_;           // by node, run after run; one for a call
  std::vector<std::size_t> begin_;    // by run; the number of lines at the end
  std::map<std::string, std::vector<std::source_location>> rows_;
};

/// The epochs of one record since the last clear(). Kinds survive clear().
class Epochs {
 public:
  Epochs(Record& record, const Device& device, std::shared_ptr<ParameterStores> parameters, LazyOptions options);

  void flush(std::source_location from);
  void backward(std::vector<NodeId> losses, std::source_location from);
  void keep_gradient(NodeId input);
  std::vector<float> gradient(NodeId input, std::source_location from) const;
  /// The value of a node; flushes if necessary. Throws OpError.
  std::vector<float> value(NodeId node, std::source_location from);
  void clear();
  /// Forgets all that was learned; see LazyGraph::forget().
  void forget();

  LazyStats stats() const;
  std::string describe() const;

 private:
  /// The row of an output that contains the value of a node; no row if the value is not retained.
  struct OutputRow {
    std::int32_t output = -1, row = -1;
  };
  /// Retained values of one node of a kind: a row for each vertex whose value is retained.
  struct Output {
    std::string name;
    Index width;
    std::vector<std::int32_t> row_of = {};  // by vertex; -1 if its value is not retained
    std::vector<NodeId> nodes = {};         // by row
    std::optional<Tensor> tensor = {};      // set when it is collected, reset when it is released
    /// Blocks of rows of a device's tensor that were copied to the host, see read_device_row(). The tensor is written
    /// only once.
    std::vector<std::vector<float>> on_host = {};
    std::size_t released = 0;  // the first `released` nodes are known to have no handles, and never get new ones
    bool needed = false;       // by the current flush
    bool later = false;        // a later epoch computes with it, so gradients may need it
    bool announced = false;    // its gradient is given to backward()
    std::int32_t rows() const { return static_cast<std::int32_t>(nodes.size()); }
    /// The row of its gradient for vertices without a retained value; it is zero.
    std::int32_t zero() const { return rows(); }
  };
  /// Rows [begin, end) of a given tensor. They hold the values of these nodes: copies from one output of an earlier
  /// epoch, or inputs of which some have a gradient.
  struct Block {
    static constexpr std::size_t of_inputs = static_cast<std::size_t>(-1);
    std::size_t epoch;
    std::vector<NodeId> nodes;
    Index begin, end;
  };
  /// The results of one minibatch. `minibatch` holds the memory that backward passes need; values are copied out of it
  /// before it is dropped.
  struct Computed {
    std::shared_ptr<Runner> runner;
    Minibatch minibatch = Minibatch(nullptr);
    std::shared_ptr<MinibatchEnd> end = nullptr;
    std::map<std::int32_t, Output> outputs = {};           // by column
    NodeId first_retained = 0;                             // the first node with an output row
    std::vector<OutputRow> output_rows = {};               // by node from first_retained to the last one with a row
    std::map<std::string, std::vector<Block>> given = {};  // by name of the tensor
    std::vector<Var> read = {};                            // of outputs of earlier epochs; of the last epoch only
    /// Throws Error if the value was not retained.
    const OutputRow& output_row(NodeId node) const {
      const OutputRow* const found = find_row(node);
      if (found == nullptr) refuse_row();
      return *found;
    }
    /// Null if it was not retained.
    const OutputRow* find_row(NodeId node) const {
      if (node < first_retained || node >= end_retained()) return nullptr;
      const OutputRow& found = output_rows[at(node - first_retained)];
      return found.row < 0 ? nullptr : &found;
    }
    [[noreturn]] static void refuse_row();
    NodeId end_retained() const { return first_retained + static_cast<NodeId>(output_rows.size()); }
  };
  /// Gradients of these nodes from a later epoch, one row for each.
  struct GradientPart {
    std::vector<NodeId> nodes;
    Tensor rows;
  };
  struct Epoch {
    NodeId first;  // of its nodes
    enum class Retains : std::uint8_t { minibatch, values } retains;
    std::shared_ptr<Computed> computed;                        // null when all its values are released
    std::shared_ptr<const Versions::Note> versions = nullptr;  // of its parameters; null for none
    std::shared_ptr<MinibatchEnd> end = nullptr;
    std::vector<GradientPart> gradient = {};
  };
  /// A value that a vertex reads from a given tensor: an input, or a value of an earlier epoch.
  struct Wanted {
    std::int32_t vertex;
    NodeId node;
    const OutputRow* from;  // null for an input
    std::size_t epoch;
  };
  /// Losses in ascending order, and how often each occurs in the sum.
  using Times = std::vector<std::pair<NodeId, float>>;
  static Times times_of(std::vector<NodeId> losses);
  /// The entries of nodes [begin, end).
  static std::span<const Times::value_type> between(const Times& times, NodeId begin, NodeId end);

  // For the current vertices, which are the current runs:
  void find_kinds();
  void find_fewer_kinds();
  void forget_kinds();
  void drop_replaced();
  /// The nodes whose values a computation retains, ascending, and those of them that have a gradient.
  struct ToRetain {
    std::vector<NodeId> values, with_gradient = {};
    enum class Release { nothing, what_nobody_needs } release = Release::nothing;  // of earlier epochs
    bool again = false;  // whether it recomputes several epochs, which can share many batches
  };
  std::shared_ptr<Computed> compute(const ToRetain& retain, std::source_location from);
  /// The graph of vertices [begin, end), which have no edges to others.
  GraphData graph(std::int32_t begin, std::int32_t end) const;
  std::vector<InputGraph> graphs() const;
  std::vector<std::int32_t> cuts() const;
  void assign_output_rows(Computed& computed, const ToRetain& retain);
  std::vector<std::vector<Wanted>> find_given();
  /// Rows of outputs of earlier epochs for the given tensors of an epoch. One upload has the numbers of all rows.
  struct Gathers {
    std::vector<std::int32_t> rows = {};
    struct One {
      Tensor from, to;
      std::size_t begin;  ///< in `rows`
    };
    std::vector<One> all = {};
  };
  Given give(std::int32_t column, std::vector<Wanted> wanted, Computed& computed, Gathers& gathers, Lines& lines,
             std::source_location from);
  void gather(Gathers gathers, std::source_location from) const;
  void replace_runner();
  void make_runner();
  bool retains_minibatch() const;

  std::shared_ptr<const Versions::Note> note_versions(std::source_location from);
  void require_unchanged(const Times& losses, std::source_location from);
  void require_computed(const Times& losses) const;
  std::vector<char> needed_by(const Times& nodes) const;
  void add_epoch(Epoch epoch);
  std::vector<NodeId> named(NodeId first) const;
  std::size_t epoch_of(NodeId node) const;
  static const Tensor& tensor_of(Computed& computed, std::int32_t column, std::source_location from);

  // Values: where they are, when they are released, and which failed.
  static void collect(Computed& computed, std::source_location from);
  bool named_still(Output& output) const;
  void release();
  void forget_empty();
  void forget_failed();
  std::vector<float> read_row(NodeId node, std::source_location from);
  static std::span<const float> read_device_row(Output& output, Index row, std::source_location from);
  void tell_failures();
  bool repair(NodeId node, const OpError& error, std::source_location from);
  bool curable(const OpError& error, std::source_location from);
  std::shared_ptr<Computed> compute_part(const std::vector<NodeId>& kept, Epoch::Retains retains,
                                         std::source_location from);
  void find_failed(const std::vector<NodeId>& nodes, int& probes, std::source_location from);
  std::vector<NodeId> without_failed(const std::vector<NodeId>& kept);

  std::shared_ptr<Computed> compute_again(std::size_t begin, std::size_t end, const Times& losses,
                                          std::source_location from);
  std::vector<GradientPart> take_parts(std::size_t begin, std::size_t end);
  void require_finite(const Computed& computed, std::int32_t column, const std::vector<NodeId>& losses,
                      const Tensor& gradient, std::source_location from) const;
  Tensor gradient_of(Computed& computed, std::int32_t column, const std::vector<GradientPart>& parts,
                     std::source_location from) const;
  void differentiate(Computed& computed, const std::vector<GradientPart>& parts, Runner::Gradients& mode,
                     std::source_location from);
  bool depend_on(const Computed& computed, const std::vector<GradientPart>& parts) const;
  void push_gradients(Computed& computed, const std::vector<GradientPart>& parts, Runner::Gradients& mode,
                      std::source_location from);

  Record& record_;
  const Nodes& nodes_;
  const Device device_;
  const std::shared_ptr<ParameterStores> parameters_;
  const LazyOptions options_;
  Runs runs_;
  Kinds kinds_;
  Versions versions_;
  std::shared_ptr<Runner> runner_;
  std::optional<VertexFunction> function_;
  std::int64_t version_ = -1;  // the version of kinds_ that function_ was made of
  std::vector<Epoch> epochs_;
  std::vector<std::size_t> holding_;                  // epochs that hold values, ascending
  std::map<NodeId, std::exception_ptr> failed_;       // nodes without a value, and their errors
  Times losses_;                                      // differentiated losses
  std::shared_ptr<const Buffer> losses_checked_;      // its variable is poisoned if a loss is not finite
  std::set<NodeId> with_gradient_;                    // inputs
  std::vector<GradientPart> of_inputs_;               // parts of their gradients, among those of others
  std::vector<std::shared_ptr<MinibatchEnd>> again_;  // of recomputed minibatches
  bool differentiated_ = false;
  LazyStats stats_;
  std::vector<std::shared_ptr<Runner>> replaced_;  // since clear()
  RunnerStats earlier_;                            // of runners replaced before that
  // By run:
  std::vector<KindId> kind_of_;
  std::vector<std::int32_t> child_begin_, children_;
};

}  // namespace windrow::lazy
