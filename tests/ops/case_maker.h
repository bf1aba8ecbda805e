// What the tables of cases are made of: parts of random cases, and the tables.
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "tests/ops/cases.h"
#include "windrow/ops/internal/row_segments.h"

namespace windrow::testing {

/// Makes the parts of a case.
class Maker {
  std::mt19937& random_;
  const Numbers numbers_;

 public:
  Maker(Index row_count, Numbers numbers, std::mt19937& random)
      : random_(random), numbers_(numbers), rows(row_count), width(some_width()) {}
  Index number(Index low, Index high) { return std::uniform_int_distribution<Index>(low, high)(random_); }

  void operand(const Type& type) {
    made.signature.in.push_back(type);
    made.in.push_back(random_values(type, random_));
    if (numbers_ == Numbers::real) return;
    for (double& value : made.in.back()) value = static_cast<double>(number(-2, 2));
  }
  void positive_operand(const Type& type) {
    operand(type);
    for (double& value : made.in.back()) value = static_cast<float>(std::abs(value) + 0.25);
  }
  /// Probabilities; real ones so far from the ends that differences stay within.
  void targets(const Type& type) {
    operand(type);
    for (double& value : made.in.back()) {
      value = numbers_ == Numbers::whole ? static_cast<double>(number(0, 1)) : static_cast<float>(0.5 + value / 5);
    }
  }
  void index(const Type& type, const std::function<Index()>& value) {
    made.signature.indices.push_back(type);
    std::vector<std::int32_t> values(elements(type));
    for (std::int32_t& v : values) v = static_cast<std::int32_t>(value());
    made.indices.push_back(values);
  }
  /// `count` segments of `of` rows: one after the other, some empty, some rows in none.
  void segments(Index count, Index of) {
    index(counted(count, 2), [] { return 0; });
    Index at = 0;
    for (Index r = 0; r < count; ++r) {
      at = std::min(of, at + number(0, 1));
      made.indices.back()[static_cast<std::size_t>(2 * r)] = static_cast<std::int32_t>(at);
      at = std::min(of, at + number(0, 3));
      made.indices.back()[static_cast<std::size_t>(2 * r + 1)] = static_cast<std::int32_t>(at);
    }
  }
  void segments_of(const std::vector<std::int32_t>& row_of) {
    auto [bounds, order] = row_segments(row_of);
    made.signature.indices = {counted(static_cast<Index>(bounds.size()) / 3, 3),
                              counted(static_cast<Index>(order.size()), 1)};
    made.indices = {std::move(bounds), std::move(order)};
  }
  Index some_width() {
    static constexpr Index widths[] = {1, 2, 5, 15, 16, 17, 31, 40, 64, 70};
    return widths[number(0, std::size(widths) - 1)];
  }

  const Index rows;
  const Index width;
  Application made;
};

using Make = std::function<void(Maker&)>;
/// By the name of the operator. Those without are given operands of one shape.
using Makes = std::map<std::string, Make>;

inline Make elementwise(int operands) {
  return [operands](Maker& m) {
    for (int k = 0; k < operands; ++k) m.operand(counted(m.rows, m.width));
  };
}

inline void positive(Maker& m) { m.positive_operand(counted(m.rows, m.width)); }
inline Make with(const Attributes& attributes) {
  return [attributes](Maker& m) { m.made.signature.attributes = attributes; };
}
/// One after the other.
template <class... Parts>
Make parts(Parts... all) {
  return [=](Maker& m) { (all(m), ...); };
}

/// So many operands of one shape, then one of width 1.
inline Make with_scalars(int operands) {
  return [operands](Maker& m) {
    elementwise(operands)(m);
    m.operand(counted(m.rows, 1));
  };
}

/// See model_cases.cc.
const Makes& makes_of_models();

}  // namespace windrow::testing
