// Checks of the functions of lists that expr.h and lazy_cell.h have under the same names. They throw MisuseError, whose
// text begins with `what` and prints shapes as operators do.
#pragma once

#include <span>
#include <string>

#include "windrow/ops/operators.h"

namespace windrow {

/// The type of an expression of a vertex function; a lazy expression knows only its width.
template <class Expression>
Type type_in_list(const Expression& x) {
  if constexpr (requires { x.type(); }) {
    return x.type();
  } else {
    return {Rows::vertices(), x.width()};
  }
}

template <class Expression>
std::string in_list(const char* noun, std::size_t number, const Expression& x) {
  return std::string(noun) + " " + std::to_string(number) + " is " + to_string(type_in_list(x));
}

/// `noun` names the terms in errors. Returns their width.
template <class Expression>
Index width_of_list(const std::string& what, const char* noun, std::span<const Expression> terms) {
  if (terms.empty()) throw MisuseError(what + " of no expressions; expected one or more");
  const Index width = terms[0].width();
  for (std::size_t i = 1; i < terms.size(); ++i) {
    if (terms[i].width() == width) continue;
    throw MisuseError(what + ": " + in_list(noun, 0, terms[0]) + ", " + in_list(noun, i, terms[i]) +
                      "; expected one width");
  }
  return width;
}

template <class Expression>
void check_columns(const std::string& what, const char* noun, std::span<const Expression> terms) {
  if (width_of_list(what, noun, terms) == 1) return;
  throw MisuseError(what + ": " + in_list(noun, 0, terms[0]) + "; expected a width of 1");
}

inline void check_as_many(const std::string& what, std::size_t count, const char* nouns, std::size_t others,
                          const char* other_nouns) {
  if (count == others) return;
  throw MisuseError(what + ": " + std::to_string(count) + " " + nouns + " for " + std::to_string(others) + " " +
                    other_nouns + "; expected as many");
}

template <class Expression>
void check_weighted_sum(const std::string& what, std::span<const Expression> weights,
                        std::span<const Expression> values) {
  check_as_many(what, weights.size(), "weights", values.size(), "values");
  width_of_list(what, "value", values);
  check_columns(what, "weight", weights);
}

template <class Expression>
void check_attention(const std::string& what, const Expression& query, std::span<const Expression> keys,
                     std::span<const Expression> values, std::span<const Expression> masks) {
  check_as_many(what, values.size(), "values", keys.size(), "keys");
  if (width_of_list(what, "key", keys) != query.width()) {
    throw MisuseError(what + ": the query is " + to_string(type_in_list(query)) + ", " + in_list("key", 0, keys[0]) +
                      "; expected one width");
  }
  width_of_list(what, "value", values);
  if (masks.empty()) return;
  check_as_many(what, masks.size(), "masks", keys.size(), "keys");
  check_columns(what, "mask", masks);
}

inline void check_k_max(const std::string& what, Index k, std::size_t terms) {
  if (1 <= k && k <= static_cast<Index>(terms)) return;
  throw MisuseError(what + " of " + std::to_string(terms) + " expressions: k " + std::to_string(k) +
                    "; expected 1 to " + std::to_string(terms));
}

}  // namespace windrow
