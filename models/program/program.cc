#include "program.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace windrow::program {
namespace {

/// One line, whatever a file's name or a word may hold.
std::string line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text;
}

std::string list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return words.size() > 1 ? "one of " + text : text;
}

/// What no option took: "unknown ..." with what there is; empty if all was taken.
std::string unknown(const CLI::App& app) {
  const std::vector<std::string> left = app.remaining(true);
  if (left.empty()) return {};
  const auto flag = std::find_if(left.begin(), left.end(), [](const std::string& word) { return word[0] == '-'; });
  const auto commands = app.get_subcommands();
  const CLI::App& command = commands.empty() ? app : *commands.front();
  if (flag == left.end() && commands.empty()) {
    std::vector<std::string> names;
    for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(one->get_name());
    return "unknown command '" + left.back() + "'; expected " + list(names);
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) names.push_back(option->get_name());
  return "unknown argument '" + (flag == left.end() ? left.back() : *flag) + "'; expected " + list(names);
}

int refuse(const CLI::App& app, const std::string& why) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), line(why).c_str());
  return 2;
}

}  // namespace

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  const std::string expected = std::to_string(low) + " to " + std::to_string(high);
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        std::int64_t value = 0;
        const bool digits =
            !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == std::string::npos;
        if (digits) value = std::strtoll(text.c_str(), nullptr, 10);
        if (digits && low <= value && value <= high) return {};
        return "'" + text + "'; expected a whole number, " + expected;
      },
      expected);
}

CLI::Validator positive_number() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (!text.empty() && *end == '\0' && std::isfinite(value) && value > 0) return {};
        return "'" + text + "'; expected a number above 0";
      },
      "> 0");
}

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string expected = list(words);
  return CLI::Validator(
      [=](const std::string& text) -> std::string {
        for (const std::string& word : words) {
          if (text == word) return {};
        }
        return "'" + text + "'; expected " + expected;
      },
      expected);
}

int run(CLI::App& app, int argc, char** argv, const std::function<void()>& body) {
  try {
    app.parse(argc, argv);
    body();
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    const std::string left = unknown(app);
    return refuse(app, left.empty() ? error.what() + std::string("; see ") + app.get_name() + " --help" : left);
  } catch (const std::exception& error) {
    return refuse(app, error.what());
  }
}

}  // namespace windrow::program
