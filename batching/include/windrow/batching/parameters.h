// Parameters, their gradients, and gradient descent.
//
//   windrow::Parameters parameters(host, 1);                     // the seed of the initial values
//   const windrow::Parameter w = parameters.add_product("w", 8, 1);
//
// Gradients come from a Runner or a LazyGraph. You can also set your own gradients, such as those of a Tape
// (windrow/ops/tape.h):
//
//   tape.watch(parameters.value(w));                             // then apply operators to it, and tape.backward(loss)
//   parameters.begin_minibatch();
//   parameters.add_gradient(w, *tape.gradient(parameters.value(w)));
//   parameters.sgd(0.1);                                         // or Optimiser::step(), or DataParallel::combine()
//
// Contract
//   Steps    sgd() equals PyTorch's SGD with dense gradients. Weight decay is the gradient of an L2 term of the loss.
//            So it applies to every row of every parameter that the loss depends on, including table rows that no
//            lookup used. This takes time proportional to the table; without decay a step changes only rows that were
//            looked up. The gradients of one row, from all lookups, are added up before the row changes, so many small
//            gradients are not lost to rounding.
//   Numbers  The same calls give the same bits with every policy and number of workers.
//   Errors   A step that uses a failed gradient fails, which poisons the parameters that depend on it. By default a
//            loss that is not finite fails its gradients, except those that a device has already finished; see
//            NonFinite.
//   Life     Parameters, runners and lazy graphs may end in any order: the values live until the last of them ends.
//            After the engine is gone they may only be destroyed; members that need the engine throw MisuseError.
//   Threads  One at a time, for a set of parameters with its runners and lazy graphs.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "windrow/batching/expression_operators.h"
#include "windrow/ops/random.h"
#include "windrow/ops/tensor.h"

namespace windrow {

struct Gradient;
struct Initial;
class NextStep;
class Parameter;
class ParameterStore;
struct SkippedSteps;

/// What a step does if a loss or a gradient is not finite.
enum class NonFinite : std::uint8_t {
  /// A loss that is not finite fails its minibatch, whose gradients then fail the step, which poisons the parameters. A
  /// gradient that is not finite is not detected if the loss is finite.
  fail,
  /// Losses and gradients are checked, which takes one more pass over the gradients. If one is not finite, the whole
  /// step is skipped: parameters keep their bits, nothing is poisoned, and Parameters::skipped_steps() reports the
  /// step. Minibatch::loss() returns such a loss as it is. Other failures, such as an index out of range, still poison.
  skip,
};

struct ParametersOptions {
  NonFinite non_finite = NonFinite::fail;
  /// Names the set in errors. Sets that one function uses must have different names; see ParameterSets.
  std::string name = {};
};

/// Owns parameters. The runner or lazy graph that differentiates sets their gradients.
class Parameters {
 public:
  /// Initial values are drawn with this seed, in the order in which parameters are added.
  Parameters(const Device& device, std::uint64_t seed, ParametersOptions options = {});
  /// A replica for another member of a group (data_parallel.h): has the parameters that `of` has at present, with
  /// copies of their values, and draws the same dropout. Vertex functions and handles of `of` also serve the replica,
  /// so both cannot be in one ParameterSets. Parameters that are added later belong to one of both only. Waits for the
  /// values.
  Parameters(const Device& device, const Parameters& of);
  ~Parameters();
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// Adds a parameter of rows x width elements. Throws MisuseError, naming the parameter, for a negative size, invalid
  /// bounds, or a name that is taken.
  Parameter add(const std::string& name, Index rows, Index width, Initial initial);
  /// Adds a parameter whose value is this tensor of the device, and not a copy of it. Throws MisuseError for a name
  /// that is taken.
  Parameter add(const std::string& name, const Tensor& value);

  /// Adds a from x to weight matrix, which maps rows of width `from` to rows of width `to`, with Initial::glorot.
  Parameter add_product(const std::string& name, Index from, Index to);

  /// ParametersOptions::name.
  const std::string& name() const;
  std::size_t size() const;
  /// Parameters are numbered from 0 in the order in which they were added. Throws MisuseError if there is no such
  /// number.
  Parameter operator[](std::size_t number) const;
  /// Throws MisuseError if there is no parameter of that name.
  Parameter find(const std::string& name) const;
  /// The following throw MisuseError for a parameter of another set. The references stay valid as long as the
  /// Parameters object, even if parameters are added.
  const std::string& name(const Parameter& parameter) const;
  const Tensor& value(const Parameter& parameter) const;
  /// The gradient from the last minibatch that was differentiated; valid until the next one is. It has no parts if the
  /// loss does not depend on the parameter, or if no lookup used it. Pushes the ops that add up rows of lookups.
  const Gradient& gradient(const Parameter& parameter) const;
  /// The gradient as one new dense tensor of the parameter's shape; zero where the loss does not depend on the
  /// parameter. Pushes the ops that add it up.
  Tensor dense_gradient(const Parameter& parameter, std::source_location from = std::source_location::current()) const;

  /// The gradient with its parts added up: `all` if there is a dense part; otherwise one part with ascending rows, in
  /// which no row of the table occurs twice. It has no parts if the loss does not depend on the parameter, or if no
  /// lookup used it. Pushes the ops that add it up.
  Gradient summed_gradient(const Parameter& parameter,
                           std::source_location from = std::source_location::current()) const;
  // For code that combines gradients of several minibatches, such as data_parallel.h:

  /// Whether the gradient has a dense part.
  bool has_dense_gradient(const Parameter& parameter) const;
  /// The rows of the table that lookups used, ascending. Known when the minibatch is pushed, so the call does not wait.
  std::vector<std::int32_t> looked_up_rows(const Parameter& parameter) const;
  /// The gradients of these rows as a new tensor, for a gradient without a dense part; zeros for rows that no lookup
  /// used. Pushes the ops that add them up. Throws MisuseError unless `rows` ascend and contain looked_up_rows().
  Tensor gradient_of_rows(const Parameter& parameter, const std::vector<std::int32_t>& rows,
                          std::source_location from = std::source_location::current()) const;
  /// Replaces the gradient until the next minibatch is differentiated: by a dense one, or by those of some rows. Throws
  /// MisuseError for another shape.
  void set_gradient(const Parameter& parameter, Tensor all);
  void set_gradient(const Parameter& parameter, std::vector<std::int32_t> rows, Tensor of_rows,
                    std::source_location from = std::source_location::current());

  // For programs that compute gradients themselves, such as with a Tape (windrow/ops/tape.h):

  /// Begins a minibatch, as a runner's differentiate() does: counts it, and drops the existing gradients unless
  /// keep_gradients() was called. Copies kept dense gradients. Returns the number of the minibatch, from 0.
  std::uint64_t begin_minibatch(std::source_location from = std::source_location::current());
  /// Adds to the gradient of the minibatch. The first gradient is not copied: the program must not change it until the
  /// next begin_minibatch(), but DataParallel::combine() changes it in place. Throws MisuseError for another shape.
  void add_gradient(const Parameter& parameter, const Tensor& all,
                    std::source_location from = std::source_location::current());

  /// With NonFinite::skip, for members of a group, which must skip the same steps: until the next minibatch is
  /// differentiated, each step asks the other members. `agree` pushes ops that replace the element of a 1 x 1 tensor in
  /// the host's memory by the maximum over all members.
  using Agree = std::function<void(const IntTensor& element, std::source_location from)>;
  void agree_on_steps(Agree agree);

  /// Makes the next differentiated minibatch add its gradients to the existing ones instead of replacing them. Pushes
  /// ops that add up the rows of lookups, so that the memory of their minibatches can be freed: call gradient() again
  /// for the result.
  void keep_gradients(std::source_location from = std::source_location::current());

  /// The number of minibatches that were computed for training; dropout masks depend on it. Everything that a lazy
  /// graph computes from clear() to clear() counts as one. A program that continues from a checkpoint must restore it.
  std::uint64_t minibatches() const;
  void set_minibatches(std::uint64_t number);
  /// For members of a group, which train equal parameters on different samples: each draws its own dropout, except for
  /// samples with numbers. DataParallel calls it. Throws MisuseError for a rank out of range.
  void set_member(int rank, int members);
  /// Numbers the samples of the next minibatch that is counted, for members of a group: the number of a sample is its
  /// place among the samples of all members. Then a runner, whose graphs are the samples, draws the same dropout as a
  /// single member that computes all samples; it throws MisuseError for more or fewer graphs. With several sets, the
  /// numbers of the first set are used. A lazy graph's dropout() draws in the order of its calls, and ignores numbers.
  void number_samples(std::vector<std::int32_t> numbers);
  /// A seed for the program's own random draws, by sample. It depends on seed, minibatch and number of the sample; and
  /// on the member, for samples without numbers. `sample`: place in the next minibatch. Throws MisuseError for a sample
  /// beyond the numbers.
  std::uint64_t sample_seed(std::size_t sample) const;

  /// A frozen parameter counts as a constant: from the next minibatch on, no gradient is computed for it, and no step
  /// changes it. Runners and lazy graphs plan again when the set of frozen parameters has changed. For a lazy graph,
  /// call these before the flush that uses the parameter; see lazy.h. Throw MisuseError for a parameter of another set.
  void freeze(const Parameter& parameter);
  void unfreeze(const Parameter& parameter);
  bool frozen(const Parameter& parameter) const;

  const Device& device() const;
  NonFinite non_finite() const;  ///< see ParametersOptions
  /// Counts a step of an optimiser other than sgd(). Pushes the ops that decide whether it is skipped; see NonFinite.
  NextStep next_step(std::source_location from = std::source_location::current());
  /// Pushes one step of gradient descent for each parameter that has a gradient: value -= rate * (gradient + decay *
  /// value). `rate` is the learning rate, `decay` the weight decay. Returns the number of the step, counted from 0.
  /// Throws MisuseError unless both are finite.
  std::uint64_t sgd(double rate, double decay = 0, std::source_location from = std::source_location::current());
  /// The skipped steps among those that have run so far; see NonFinite::skip. Does not wait. After a wait for a
  /// parameter that a step changes, the step has run. May be called from any thread.
  SkippedSteps skipped_steps() const;
  /// Drops all gradients. Lookup gradients keep their minibatch's memory alive until this call or the next
  /// differentiation.
  void forget_gradients();

 private:
  friend class ParameterSets;
  std::shared_ptr<ParameterStore> store_;
};

/// The sets whose parameters a runner or a lazy graph may use: one set, or a list of several. A value.
///
///   windrow::Parameters encoder(host, 1, {.name = "encoder"}), decoder(host, 2, {.name = "decoder"});
///   windrow::Runner runner(host, translator, {encoder, decoder});
///
/// A minibatch sets the gradients of all sets. Steps, optimisers and averages belong to one set: each set can have
/// another optimiser, or none. Each set decides alone whether its step is skipped. Parameters of different sets may
/// have the same name. Dropout draws with the seed and the number of minibatches of the first set; all sets count the
/// minibatch.
class ParameterSets {
 public:
  ParameterSets(Parameters& set);
  /// Throw MisuseError without sets, for a set that is given twice, for two sets of the same name, and for sets that
  /// differ in ParametersOptions::non_finite.
  ParameterSets(std::span<const std::reference_wrapper<Parameters>> sets);
  ParameterSets(std::initializer_list<std::reference_wrapper<Parameters>> sets)
      : ParameterSets(std::span(sets.begin(), sets.size())) {}

 private:
  friend class Runner;
  friend class LazyGraph;
  std::vector<std::shared_ptr<ParameterStore>> sets_;
};

/// The initial value of a parameter. A value.
struct Initial {
  enum class Draw { uniform, normal, orthogonal, identity } draw;
  float a, b;  // bounds; mean and standard deviation; or the factor, and 0

  static Initial zeros() { return constant(0); }
  static Initial constant(float value) { return normal(value, 0); }
  static Initial uniform(float low, float high) { return {Draw::uniform, low, high}; }
  static Initial normal(float mean, float deviation) { return {Draw::normal, mean, deviation}; }
  /// Uniform within +-sqrt(6 / (rows + width)) (Glorot and Bengio 2010).
  static Initial glorot(Index rows, Index width);
  /// For weights before relu: normal with standard deviation sqrt(2 / inputs), or uniform within +-sqrt(6 / inputs) (He
  /// et al. 2015). `inputs` is the number of products that are added up for one element of the result: the rows of a
  /// weight matrix, the width of the filters of a convolution.
  static Initial he_normal(Index inputs);
  static Initial he_uniform(Index inputs);
  /// A random matrix with orthonormal columns, or rows if it is wider than high, times `gain` (Saxe et al. 2014), as
  /// PyTorch's orthogonal_. Waits for the draw, which takes time proportional to the number of elements times the
  /// smaller side.
  static Initial orthogonal(float gain = 1) { return {Draw::orthogonal, gain, 0}; }
  /// `factor` on the diagonal, zeros elsewhere; the matrix may have any shape.
  static Initial identity(float factor = 1) { return {Draw::identity, factor, 0}; }
};

/// For the operators of expression_operators.h. Parameters alone do not have them, since each of the two kinds of
/// expressions computes with parameters in its own way. An operator that fails makes the compiler report this.
struct ParameterTypes {
  struct NoIndices {};
  using Result = Parameter;
  using Value = Parameter;
  using Input = Parameter;
  using Indices = NoIndices;
  template <class Used = void>
  static const Parameter& apply(const Operator&, const Parameter& x, std::initializer_list<Parameter>,
                                std::initializer_list<NoIndices> = {}, const Attributes& = {}) {
    static_assert(
        !std::is_void_v<Used>,
        "an operator of parameters alone: make one of them an expression, by Vertex::parameter(w) in a vertex "
        "function, or by LazyWeight(w) for lazy expressions");
    return x;
  }
  template <class Used = void>
  static const Parameter& elementwise(const Operator& op, const Parameter& x, const Parameter& y) {
    return apply<Used>(op, x, {x, y});
  }
  template <class Used = void>
  static const Parameter& dropout(const Parameter& x, const Dropout&) {
    static_assert(!std::is_void_v<Used>, "dropout of a parameter; expected an expression");
    return x;
  }
  static Index width(const Parameter& x);
};

/// Names one parameter of a Parameters object. A value.
class Parameter : ExpressionOperators<ParameterTypes> {
 public:
  const Type& type() const { return type_; }

 private:
  friend class ParameterStore;
  friend class Operand;
  Parameter(std::uint64_t set, std::size_t number, Type type, std::shared_ptr<const std::string> name)
      : set_(set), number_(number), type_(type), name_(std::move(name)) {}

  std::uint64_t set_;  // which Parameters it belongs to
  std::size_t number_;
  Type type_;
  std::shared_ptr<const std::string> name_;  // for errors, since its set may be gone
};
inline Index ParameterTypes::width(const Parameter& x) { return x.type().width; }
WINDROW_DECLARE_EXPRESSION_OPERATORS(ParameterTypes);

inline Parameter Parameters::add_product(const std::string& name, Index from, Index to) {
  return add(name, from, to, Initial::glorot(from, to));
}

/// A gradient: the sum of its parts.
struct Gradient {
  /// A dense part, of the parameter's shape.
  std::optional<Tensor> all = {};
  /// A sparse part from lookups in a table: row r of `rows` belongs to row of[r] of the parameter. Rows ascend, and
  /// none occurs twice.
  struct Rows {
    IntTensor of;
    Tensor rows;
  };
  std::vector<Rows> rows = {};
};

struct SkippedStep {
  std::uint64_t step;  ///< as returned by sgd(), or by NextStep::number()
  std::string why;     ///< which loss or gradient is not finite and, where known, which value became so first
};
struct SkippedSteps {
  static constexpr std::size_t most_reported = 100;
  std::uint64_t count = 0;
  std::vector<SkippedStep> last;  ///< the last `most_reported` at most, in order
};

struct MinibatchEnd;
struct StepCheck;

/// A step that is about to be pushed, for optimisers. A handle.
class NextStep {
 public:
  std::uint64_t number() const { return number_; }  ///< counted from 0
  /// The accesses of an op that calls skipped().
  std::vector<Access> accesses() const;
  /// Reads of the ends of the minibatches that gradients come from. An op with these accesses fails if one of these
  /// minibatches failed, even if the gradients that it uses were finished before the failure.
  std::vector<Access> ends() const;
  /// Whether the step must change nothing; see NonFinite::skip. Call it inside an op with accesses().
  bool skipped() const;

 private:
  friend class ParameterStore;
  using Sources = std::vector<std::shared_ptr<const MinibatchEnd>>;
  NextStep(std::uint64_t number, std::shared_ptr<const StepCheck> check, Sources sources)
      : number_(number), check_(std::move(check)), sources_(std::move(sources)) {}

  std::uint64_t number_;
  std::shared_ptr<const StepCheck> check_;  // null if no step is skipped
  Sources sources_;
};

}  // namespace windrow
