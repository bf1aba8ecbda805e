// Text of C++ for printed programs: names and literals. See static.h.
#pragma once

#include <set>
#include <string>

#include "windrow/ops/operator.h"

namespace windrow::print {

/// A C++ identifier that resembles the text.
std::string identifier(const std::string& text);

/// Identifiers that differ from each other. A value.
class Identifiers {
 public:
  std::string add(const std::string& text);

 private:
  std::set<std::string> taken_;
};

/// A string literal.
std::string quoted(const std::string& text);
/// A literal of the same bits, but for those of a NaN.
std::string literal(double value);
/// A braced list of designated initialisers.
std::string literal(const Attributes& attributes);

}  // namespace windrow::print
