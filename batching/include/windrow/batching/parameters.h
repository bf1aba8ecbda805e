// Parameters: what training changes, with their gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "windrow/ops/random.h"
#include "windrow/ops/tensor.h"

namespace windrow {

namespace lazy {
class Record;
}

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
  friend class Parameters;
  friend class Operand;
  Parameter(std::uint64_t set, std::size_t number, Type type) : set_(set), number_(number), type_(type) {}

  std::uint64_t set_;  // which Parameters it belongs to
  std::size_t number_;
  Type type_;
};

/// A gradient: the sum of its parts.
struct Gradient {
  /// Of the parameter's shape, if its gradient reaches all of it.
  std::optional<Tensor> all;
  /// Rows to be added to those rows of the parameter's shape that `of` names, as lookups in a table leave them.
  struct Rows {
    IntTensor of;
    Tensor rows;
  };
  std::vector<Rows> rows;
};

/// An owner of parameters; must end before the engine of its device. The runner that differentiates sets the gradients.
///
/// Threads: one at a time.
class Parameters {
 public:
  /// Draws initial values by that seed, in the order in which the parameters are added.
  Parameters(const Device& device, std::uint64_t seed);
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  /// Throws MisuseError, naming the parameter, for a negative size, bad bounds or a name that is taken.
  Parameter add(const std::string& name, Index rows, Index width, Initial initial);

  /// The same for what rows of width `from` are multiplied by to give rows of width `to`: Initial::glorot.
  Parameter add_product(const std::string& name, Index from, Index to) {
    return add(name, from, to, Initial::glorot(from, to));
  }

  std::size_t size() const { return entries_.size(); }
  Parameter operator[](std::size_t number) const;
  /// Throws MisuseError if there is none of that name.
  Parameter find(const std::string& name) const;
  /// These throw MisuseError for a parameter of another set.
  const std::string& name(const Parameter& parameter) const;
  const Tensor& value(const Parameter& parameter) const;
  /// Of the last minibatch that was differentiated; without parts for a parameter that its loss does not depend on.
  const Gradient& gradient(const Parameter& parameter) const;
  /// The same as one tensor of the parameter's shape, also of a table that is looked up: zeros in what the loss does
  /// not depend on. Pushes the ops that add it up, into a new tensor.
  Tensor dense_gradient(const Parameter& parameter, std::source_location from = std::source_location::current()) const;

  /// Pushes one step of gradient descent for each parameter that has a gradient: value -= rate * (gradient + decay *
  /// value). Rows that a lookup left are subtracted without decay. Throws MisuseError unless both are finite.
  void sgd(double rate, double decay = 0, std::source_location from = std::source_location::current());
  /// As if no minibatch had been differentiated yet. Rows that lookups left lie in the minibatch's memory, which is
  /// held until then, or until the next one is differentiated.
  void forget_gradients();

 private:
  friend class Runner;
  friend class lazy::Record;
  struct Entry {
    std::string name;
    Tensor value;
    std::optional<Tensor> dense;  // kept from one minibatch to the next
    Gradient gradient;
  };
  const Entry& entry(const Parameter& parameter) const;
  Tensor drawn(Index rows, Index width, Initial initial);
  /// Throws MisuseError for a parameter of another set.
  std::int32_t number_of(const Parameter& parameter) const;

  Device device_;
  const std::uint64_t id_;
  Generator generator_;
  std::vector<Entry> entries_;
};

}  // namespace windrow
