// Scripts that complete commands, flags and values.
#include <CLI/CLI.hpp>
#include <memory>

#include "program/commands/commands.h"
#include "program/options/arguments.h"
#include "program/options/flags.h"
#include "program/output/program.h"

namespace windrow::program {
namespace {

/// How a shell completes a value, by its kind; % stands for the accepted words. Flags without a value have none.
struct Values {
  const char *folder, *file, *words, *several, *other;
};
constexpr Values bash_values = {"_windrow_files -d; return", "_windrow_files -f; return", "_windrow_words '%'; return",
                                "_windrow_several '%'; return", "return"};
constexpr Values zsh_values = {"_files -/", "_files", "(%)", "_sequence compadd - %", " "};
constexpr Values fish_values = {" -x -a '(__fish_complete_directories)'", " -r -F", " -x -a '%'",
                                " -x -a '(__windrow_several %)'", " -x"};

std::string value_of(const FlagFacts& flag, const Values& of) {
  if (flag.value.empty()) return {};
  std::string text = !flag.choices.empty()  ? (flag.several ? of.several : of.words)
                     : flag.value == "DIR"  ? of.folder
                     : flag.value == "FILE" ? of.file
                                            : of.other;
  if (const std::size_t at = text.find('%'); at != std::string::npos) text.replace(at, 1, joined(flag.choices, " "));
  return text;
}

/// "--help", without the short name that it may have.
std::string long_name(const FlagFacts& flag) { return flag.name.substr(flag.name.rfind("--")); }

// --- bash

std::string bash(const CLI::App& app) {
  std::string joined_flags;
  for (const FlagFacts& flag : flags_of(app)) joined_flags += " " + long_name(flag);
  std::string text =
      "# Completes windrow in bash.\n"
      "_windrow_words() { mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\"); }\n"
      "_windrow_several() { mapfile -t COMPREPLY < <(compgen -P \"${cur%\"${cur##*,}\"}\" -W \"$1\" -- "
      "\"${cur##*,}\"); "
      "}\n"
      "_windrow_files() { compopt -o filenames 2> /dev/null; mapfile -t COMPREPLY < <(compgen \"$1\" -- \"$cur\"); }\n"
      "_windrow() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}\n"
      "  # The shell takes '=' for a word.\n"
      "  if [[ $cur == = ]]; then cur=\n"
      "  elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
      "  fi\n"
      "  COMPREPLY=()\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    _windrow_words " +
      shell_quoted(joined(command_names(app), " ") + joined_flags) +
      "\n"
      "    return\n"
      "  fi\n"
      "  case $command in\n";
  for (const CLI::App* command : commands_of(app)) {
    std::vector<std::string> flags;
    std::string cases, positional;
    for (const FlagFacts& flag : flags_of(*command)) {
      if (flag.positional) {
        positional = value_of(flag, bash_values);
        continue;
      }
      flags.push_back(flag.name);
      if (!flag.value.empty()) cases += "        " + flag.name + ") " + value_of(flag, bash_values) + " ;;\n";
    }
    text += "    " + command->get_name() + ")\n";
    if (!cases.empty()) text += "      case $prev in\n" + cases + "      esac\n";
    if (!positional.empty()) text += "      if [[ $cur != -* ]] && ((COMP_CWORD == 2)); then " + positional + "; fi\n";
    text += "      _windrow_words " + shell_quoted(joined(flags, " ")) + "\n      ;;\n";
  }
  return text + "  esac\n}\ncomplete -F _windrow windrow\n";
}

// --- zsh

/// A text within a specification of _arguments.
std::string zsh_escaped(const std::string& text) {
  std::string result;
  for (const char c : text) result += (c == '[' || c == ']' || c == ':' || c == '\\' ? "\\" : "") + std::string(1, c);
  return result;
}

std::string zsh(const CLI::App& app) {
  std::string flags, about, cases;
  for (const FlagFacts& flag : flags_of(app)) {
    flags += shell_quoted("(- *)" + long_name(flag) + "[" + zsh_escaped(flag.about) + "]") + " ";
  }
  for (const CLI::App* command : commands_of(app)) {
    about += "        " + shell_quoted(command->get_name() + ":" + zsh_escaped(command->get_description())) + "\n";
    cases += "        " + command->get_name() + ")\n          _arguments";
    for (const FlagFacts& flag : flags_of(*command)) {
      std::string argument;
      if (flag.positional) {
        argument = "1:" + flag.name + ":" + value_of(flag, zsh_values);
      } else {
        const bool valued = !flag.value.empty();
        argument = long_name(flag) + (valued ? "=" : "") + "[" + zsh_escaped(flag.about) + "]";
        if (valued) argument += ":" + zsh_escaped(flag.value) + ":" + value_of(flag, zsh_values);
      }
      cases += " \\\n            " + shell_quoted(argument);
    }
    cases += "\n          ;;\n";
  }
  return "#compdef windrow\n"
         "# Completes windrow in zsh.\n"
         "_windrow() {\n"
         "  local context state line\n"
         "  typeset -A opt_args\n"
         "  _arguments -C " +
         flags +
         "'1: :->command' '*:: :->arguments'\n"
         "  case $state in\n"
         "    command)\n"
         "      local -a commands=(\n" +
         about +
         "      )\n"
         "      _describe -t commands command commands\n"
         "      ;;\n"
         "    arguments)\n"
         "      case $words[1] in\n" +
         cases +
         "      esac\n"
         "      ;;\n"
         "  esac\n"
         "}\n"
         "if [[ $funcstack[1] == _windrow ]]; then _windrow \"$@\"; else compdef _windrow windrow; fi\n";
}

// --- fish

/// In single quotes, in which fish reads \' and \\.
std::string fish_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += (c == '\'' || c == '\\' ? "\\" : "") + std::string(1, c);
  return result + "'";
}

std::string fish(const CLI::App& app) {
  const std::string begin = "complete -c windrow -n ";
  std::string text =
      "# Completes windrow in fish.\n"
      "function __windrow_command\n"
      "  set -l words (commandline -opc)\n"
      "  set -q words[2]; and test $words[2] = $argv[1]\n"
      "end\n"
      "# Words that are separated by commas, after those that were typed.\n"
      "function __windrow_several\n"
      "  set -l typed (commandline -ct | string replace -r '^--[a-z-]*=' '' | string match -r '^.*,')\n"
      "  for word in $argv; echo \"$typed$word\"; end\n"
      "end\n"
      "complete -c windrow -f\n";
  for (const FlagFacts& flag : flags_of(app)) {
    text += begin + "__fish_use_subcommand -l " + long_name(flag).substr(2) + " -d " + fish_quoted(flag.about) + "\n";
  }
  for (const CLI::App* command : commands_of(app)) {
    text += begin + "__fish_use_subcommand -a " + command->get_name() + " -d " +
            fish_quoted(command->get_description()) + "\n";
  }
  for (const CLI::App* command : commands_of(app)) {
    const std::string seen = "__windrow_command " + command->get_name();
    for (const FlagFacts& flag : flags_of(*command)) {
      if (flag.positional) {
        if (flag.value == "DIR") {
          text += begin + fish_quoted(seen) + " -a '(__fish_complete_directories)'\n";
        } else if (!flag.choices.empty()) {
          const std::string words = joined(flag.choices, " ");
          text += begin + fish_quoted(seen + "; and not __fish_seen_subcommand_from " + words) + " -a " +
                  fish_quoted(words) + "\n";
        }
        continue;
      }
      text += begin + fish_quoted(seen) + " -l " + long_name(flag).substr(2) + value_of(flag, fish_values) + " -d " +
              fish_quoted(flag.about) + "\n";
    }
  }
  return text;
}

}  // namespace

Command add_completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  CLI::App& command = *app.add_subcommand("completion", "Prints a script that completes this program's arguments.");
  flag(command, "shell", *shell, "Shell that reads the script", one_of({"bash", "zsh", "fish"}))->required();
  command.footer(
      "Installed files complete without further steps. Otherwise, add to the start file of the shell:\n"
      "  bash  source <(windrow completion bash)\n"
      "  zsh   source <(windrow completion zsh)\n"
      "  fish  windrow completion fish | source");
  return [&app, shell] { print_text(*shell == "bash" ? bash(app) : *shell == "zsh" ? zsh(app) : fish(app)); };
}

}  // namespace windrow::program
