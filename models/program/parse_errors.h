// What is wrong with the arguments of a program, in words.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace windrow::program {

/// "one of a, b, c", or the only word.
std::string listed(const std::vector<std::string>& words);

/// Those of the words that are most likely meant by a wrong one: spelled nearly alike, or longer or shorter by an end.
/// At most three.
std::vector<std::string> similar_words(const std::string& wrong, const std::vector<std::string>& words);

/// Throws MisuseError unless the program has a command of that name.
void require_command(const CLI::App& app, const std::string& name);

/// The same for the command among arguments that app.parse() has left off at a call for help, which may be misspelt.
void require_known_command(const CLI::App& app);

/// One line for arguments that app.parse() has refused.
std::string why_refused(const CLI::App& app, const CLI::ParseError& error);

}  // namespace windrow::program
