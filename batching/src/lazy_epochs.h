// Epochs: what one flush computes is a minibatch; later ones take rows of earlier ones, and gradients go back through
// all of them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "lazy_kinds.h"
#include "windrow/batching/runner.h"

namespace windrow::lazy {

/// Of one record, from one clear() to the next; kinds are kept.
class Epochs {
 public:
  Epochs(Record& record, const Device& device, Parameters& parameters, LazyOptions options);

  void flush(std::source_location from);
  void backward(std::span<const NodeId> losses, std::source_location from);
  /// Flushes if it must. Throws OpError.
  std::vector<float> value(NodeId node, std::source_location from);
  void clear();

  LazyStats stats() const;
  std::string describe() const;

 private:
  /// Where a named node's value is: a row of an output.
  struct Place {
    std::int32_t epoch, vertex, output;
  };
  /// Rows of a tensor that an epoch is given, all from one output of an earlier one.
  struct Block {
    std::int32_t epoch, output;
    IntTensor vertices;
    Index begin, end;
  };
  struct GradientPart {
    IntTensor vertices;
    Tensor rows;
  };
  struct Output {
    std::string name;
    Index width;
    std::optional<Tensor> tensor = {};              // once it was asked for
    std::optional<std::vector<float>> values = {};  // the same on the host
    std::vector<GradientPart> gradient = {};        // from later epochs
    std::map<std::int32_t, float> losses = {};      // by vertex: how often it is one
  };
  struct Epoch {
    std::shared_ptr<Runner> runner;
    Minibatch minibatch;
    Index vertices;
    std::map<std::int32_t, Output> outputs;           // by column
    std::map<std::string, std::vector<Block>> given;  // by name of the tensor
  };
  /// A vertex's value for a given column.
  struct Wanted {
    std::int32_t vertex;
    NodeId node;
    Place from;  // of epoch -1 for an input
  };

  void lower();
  /// Vertices [begin, end), which have no edges to others.
  GraphData graph(std::int32_t begin, std::int32_t end) const;
  std::vector<std::int32_t> cuts() const;
  Given give(std::int32_t column, std::vector<Wanted> wanted, std::vector<Block>& blocks, std::source_location from);
  std::vector<std::vector<Wanted>> find_given() const;
  void name_outputs(Epoch& epoch, std::int32_t number);
  const Place& place_of(NodeId node) const;
  const Tensor& tensor_of(const Place& place, std::source_location from);
  void backward_of(Epoch& epoch, Runner::Gradients mode, std::source_location from);

  Record& record_;
  const Device device_;
  Parameters& parameters_;
  const LazyOptions options_;
  Runs runs_;
  Kinds kinds_;
  std::shared_ptr<Runner> runner_;
  std::optional<VertexFunction> function_;
  std::int64_t version_ = -1;  // of kinds_, that function_ is of
  std::vector<Epoch> epochs_;
  std::vector<std::pair<NodeId, Place>> places_;  // ascending
  bool differentiated_ = false;
  LazyStats stats_;
  RunnerStats earlier_;  // of runners that were replaced
  // Of the flush at hand, by run:
  std::vector<KindId> kind_of_;
  std::vector<std::int32_t> child_begin_, children_;
};

}  // namespace windrow::lazy
