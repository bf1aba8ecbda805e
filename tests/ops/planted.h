// Cases with what is not finite among their operands.
#pragma once

#include <utility>

#include "tests/ops/cases.h"

namespace windrow::testing {

/// Whether the rule says what becomes of any number in operand k.
inline bool takes_any_number(const Operator& op, const Application& c, std::size_t k) {
  if (&op == &op::binary_cross_entropy) return k != 1;  // which refuses what is outside [0, 1]
  if (&op == &op::limit_norm) return false;             // the numbers of a step, and squares, which are not negative
  // Whether padding counts as zeros or not at all is up to the device.
  const bool padded = &op == &op::conv2d || &op == &op::conv2d_filter_gradient;
  return !padded || k != 1 || c.signature.attributes.sizes[6] == 0;
}

/// Calls visit(case, what) for NaN, infinity and minus infinity in every `step`-th element of each operand in turn, of
/// which all other elements are as they were, or infinite, or minus infinite.
template <class Visit>
void each_planted(const Operator& op, const Application& c, std::size_t step, Visit visit) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (std::size_t k = 0; k < c.in.size(); ++k) {
    if (!takes_any_number(op, c, k)) continue;
    const auto visit_case = [&](Application made, const std::string& what) {
      take_result(op, made);
      visit(made, what);
    };
    for (const double ground : {0.0, -inf, inf}) {
      Application planted = c;
      if (ground != 0) planted.in[k].assign(c.in[k].size(), ground);
      const std::string about = "operand " + std::to_string(k) + (ground != 0 ? " is " + std::to_string(ground) : "");
      if (ground != 0) visit_case(planted, about);
      for (std::size_t i = 0; i < c.in[k].size(); i += step) {
        for (const double value : {nan, -inf, inf}) {
          const double before = std::exchange(planted.in[k][i], value);
          visit_case(planted, about + ", element " + std::to_string(i) + " is " + std::to_string(value));
          planted.in[k][i] = before;
        }
      }
    }
  }
}

/// Where NaN, an infinity or a number is not what is expected; empty if nowhere.
inline std::string difference(const Values& actual, const Values& expected) {
  double largest = 0;
  for (const double value : expected) largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const bool same = std::isnan(expected[i])   ? std::isnan(actual[i])
                      : std::isinf(expected[i]) ? actual[i] == expected[i]
                                                : std::abs(actual[i] - expected[i]) <= 1e-5 * (1 + largest);
    if (same) continue;
    return "element " + std::to_string(i) + " is " + std::to_string(actual[i]) + ", expected " +
           std::to_string(expected[i]);
  }
  return "";
}

}  // namespace windrow::testing
