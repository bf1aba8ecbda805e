#include "help.h"

#include <memory>
#include <sstream>

#include "flags.h"

namespace windrow::program {
namespace {

/// Breaks a text into lines of at most `width` characters, where its words allow that.
std::string wrapped(const std::string& text, std::size_t width) {
  std::istringstream words(text);
  std::string lines;
  std::size_t used = 0;
  for (std::string word; words >> word; used += word.size()) {
    if (used > 0 && used + 1 + word.size() > width) {
      lines += '\n';
      used = 0;
    } else if (used > 0) {
      lines += ' ';
      ++used;
    }
    lines += word;
  }
  return lines;
}

class Help final : public CLI::Formatter {
 public:
  Help() { column_width(30); }

  std::string make_option_opts(const CLI::Option* option) const override {
    return option->nonpositional() && takes_value(*option) ? " " + value_of(*option) : std::string();
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    if (takes_value(*option)) text += in_brackets(*option);
    return wrapped(text, 80);
  }

 private:
  static bool takes_value(const CLI::Option& option) { return option.get_expected_max() > 0; }
  /// Check::value, which stands before Check::expected in the name of the type.
  static std::string value_of(const CLI::Option& option) {
    const std::string type = option.get_type_name();
    return type.substr(0, type.find(':'));
  }
  static std::string in_brackets(const CLI::Option& option) {
    std::string text = value_of(option) == "DIR" ? "" : expected_of(option);
    const std::string preset = option.get_default_str();
    if (!preset.empty()) text += (text.empty() ? "default: " : "; default: ") + preset;
    return text.empty() ? text : " [" + text + "]";
  }
};

}  // namespace

std::string expected_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.substr(type.find(':') + 1);
}

void lay_out_help(CLI::App& app) {
  const auto help = std::make_shared<Help>();
  app.formatter(help);
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) command->formatter(help);
}

}  // namespace windrow::program
