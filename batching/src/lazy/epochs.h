// Epochs: what one flush computes is a minibatch; later ones take rows of earlier ones, and gradients go back through
// all of them.
//
// Programs that look at values have many small flushes. Such an epoch keeps its values and nothing else; what gradients
// need of it is computed again in the end, for all such epochs that follow each other at once, in the batches that they
// have together.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "lazy/kinds.h"
#include "lazy/lines.h"
#include "lazy/versions.h"
#include "windrow/batching/runner.h"

namespace windrow::lazy {

/// Of one record, from one clear() to the next; kinds are kept.
class Epochs {
 public:
  Epochs(Record& record, const Device& device, std::shared_ptr<ParameterStore> parameters, LazyOptions options);

  void flush(std::source_location from);
  void backward(std::span<const NodeId> losses, std::source_location from);
  /// Flushes if it must. Throws OpError.
  std::vector<float> value(NodeId node, std::source_location from);
  void clear();

  LazyStats stats() const;
  std::string describe() const;

 private:
  /// The row of an output that contains the value of a node.
  struct OutputRow {
    std::int32_t output, row;
  };
  /// What is kept of one node of a kind: a row for each vertex whose value is kept.
  struct Output {
    std::string name;
    Index width;
    std::vector<std::int32_t> row_of = {};  // by vertex; -1 for one whose value is not kept
    std::vector<NodeId> nodes = {};         // by row
    std::optional<Tensor> tensor = {};      // once it was collected, and until it is released
    std::size_t released = 0;  // so many nodes, in this order, are known to be named no more, which is for good
    bool needed = false;       // by the flush at hand
    bool later = false;        // a later epoch computes with it, so that a gradient may need it
    std::int32_t rows() const { return static_cast<std::int32_t>(nodes.size()); }
    /// The row of its gradient that is of no vertex's value that is kept.
    std::int32_t zero() const { return rows(); }
  };
  /// Rows of a given tensor, all from one output of an earlier epoch, where they are the values of these nodes.
  struct Block {
    std::size_t epoch;
    std::vector<NodeId> nodes;
    Index begin, end;
  };
  /// What is computed at once. With the minibatch goes its memory, which backward passes need; values are copied out of
  /// it before.
  struct Computed {
    std::shared_ptr<Runner> runner;
    Minibatch minibatch = Minibatch(nullptr);
    std::shared_ptr<MinibatchEnd> end = nullptr;
    std::map<std::int32_t, Output> outputs = {};                 // by column
    std::set<std::int32_t> announced = {};                       // columns whose gradients are to come
    std::vector<std::pair<NodeId, OutputRow>> output_rows = {};  // ascending
    std::map<std::string, std::vector<Block>> given = {};        // by name of the tensor
    const OutputRow& output_row(NodeId node) const;
  };
  /// The gradient of these nodes from a later epoch, in this order.
  struct GradientPart {
    std::vector<NodeId> nodes;
    Tensor rows;
  };
  struct Epoch {
    NodeId first;  // of its nodes
    enum class Retains : std::uint8_t { minibatch, values } retains;
    std::shared_ptr<Computed> computed;                        // null once all its values were released
    std::shared_ptr<const Versions::Note> versions = nullptr;  // of its parameters; null for none
    std::shared_ptr<MinibatchEnd> end = nullptr;
    std::vector<GradientPart> gradient = {};
  };
  /// A vertex's value for a given column: of an input, or of an earlier epoch.
  struct Wanted {
    std::int32_t vertex;
    NodeId node;
    const OutputRow* from;  // null for an input
    std::size_t epoch;
  };
  using Times = std::map<NodeId, float>;

  // Of the vertices at hand, which are the runs:
  void find_kinds();
  void forget();
  /// The nodes whose values a computation retains, ascending, and those of them that have a gradient.
  struct ToRetain {
    std::vector<NodeId> values, with_gradient = {};
    enum class Release { nothing, what_nobody_needs } release = Release::nothing;  // of earlier epochs
  };
  std::shared_ptr<Computed> compute(const ToRetain& retain, std::source_location from);
  /// Vertices [begin, end), which have no edges to others.
  GraphData graph(std::int32_t begin, std::int32_t end) const;
  std::vector<InputGraph> graphs() const;
  std::vector<std::int32_t> cuts() const;
  void assign_output_rows(Computed& computed, const ToRetain& retain);
  std::vector<std::vector<Wanted>> find_given();
  Given give(std::int32_t column, std::vector<Wanted> wanted, Computed& computed, Lines& lines,
             std::source_location from);
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

  // Values: who has them, until when, and what of them failed.
  static void collect(Computed& computed, std::source_location from);
  bool named_still(Output& output) const;
  void release();
  std::vector<float> read_row(NodeId node, std::source_location from);
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
  const Device device_;
  const std::shared_ptr<ParameterStore> parameters_;
  const LazyOptions options_;
  Runs runs_;
  Kinds kinds_;
  Versions versions_;
  std::shared_ptr<Runner> runner_;
  std::shared_ptr<ScheduleLessons> lessons_;  // of the first runner, handed on
  std::optional<VertexFunction> function_;
  std::int64_t version_ = -1;  // of kinds_, that function_ is of
  std::vector<Epoch> epochs_;
  std::vector<std::size_t> holding_;                  // epochs that hold values, ascending
  std::map<NodeId, std::exception_ptr> failed_;       // nodes that were to be kept, and why they were not
  Times losses_;                                      // that were differentiated
  std::shared_ptr<const Buffer> losses_checked_;      // its variable is poisoned if one of them is not finite
  std::vector<std::shared_ptr<MinibatchEnd>> again_;  // of what was computed a second time
  bool differentiated_ = false;
  LazyStats stats_;
  std::vector<std::shared_ptr<Runner>> replaced_;  // since clear()
  RunnerStats earlier_;                            // of those before
  // By run:
  std::vector<KindId> kind_of_;
  std::vector<std::int32_t> child_begin_, children_;
};

}  // namespace windrow::lazy
