// Scripts that complete commands, flags and values.
#include <memory>

#include "flags.h"
#include "help.h"
#include "manual.h"
#include "program.h"

namespace windrow::program {
namespace {

std::string joined(const std::vector<std::string>& words, const std::string& between = " ") {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

/// In single quotes, for all three shells.
std::string single_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

enum class Kind { none, folder, file, words, several, other };
/// What a value is.
Kind kind_of(const FlagFacts& flag) {
  if (flag.value.empty()) return Kind::none;
  if (!flag.choices.empty()) return flag.several ? Kind::several : Kind::words;
  if (flag.value == "DIR") return Kind::folder;
  return flag.value == "FILE" ? Kind::file : Kind::other;
}

/// "--help", without the short name that it may have.
std::string long_name(const FlagFacts& flag) { return flag.name.substr(flag.name.rfind("--")); }

std::vector<std::string> names_of(const std::vector<const CLI::App*>& commands) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  return names;
}

// --- bash

std::string bash_values(const FlagFacts& flag) {
  switch (kind_of(flag)) {
    case Kind::folder:
      return "_windrow_files -d; return";
    case Kind::file:
      return "_windrow_files -f; return";
    case Kind::words:
      return "_windrow_words " + single_quoted(joined(flag.choices)) + "; return";
    case Kind::several:
      return "_windrow_several " + single_quoted(joined(flag.choices)) + "; return";
    default:
      return "return";
  }
}

std::string bash(const CLI::App& app) {
  const std::vector<const CLI::App*> commands = commands_of(app);
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
      single_quoted(joined(names_of(commands)) + joined_flags) +
      "\n"
      "    return\n"
      "  fi\n"
      "  case $command in\n";
  for (const CLI::App* command : commands) {
    std::vector<std::string> flags;
    std::string cases, positional;
    for (const FlagFacts& flag : flags_of(*command)) {
      if (flag.positional) {
        positional = bash_values(flag);
        continue;
      }
      flags.push_back(flag.name);
      if (kind_of(flag) != Kind::none) cases += "        " + flag.name + ") " + bash_values(flag) + " ;;\n";
    }
    text += "    " + command->get_name() + ")\n";
    if (!cases.empty()) text += "      case $prev in\n" + cases + "      esac\n";
    if (!positional.empty()) text += "      if [[ $cur != -* ]] && ((COMP_CWORD == 2)); then " + positional + "; fi\n";
    text += "      _windrow_words " + single_quoted(joined(flags)) + "\n      ;;\n";
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

std::string zsh_values(const FlagFacts& flag) {
  switch (kind_of(flag)) {
    case Kind::folder:
      return "_files -/";
    case Kind::file:
      return "_files";
    case Kind::words:
      return "(" + joined(flag.choices) + ")";
    case Kind::several:
      return "_sequence compadd - " + joined(flag.choices);
    default:
      return " ";
  }
}

std::string zsh(const CLI::App& app) {
  std::string flags, about, cases;
  for (const FlagFacts& flag : flags_of(app)) {
    flags += single_quoted("(- *)" + long_name(flag) + "[" + zsh_escaped(flag.about) + "]") + " ";
  }
  for (const CLI::App* command : commands_of(app)) {
    about += "        " + single_quoted(command->get_name() + ":" + zsh_escaped(command->get_description())) + "\n";
    cases += "        " + command->get_name() + ")\n          _arguments";
    for (const FlagFacts& flag : flags_of(*command)) {
      std::string argument;
      if (flag.positional) {
        argument = "1:" + flag.name + ":" + zsh_values(flag);
      } else {
        const bool valued = kind_of(flag) != Kind::none;
        argument = long_name(flag) + (valued ? "=" : "") + "[" + zsh_escaped(flag.about) + "]";
        if (valued) argument += ":" + zsh_escaped(flag.value) + ":" + zsh_values(flag);
      }
      cases += " \\\n            " + single_quoted(argument);
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

std::string fish_values(const FlagFacts& flag) {
  switch (kind_of(flag)) {
    case Kind::folder:
      return " -x -a '(__fish_complete_directories)'";
    case Kind::file:
      return " -r -F";
    case Kind::words:
      return " -x -a " + fish_quoted(joined(flag.choices));
    case Kind::several:
      return " -x -a " + fish_quoted("(__windrow_several " + joined(flag.choices) + ")");
    case Kind::other:
      return " -x";
    case Kind::none:
      break;
  }
  return {};
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
        if (kind_of(flag) == Kind::folder) {
          text += begin + fish_quoted(seen) + " -a '(__fish_complete_directories)'\n";
        } else if (!flag.choices.empty()) {
          const std::string words = joined(flag.choices);
          text += begin + fish_quoted(seen + "; and not __fish_seen_subcommand_from " + words) + " -a " +
                  fish_quoted(words) + "\n";
        }
        continue;
      }
      text += begin + fish_quoted(seen) + " -l " + long_name(flag).substr(2) + fish_values(flag) + " -d " +
              fish_quoted(flag.about) + "\n";
    }
  }
  return text;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  return shell == "bash" ? bash(app) : shell == "zsh" ? zsh(app) : fish(app);
}

std::function<void()> add_completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  CLI::App& command = *app.add_subcommand("completion", "Prints a script that completes this program's arguments.");
  flag(command, "shell", *shell, "Shell that reads the script", one_of({"bash", "zsh", "fish"}))->required();
  command.footer(
      "Installed files complete without further steps. Otherwise, add to the start file of the shell:\n"
      "  bash  source <(windrow completion bash)\n"
      "  zsh   source <(windrow completion zsh)\n"
      "  fish  windrow completion fish | source");
  return [&app, shell] { print("%s", completion_script(app, *shell).c_str()); };
}

}  // namespace windrow::program
