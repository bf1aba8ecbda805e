// Workloads: what there is to train, each a network with its data, its units of work and its score. Start here.
//
//   windrow::Workload workload = windrow::make_workload("tree-lstm", host, {.data = "sst", .sizes = {{"hidden",
//   128}}}); windrow::Trainer trainer(host, workload, {.rate = workload.kind->rate});
//
// A new one is a header with what it computes, a source that makes its samples, and its name in the list of
// workload.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/batching/runner.h"

namespace windrow {

struct Workload;

/// What is counted of something to learn from, or to be asked about; what it holds, its network knows. A value.
struct Sample {
  std::int64_t units;     ///< trees, sentences or words, as its workload counts them
  std::int64_t vertices;  ///< of its graph; where that is made on the way, how many steps it takes
  std::int64_t labels;    ///< what losses are told as means of
  double flops;           ///< see Workload::formula
};
/// Places in Workload::training, or in Workload::unseen.
using SampleNumbers = std::span<const std::size_t>;

/// What a score comes to. A value.
struct Figure {
  enum class Is { share, number };
  std::string name = {};
  double value;
  Is is = Is::share;
};

/// Adds up how well a network does on unseen samples, minibatch by minibatch.
class Score {
 public:
  virtual ~Score() = default;
  /// May return before the network has answered. Throws OpError if it could not, also of what was added before.
  virtual void add(SampleNumbers unseen) = 0;
  /// Of all that was added. Waits for the answers; throws OpError if there are none.
  virtual std::vector<Figure> figures() = 0;
};

/// One way of computing a network. An owner; must end before the network.
///
/// Errors: as for Runner. Threads: one at a time for each.
class Learner {
 public:
  virtual ~Learner() = default;
  /// Waits for the sum of the losses of a minibatch, before its step. Throws OpError if the minibatch failed.
  using Loss = std::function<double()>;
  /// Pushes a step of gradient descent on that sum, over a minibatch of training samples.
  virtual Loss descend(SampleNumbers training, double rate) = 0;
  /// A new score, which asks this learner and must end before it.
  virtual std::unique_ptr<Score> score() = 0;
  virtual RunnerStats stats() const = 0;
};

/// What computes a workload's samples, and holds them: a vertex function over graphs (graph_network.h), or a program
/// that makes its graphs on the way. An owner.
class Network {
 public:
  virtual ~Network() = default;
  /// Throws MisuseError for options that it cannot be computed by.
  virtual std::unique_ptr<Learner> learner(const RunnerOptions& options) = 0;
  /// The graphs to learn from, in minibatches, as schedules see them. Throws MisuseError where there are none yet.
  virtual std::vector<TypedGraph> typed_graphs(std::size_t minibatch) const = 0;
};

struct WorkloadOptions {
  std::string data = {};   ///< the folder that has the kind's files; generated if empty
  std::uint64_t seed = 1;  ///< of initial values and of generated data
  /// How many are generated to learn from, and an eighth as many others to be asked about; 0 for the kind's own number.
  std::size_t samples = 0;
  std::string cell = {};                    ///< one of the kind's; empty for the first
  std::map<std::string, Index> sizes = {};  ///< by name; those that are missing are the kind's own

  /// Of options that have all of the kind's.
  Index size(const char* name) const { return sizes.at(name); }
};

/// A size of a network or of its data that may be chosen. A value.
struct WorkloadSize {
  std::string name = {}, about = {};
  Index preset;          ///< unless another is given: as published, where it was
  Index most = 1 << 24;  ///< that may be given
};

/// What there is to know about a workload before its data are loaded. A value; the list of them is constant.
struct WorkloadKind {
  std::string name = {};
  std::string about = {};   ///< in a line
  std::string sample = {};  ///< what a graph is, in the singular
  std::string unit = {};    ///< what training is counted in, in the plural
  /// Of a folder with data: the first that is there is learned from, and the one behind it asked about; so parts that
  /// are missing move up. Of a single one, each tenth sample is asked about.
  std::vector<std::string> files = {};
  std::vector<WorkloadSize> sizes = {};
  std::vector<std::string> cells = {};  ///< that may be chosen; empty where there is one
  std::size_t samples;                  ///< generated to learn from
  double rate;                          ///< of descent that suits it, for minibatches of 64
  /// Of options that have all of the kind's; for make_workload().
  Workload (*make)(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options);
};

/// All of them.
std::span<const WorkloadKind> workload_kinds();
/// Throws MisuseError, which lists the names, if there is none of that name.
const WorkloadKind& workload_kind(std::string_view name);

/// An owner; must end before the engine of its device.
struct Workload {
  const WorkloadKind* kind;
  std::string formula = {};  ///< which products `flops` of samples counts, forward; training needs three times that
  std::unique_ptr<Parameters> parameters = {};
  std::unique_ptr<Network> network = nullptr;
  std::vector<Sample> training = {}, unseen = {};
};

/// Throws MisuseError for a name and options that make_workload() throws it for, but reads and generates nothing: so
/// who makes one workload after the other knows of them all before the first. What a kind looks at with its data, such
/// as how few words it can tell apart, is not among that.
void check_workload(std::string_view name, const WorkloadOptions& options);

/// Reads or generates the data, and draws initial values. The same options give the same workload. Throws DataError for
/// data that are not what they should be; MisuseError for an unknown name, a size or a cell that the kind does not
/// have, and a size out of range; OutOfMemory for parameters beyond any memory.
Workload make_workload(std::string_view name, const Device& device, const WorkloadOptions& options = {});

}  // namespace windrow
