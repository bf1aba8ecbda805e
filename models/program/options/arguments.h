// The arguments of a program: the layout of --help, facts about each flag for completions and the manual page, and
// messages about wrong arguments.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
class ParseError;
}  // namespace CLI

namespace windrow::program {

/// Gives the program and all its commands one layout: each option on a line of its own, with its description, its
/// accepted values and its default.
void lay_out_help(CLI::App& app);

/// Wraps a text to lines of at most `width` characters, unless a word is longer. All lines but the first begin with
/// `indent` blanks.
std::string wrapped(const std::string& text, std::size_t width, std::size_t indent = 0);

/// A flag or a positional argument. A value.
struct FlagFacts {
  std::string name;  ///< with dashes, unless it is positional
  bool positional = false;
  std::string value = {};  ///< what a value is called, such as N; empty if there is none
  std::string about = {};
  std::string expected = {};              ///< the accepted values: Check::expected
  std::string details = {};               ///< the accepted values and the default
  std::vector<std::string> choices = {};  ///< the accepted words, if these are few
  bool several = false;                   ///< choices may be combined with commas
};
FlagFacts facts_of(const CLI::Option& option);
/// The flags in the order of --help.
std::vector<FlagFacts> flags_of(const CLI::App& command);
/// The commands in the order in which they were added.
std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<std::string> command_names(const CLI::App& app);

/// Throws MisuseError unless the program has a command of that name.
void require_command(const CLI::App& app, const std::string& name);

/// The same for a call of --help, at which app.parse() stops: checks the command among the remaining arguments, which
/// may be misspelt.
void require_known_command(const CLI::App& app);

/// One line about arguments that app.parse() has refused. For an unknown word, it suggests up to three that are most
/// likely meant: those with a similar spelling, and those with more or fewer words at an end.
std::string why_refused(const CLI::App& app, const CLI::ParseError& error);

}  // namespace windrow::program
