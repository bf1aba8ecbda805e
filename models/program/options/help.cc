#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>

#include "program/options/arguments.h"
#include "program/options/flags.h"
#include "program/output/text.h"

namespace windrow::program {
namespace {

class Help final : public CLI::Formatter {
 public:
  Help() { column_width(30); }

  /// Leaves out the aliases of the option.
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    return option->get_name(positional);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const FlagFacts flag = facts_of(*option);
    return flag.positional || flag.value.empty() ? std::string() : " " + flag.value;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const FlagFacts flag = facts_of(*option);
    return wrapped(flag.about + (flag.details.empty() ? "" : " [" + flag.details + "]"), 80);
  }
};

/// The words of one_of() and some_of().
std::vector<std::string> choices_of(std::string expected) {
  const std::string begin = "one of ";
  if (!expected.starts_with(begin)) return {};
  expected = expected.substr(begin.size(), expected.find(several_separated) - begin.size());
  std::vector<std::string> words;
  for (std::string& word : words_of(expected)) words.push_back(word.substr(word.find_first_not_of(' ')));
  return words;
}

}  // namespace

std::string listed(const std::vector<std::string>& words) {
  return (words.size() > 1 ? "one of " : "") + joined(words);
}

std::string wrapped(const std::string& text, std::size_t width, std::size_t indent) {
  std::istringstream words(text);
  std::string lines(std::min(text.find_first_not_of(' '), text.size()), ' ');
  std::size_t used = lines.size();
  bool first = true;
  for (std::string word; words >> word; used += word.size(), first = false) {
    if (!first && used + 1 + word.size() > width) {
      lines += '\n' + std::string(indent, ' ');
      used = indent;
    } else if (!first) {
      lines += ' ';
      ++used;
    }
    lines += word;
  }
  return lines;
}

void lay_out_help(CLI::App& app) {
  const auto help = std::make_shared<Help>();
  app.formatter(help);
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) command->formatter(help);
}

/// The name of a type is Check::value and Check::expected.
FlagFacts facts_of(const CLI::Option& option) {
  const std::string type = option.get_type_name(), preset = option.get_default_str();
  const std::string expected = type.substr(type.find(':') + 1);
  FlagFacts flag{.name = option.get_name(),
                 .positional = !option.nonpositional(),
                 .about = option.get_description(),
                 .expected = expected,
                 .choices = choices_of(expected),
                 .several = expected.ends_with(several_separated)};
  if (option.get_expected_max() == 0) return flag;
  flag.value = type.substr(0, type.find(':'));
  flag.details = flag.value == "DIR" ? "" : expected;
  if (!preset.empty()) flag.details += (flag.details.empty() ? "default: " : "; default: ") + preset;
  return flag;
}

std::vector<FlagFacts> flags_of(const CLI::App& command) {
  std::vector<FlagFacts> flags;
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_group().empty()) flags.push_back(facts_of(*option));  // others are hidden
  }
  return flags;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

}  // namespace windrow::program
