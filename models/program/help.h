// The layout of --help, and what it says of each flag, for completions and the manual page.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace windrow::program {

/// Gives the program and all its commands one layout: each option on a line of its own, with its description, its
/// accepted values and its default.
void lay_out_help(CLI::App& app);

/// A text in lines of at most `width` characters, where its words allow that. All but the first begin with blanks.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent = 0);

/// A flag or a positional argument. A value.
struct FlagFacts {
  std::string name;  ///< with dashes, unless it is positional
  bool positional = false;
  std::string value = {};  ///< what a value is called, such as N; empty if there is none
  std::string about = {};
  std::string details = {};               ///< the accepted values and the default
  std::vector<std::string> choices = {};  ///< the accepted words, if these are few
  bool several = false;                   ///< choices may be combined with commas
};
/// In the order of --help.
std::vector<FlagFacts> flags_of(const CLI::App& command);
/// In the order in which they were added.
std::vector<const CLI::App*> commands_of(const CLI::App& app);

}  // namespace windrow::program
