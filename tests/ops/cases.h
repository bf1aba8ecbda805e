// Random applications of operators, and functions that run them through a kernel.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>

#include "tests/engine/support.h"
#include "tests/seed.h"
#include "windrow/ops/kernel.h"
#include "windrow/ops/operators.h"

namespace windrow::testing {

/// The values of a matrix, row by row, without gaps between rows.
using Values = std::vector<double>;
using Floats = std::vector<float>;

inline std::size_t elements(const Type& type) { return static_cast<std::size_t>(type.rows.number() * type.width); }

inline Type counted(Index rows, Index width) { return {Rows::count(rows), width}; }

enum class Numbers {
  real,   ///< uniform in [-2, 2]
  whole,  ///< -2, -1, 0, 1 or 2, so that ties and zeros occur
};

/// Operands that fit `op`, with about `rows` rows, or fewer if the operator requires it. The values are exact as
/// floats.
Application random_case(const Operator& op, Index rows, std::mt19937& random, Numbers numbers = Numbers::real);

/// For gradients that take the result: what it is. Other results would be no gradients of anything.
void take_result(const Operator& op, Application& c);

/// Attributes that an operator accepts.
inline Attributes some_attributes(const Operator& op) {
  std::mt19937 random;
  return random_case(op, 1, random).signature.attributes;
}

/// Uniform values in [-2, 2], exact as floats.
Values random_values(const Type& type, std::mt19937& random);

/// What the result contains before an op that adds to it, followed by the states that the operator updates: squares,
/// as far as the operator knows.
inline Values random_before(const Operator& op, const Application& c, std::mt19937& random) {
  const Type type = infer(op, c.signature);
  Values before = random_values(type, random);
  for (std::size_t k = 0; k < op.states; ++k) {
    for (const double value : random_values(type, random)) before.push_back(std::abs(value));
  }
  return before;
}

/// A matrix in storage with `gap` elements between its rows. values() checks that the gaps have not been written.
template <class Real>
class Strided {
 public:
  Strided(const Type& type, const Values& values, Index gap) : type_(type), stride_(type.width + gap) {
    storage_.assign(static_cast<std::size_t>(type.rows.number() * stride_ + 1), Real{77});
    for (Index r = 0; r < type.rows.number(); ++r) {
      for (Index c = 0; c < type.width; ++c) {
        storage_[static_cast<std::size_t>(r * stride_ + c)] =
            static_cast<Real>(values[static_cast<std::size_t>(r * type.width + c)]);
      }
    }
  }
  Matrix<Real> matrix() { return {storage_.data(), type_.rows.number(), type_.width, stride_}; }
  Values values() {
    Values result;
    for (std::size_t i = 0; i + 1 < storage_.size(); ++i) {
      const bool inside = static_cast<Index>(i) % stride_ < type_.width;
      if (inside) {
        result.push_back(static_cast<double>(storage_[i]));
      } else {
        EXPECT_EQ(storage_[i], Real{77}) << "written outside the result";
      }
    }
    EXPECT_EQ(storage_.back(), Real{77}) << "written behind the result";
    return result;
  }

 private:
  Type type_;
  Index stride_;
  std::vector<Real> storage_;
};

/// Calls run(call) and returns the result, followed by the states, which contain `before` at first. Each operand has a
/// random gap of up to four elements between its rows.
template <class Run>
Values run_kernel(const Operator& op, const Application& c, const Values& before, Write write, unsigned gap_seed,
                  Run run) {
  std::mt19937 random(gap_seed);
  const auto gap = [&] { return static_cast<Index>(random() % 3) * 2; };
  std::vector<Strided<float>> in;
  std::vector<Strided<std::int32_t>> indices;
  for (std::size_t k = 0; k < c.in.size(); ++k) in.emplace_back(c.signature.in[k], c.in[k], gap());
  for (std::size_t k = 0; k < c.indices.size(); ++k) {
    indices.emplace_back(c.signature.indices[k], Values(c.indices[k].begin(), c.indices[k].end()), gap());
  }
  std::vector<Matrix<const float>> inputs;
  std::vector<Matrix<const std::int32_t>> index_inputs;
  for (auto& matrix : in) inputs.push_back(matrix.matrix());
  for (auto& matrix : indices) index_inputs.push_back(matrix.matrix());
  std::vector<Strided<float>> written;  // the result, then the states
  std::vector<Matrix<float>> outputs;
  const Type type = infer(op, c.signature);
  const auto size = static_cast<std::ptrdiff_t>(elements(type));
  for (auto part = before.begin(); written.size() <= op.states; part += size) {
    written.emplace_back(type, Values(part, part + size), gap());
  }
  for (auto& matrix : written) outputs.push_back(matrix.matrix());
  run(KernelCall<float>{.in = inputs,
                        .indices = index_inputs,
                        .out = outputs[0],
                        .attributes = c.signature.attributes,
                        .write = write,
                        .states = std::span(outputs).subspan(1)});
  Values result;
  for (auto& matrix : written) {
    const Values values = matrix.values();
    result.insert(result.end(), values.begin(), values.end());
  }
  return result;
}

/// As run_kernel(), with the host's kernel.
inline Values run_host(const Operator& op, const Application& c, const Values& before, Write write, unsigned gap_seed) {
  return run_kernel(op, c, before, write, gap_seed, host_kernels().find(op));
}

inline double largest(const Values& values) {
  double top = 0;
  for (double value : values) top = std::max(top, std::abs(value));
  return top;
}

/// Expects differences of at most `tolerance` times the largest magnitude of `expected`.
inline void expect_close(const Values& actual, const Values& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  const double limit = tolerance * largest(expected);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_LE(std::abs(actual[i] - expected[i]), limit)
        << "element " << i << " is " << actual[i] << ", expected " << expected[i];
  }
}
/// Expects differences of at most `tolerance`.
template <class Actual, class Expected>
void expect_near(const Actual& actual, const Expected& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], tolerance) << "element " << i;
}

}  // namespace windrow::testing
