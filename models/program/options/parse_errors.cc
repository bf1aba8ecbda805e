#include <CLI/CLI.hpp>
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "program/options/arguments.h"
#include "program/options/flags.h"
#include "program/output/text.h"
#include "windrow/engine/error.h"

namespace windrow::program {
namespace {

// --- Words that are spelled nearly alike

std::string without_dashes(const std::string& word) {
  return word.substr(std::min(word.find_first_not_of('-'), word.size()));
}

/// The least number of characters to delete, insert, replace or swap with the next one.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> least(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  std::iota(least[0].begin(), least[0].end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    least[i][0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = least[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      least[i][j] = std::min({least[i - 1][j] + 1, least[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        least[i][j] = std::min(least[i][j], least[i - 2][j - 2] + 1);
      }
    }
  }
  return least[a.size()][b.size()];
}

/// Whether the longer one is the shorter one with more words before or after it, as batch-size is of batch.
bool extends(const std::string& longer, const std::string& shorter) {
  return longer.starts_with(shorter + "-") || longer.ends_with("-" + shorter);
}

/// How different the words are; none if they are too different for a typing error.
std::optional<std::size_t> unlike(const std::string& wrong, const std::string& word) {
  const std::size_t apart = distance(wrong, word);
  if (apart <= std::max<std::size_t>(1, wrong.size() / 4) && apart < word.size()) return apart;
  if (extends(wrong, word) || extends(word, wrong)) return wrong.size() + apart;
  return {};
}

// --- What is wrong

/// The words that are most likely meant by a wrong one.
std::vector<std::string> similar_words(const std::string& wrong, const std::vector<std::string>& words) {
  constexpr std::size_t most = 3;
  std::vector<std::pair<std::size_t, std::string>> found;
  for (const std::string& word : words) {
    if (const auto much = unlike(without_dashes(wrong), without_dashes(word))) found.emplace_back(*much, word);
  }
  std::ranges::stable_sort(found, {}, [](const auto& one) { return one.first; });
  std::vector<std::string> similar;
  for (const auto& [much, word] : found) {
    if (similar.size() < most) similar.push_back(word);
  }
  return similar;
}

std::string did_you_mean(const std::vector<std::string>& words) {
  const std::string last = words.size() > 1 ? " or " + words.back() : "";
  return "did you mean " + joined({words.begin(), words.end() - (last.empty() ? 0 : 1)}) + last + "?";
}

std::string unknown_command(const CLI::App& app, const std::string& wrong) {
  const std::vector<std::string> names = command_names(app), meant = similar_words(wrong, names);
  const std::string text = "unknown command " + in_quotes(wrong) + "; ";
  return text + (meant.empty() ? "expected " + listed(names) : did_you_mean(meant));
}

/// `command` may be the app itself.
std::string naming_help(const std::string& why, const CLI::App& app, const CLI::App& command) {
  const std::string of = &command == &app ? "" : " " + command.get_name();
  return why + (why.ends_with('?') ? " See " : "; see ") + app.get_name() + of + " --help";
}

std::string unknown_flag(const CLI::App& app, const CLI::App& command, const std::string& wrong) {
  constexpr std::size_t few = 8;
  std::vector<std::string> names, all;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    names.push_back(option->get_name());
    all.push_back(names.back());
    for (const std::string& other : option->get_lnames()) all.push_back("--" + other);
  }
  std::vector<std::string> meant;
  for (const std::string& one : similar_words(wrong.substr(0, wrong.find('=')), all)) {
    const CLI::Option* option = command.get_option_no_throw(one);
    const std::string name = option == nullptr ? one : option->get_name();  // and not that of an alias
    if (std::find(meant.begin(), meant.end(), name) == meant.end()) meant.push_back(name);
  }
  const std::string text = "unknown argument " + in_quotes(wrong) + "; ";
  if (!meant.empty()) return text + did_you_mean(meant);
  if (names.size() <= few) return text + "expected " + listed(names);
  return text + "expected one of the flags of " + app.get_name() + " " + command.get_name();
}

bool is_flag(const std::string& argument) { return argument.starts_with('-'); }

/// If no command was found, the argument that was probably meant as one: the first argument or, if that is a flag, the
/// first one that is spelled nearly like a command. Later arguments belong to it. Null if there is none.
const std::string* meant_as_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  if (arguments.empty()) return nullptr;
  if (!is_flag(arguments.front())) return &arguments.front();
  const std::vector<std::string> names = command_names(app);
  const auto meant = std::ranges::find_if(
      arguments, [&](const std::string& one) { return !is_flag(one) && !similar_words(one, names).empty(); });
  return meant == arguments.end() ? nullptr : &*meant;
}

/// A message about an argument that no flag or command accepts; empty if there is none.
std::string unknown(const CLI::App& app, const CLI::App& command) {
  const std::vector<std::string> early = app.remaining(false), all = app.remaining(true);
  if (all.empty()) return {};
  if (&command != &app && !early.empty()) {
    return in_quotes(early.front()) + " comes before the command; expected it after '" + command.get_name() + "'";
  }
  if (&command == &app) {
    if (const std::string* const wrong = meant_as_command(app, all)) return unknown_command(app, *wrong);
  }
  const auto flag = std::ranges::find_if(all, is_flag);
  return unknown_flag(app, command, flag == all.end() ? all.front() : *flag);
}

std::string missing(const CLI::App& app, const CLI::App& command) {
  if (&command == &app) return "no command; expected " + listed(command_names(app));
  const auto options = command.get_options();
  const auto lacks = [](const CLI::Option* option) { return option->get_required() && option->count() == 0; };
  const auto option = std::ranges::find_if(options, lacks);
  return option == options.end() ? "" : "no " + (*option)->get_name() + "; expected " + facts_of(**option).expected;
}

/// A message about a value that is missing, or about one for a flag that takes none, as in --compare=false, of which
/// CLI11's error omits the dashes.
std::string wrong_count(const CLI::App& command, const std::string& error) {
  const std::size_t given = error.find(" was given a disallowed flag override");
  const std::string name =
      given == std::string::npos ? error.substr(0, error.find(':')) : "--" + error.substr(0, given);
  const CLI::Option* option = command.get_option_no_throw(name);
  if (option == nullptr) return {};
  if (given != std::string::npos) return option->get_name() + ": has a value; expected none";
  return option->get_expected_max() == 0 ? ""
                                         : option->get_name() + ": no value; expected " + facts_of(*option).expected;
}

}  // namespace

void require_command(const CLI::App& app, const std::string& name) {
  const std::vector<std::string> names = command_names(app);
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  throw MisuseError(naming_help(unknown_command(app, name), app, app));
}

void require_known_command(const CLI::App& app) {
  if (!app.get_subcommands().empty()) return;
  const std::vector<std::string> arguments = app.remaining();
  if (const std::string* const wrong = meant_as_command(app, arguments)) require_command(app, *wrong);
}

std::string why_refused(const CLI::App& app, const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();
  const CLI::App& command = commands.empty() ? app : *commands.front();
  std::string why = unknown(app, command);
  if (why.empty() && dynamic_cast<const CLI::RequiredError*>(&error)) why = missing(app, command);
  if (why.empty() && dynamic_cast<const CLI::ArgumentMismatch*>(&error)) why = wrong_count(command, error.what());
  if (why.empty()) why = error.what();
  return naming_help(why, app, command);
}

}  // namespace windrow::program
