// The manual page, section 1, in the macros of man: made from the flags that --help shows.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "program/commands/commands.h"
#include "program/options/arguments.h"
#include "program/output/program.h"

namespace windrow::program {
namespace {

/// Escapes a text for roff. Dashes are dashes of flags, not hyphens.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '.' && result.empty()) result += "\\&";
    result += c == '\\' ? "\\e" : c == '-' ? "\\-" : c == '\'' ? "\\(aq" : std::string(1, c);
  }
  return result;
}

std::string bold(const std::string& text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + roff(text) + "\\fR"; }

std::string entry(const FlagFacts& flag) {
  std::string text = ".TP\n" + (flag.positional ? italic(flag.name) : bold(flag.name));
  if (!flag.positional && !flag.value.empty()) text += " " + italic(flag.value);
  text += "\n" + roff(flag.about);
  if (!flag.details.empty()) text += " [" + roff(flag.details) + "]";
  return text + "\n";
}

/// Folds the line to lines of at most 72 characters. Later lines begin below its second column, if it has one.
std::string folded(std::string line) {
  constexpr std::size_t width = 72;  // beside the margin of a page
  const std::size_t text = std::min(line.find_first_not_of(' '), line.size()), gap = line.find("  ", text);
  const std::size_t column = gap == std::string::npos ? line.size() : line.find_first_not_of(' ', gap);
  const std::size_t indent = column < width / 2 ? column : text + 4;
  std::string result;
  while (line.size() > width) {
    std::size_t cut = line.rfind(' ', width);
    if (cut == std::string::npos || cut < indent) cut = line.find(' ', width);
    if (cut == std::string::npos) break;
    result += line.substr(0, cut) + "\n";
    line = std::string(indent, ' ') + line.substr(cut + 1);
  }
  return result + line;
}

/// Lines that keep their breaks.
std::string lines(const std::string& text) {
  if (text.empty()) return {};
  std::string result = ".PP\n.nf\n", all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all += folded(line) + "\n";
  in = std::istringstream(all);
  for (std::string line; std::getline(in, line);) result += (line.empty() ? "\\&" : roff(line)) + "\n";
  return result + ".fi\n";
}

std::string manual_page(const CLI::App& app) {
  std::string text = ".TH WINDROW 1 \"\" \"windrow " + version() +
                     "\" \"User Commands\"\n.nh\n.ad l\n"
                     ".SH NAME\nwindrow \\- trains and uses dynamic neural networks\n"
                     ".SH SYNOPSIS\n.B windrow\n.I command\n.RI [ arguments ]\n"
                     ".SH DESCRIPTION\n" +
                     roff(app.get_description()) + "\n.SH COMMANDS\n";
  for (const CLI::App* command : commands_of(app)) {
    text += ".SS windrow " + roff(command->get_name()) + "\n" + roff(command->get_description()) + "\n";
    for (const FlagFacts& flag : flags_of(*command)) text += entry(flag);
    text += lines(command->get_footer());
  }
  return text +
         ".SH EXIT STATUS\n.TP\n.B 0\nThe command succeeded.\n.TP\n.B 2\n"
         "An argument or a file is wrong, or the command failed; a line on standard error gives the reason.\n.PP\n"
         "On SIGINT, SIGTERM or SIGHUP, training writes its checkpoint and its report, and then ends by that signal.\n"
         "A second signal ends it at once.\n";
}

}  // namespace

void add_man(CLI::App& app) {
  app.add_subcommand("man", "Prints the manual page, for man -l -.")->callback([&app] {
    print_text(manual_page(app));
  });
}

}  // namespace windrow::program
