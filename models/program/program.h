// How the house's programs take arguments and end: what is wrong is told in one line, and the exit status is 2.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace windrow::program {

/// Whole numbers from low to high.
CLI::Validator whole_number(std::int64_t low, std::int64_t high);
/// Numbers above 0.
CLI::Validator positive_number();
/// One of these words.
CLI::Validator one_of(std::vector<std::string> words);

/// Parses, then runs the body. Returns the exit status: 0; or 2, after a line that begins with the program's name, for
/// arguments that do not fit and for whatever the body throws.
int run(CLI::App& app, int argc, char** argv, const std::function<void()>& body);

}  // namespace windrow::program
