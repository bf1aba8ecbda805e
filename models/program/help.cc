#include "help.h"

#include <algorithm>
#include <memory>
#include <sstream>

#include "flags.h"

namespace windrow::program {
namespace {

bool takes_value(const CLI::Option& option) { return option.get_expected_max() > 0; }
/// Check::value, which stands before Check::expected in the name of the type.
std::string value_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.substr(0, type.find(':'));
}
/// The accepted values and the default; may be empty.
std::string details_of(const CLI::Option& option) {
  if (!takes_value(option)) return {};
  std::string text = value_of(option) == "DIR" ? "" : expected_of(option);
  const std::string preset = option.get_default_str();
  if (!preset.empty()) text += (text.empty() ? "default: " : "; default: ") + preset;
  return text;
}

class Help final : public CLI::Formatter {
 public:
  Help() { column_width(30); }

  /// Without the names that stand for it, too.
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    return option->get_name(positional);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    return option->nonpositional() && takes_value(*option) ? " " + value_of(*option) : std::string();
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    const std::string details = details_of(*option);
    if (!details.empty()) text += " [" + details + "]";
    return wrapped(text, 80);
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

std::string expected_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.substr(type.find(':') + 1);
}

void lay_out_help(CLI::App& app) {
  const auto help = std::make_shared<Help>();
  app.formatter(help);
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) command->formatter(help);
}

std::vector<FlagFacts> flags_of(const CLI::App& command) {
  std::vector<FlagFacts> flags;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty()) continue;  // hidden
    const std::string expected = expected_of(*option);
    flags.push_back({.name = option->get_name(),
                     .positional = !option->nonpositional(),
                     .value = takes_value(*option) ? value_of(*option) : "",
                     .about = option->get_description(),
                     .details = details_of(*option),
                     .choices = choices_of(expected),
                     .several = expected.ends_with(several_separated)});
  }
  return flags;
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

}  // namespace windrow::program
