// A locale that writes numbers as a German program does: 1.234,5. What is written for machines must not change with it.
#pragma once

#include <locale>
#include <string>

namespace windrow::testing {

/// The global C++ locale, while it exists.
class Grouping {
 public:
  Grouping() : before_(std::locale::global(std::locale(std::locale::classic(), new Numbers))) {}
  ~Grouping() { std::locale::global(before_); }
  Grouping(const Grouping&) = delete;
  Grouping& operator=(const Grouping&) = delete;

 private:
  struct Numbers : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before_;
};

}  // namespace windrow::testing
