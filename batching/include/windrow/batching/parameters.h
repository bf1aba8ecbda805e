// Parameters: what training changes, with their gradients.
//
// Contract
//   Steps    sgd() is PyTorch's SGD with a dense gradient: weight decay is the gradient of an L2 term of the loss, so
//   it
//            applies to every row of every parameter that the loss depends on, also to rows of a table that nothing
//            looked up. That is work in proportion to the table; without decay a step touches only rows that were
//            looked up. Gradients of one row are added up before the row changes, whatever lookup of whatever minibatch
//            they come from; so small ones count, however many they are.
//   Numbers  The same calls give the same bits whatever the policy and the number of workers.
//   Errors   A gradient that failed, by default also one of a loss that is not finite, fails the step: it poisons the
//            parameters that depend on it. See NonFinite for the alternative.
//   Life     Parameters, runners and lazy graphs may end in any order, since what is behind Parameters ends with the
//            last that uses it. After the engine is gone they may be dropped; what needs the engine throws MisuseError.
//   Threads  One at a time, for a set of parameters with its runners and lazy graphs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "windrow/ops/random.h"
#include "windrow/ops/tensor.h"

namespace windrow {

class ParameterSet;

/// What a parameter holds at first. A value.
struct Initial {
  enum class Draw { uniform, normal } draw;
  float a, b;  // bounds, or mean and deviation

  static Initial zeros() { return constant(0); }
  static Initial constant(float value) { return normal(value, 0); }
  static Initial uniform(float low, float high) { return {Draw::uniform, low, high}; }
  static Initial normal(float mean, float deviation) { return {Draw::normal, mean, deviation}; }
  /// Uniform within +-sqrt(6 / (rows + width)) (Glorot and Bengio 2010).
  static Initial glorot(Index rows, Index width);
};

/// Names one parameter of a Parameters. A value.
class Parameter {
 public:
  const Type& type() const { return type_; }

 private:
  friend class ParameterSet;
  friend class Operand;
  Parameter(std::uint64_t set, std::size_t number, Type type) : set_(set), number_(number), type_(type) {}

  std::uint64_t set_;  // which Parameters it belongs to
  std::size_t number_;
  Type type_;
};

/// A gradient: the sum of its parts.
struct Gradient {
  /// Of the parameter's shape, if its gradient reaches all of it.
  std::optional<Tensor> all = {};
  /// Rows to be added to those rows of the parameter's shape that `of` names, as lookups in a table leave them. Several
  /// may belong to one row.
  struct Rows {
    IntTensor of;
    Tensor rows;
  };
  std::vector<Rows> rows = {};
};

/// What a step does if a loss that was differentiated for it, or a gradient, is not finite.
enum class NonFinite : std::uint8_t {
  /// A loss that is not finite fails its minibatch, whose gradients then fail the step, which poisons the parameters. A
  /// gradient that is not finite, of a finite loss, is not noticed.
  fail,
  /// Losses and gradients are checked, in one more pass over the gradients, and the whole step is skipped: parameters
  /// keep their bits, nothing is poisoned, and Parameters::skipped_steps() tells. Minibatch::loss() returns such a loss
  /// as it is. Other failures, such as of an index out of range, poison as ever.
  skip,
};

struct ParametersOptions {
  NonFinite non_finite = NonFinite::fail;
};

struct SkippedStep {
  std::uint64_t step;  ///< as sgd() returned it
  std::string why;     ///< which loss or gradient is not finite, and where that began if known
};
struct SkippedSteps {
  static constexpr std::size_t most_told = 100;
  std::uint64_t count = 0;
  std::vector<SkippedStep> last;  ///< in order; `most_told` at most
};

/// An owner of parameters. The runner that differentiates sets the gradients.
class Parameters {
 public:
  /// Draws initial values by that seed, in the order in which the parameters are added.
  Parameters(const Device& device, std::uint64_t seed, ParametersOptions options = {});
  ~Parameters();
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// Throws MisuseError, naming the parameter, for a negative size, bad bounds or a name that is taken.
  Parameter add(const std::string& name, Index rows, Index width, Initial initial);

  /// The same for what rows of width `from` are multiplied by to give rows of width `to`: Initial::glorot.
  Parameter add_product(const std::string& name, Index from, Index to) {
    return add(name, from, to, Initial::glorot(from, to));
  }

  std::size_t size() const;
  Parameter operator[](std::size_t number) const;
  /// Throws MisuseError if there is none of that name.
  Parameter find(const std::string& name) const;
  /// These throw MisuseError for a parameter of another set. The references stay valid as long as the Parameters do,
  /// whatever is added.
  const std::string& name(const Parameter& parameter) const;
  const Tensor& value(const Parameter& parameter) const;
  /// Of the last minibatch that was differentiated, until the next one is; without parts for a parameter that its loss
  /// does not depend on. Pushes the ops that number the rows of lookups.
  const Gradient& gradient(const Parameter& parameter) const;
  /// The same as one tensor of the parameter's shape, also of a table that is looked up: zeros in what the loss does
  /// not depend on. Pushes the ops that add it up, into a new tensor.
  Tensor dense_gradient(const Parameter& parameter, std::source_location from = std::source_location::current()) const;

  /// Pushes one step of gradient descent for each parameter that has a gradient: value -= rate * (gradient + decay *
  /// value). Returns the step's number, counted from 0. Throws MisuseError unless both are finite.
  std::uint64_t sgd(double rate, double decay = 0, std::source_location from = std::source_location::current());
  /// The steps that were skipped among those that have run so far: see NonFinite::skip. Waits for nothing; a step has
  /// run when a parameter that it changes may be read. Any thread.
  SkippedSteps skipped_steps() const;
  /// As if no minibatch had been differentiated yet. Rows that lookups left lie in the minibatch's memory, which is
  /// held until then, or until the next one is differentiated.
  void forget_gradients();

 private:
  friend class Runner;
  friend class LazyGraph;
  std::shared_ptr<ParameterSet> set_;
};

}  // namespace windrow
