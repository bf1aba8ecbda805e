// Completion of arguments. The script of each shell asks the program by a command that --help does not list: `windrow
// complete WORDS`. The last word is the one to complete.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "program/commands/commands.h"
#include "program/options/arguments.h"
#include "program/options/flags.h"
#include "program/output/program.h"

namespace windrow::program {
namespace {

constexpr const char* bash = R"(# Completes windrow in bash.
_windrow() {
  local cur=${COMP_WORDS[COMP_CWORD]#=} kind
  mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
  COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
  case ${COMPREPLY[0]-} in :folders) kind=-d ;; :files) kind=-f ;; *) return ;; esac
  compopt -o filenames 2> /dev/null
  mapfile -t COMPREPLY < <(compgen $kind -- "$cur")
}
complete -F _windrow windrow
)";

constexpr const char* zsh = R"(#compdef windrow
# Completes windrow in zsh.
_windrow() {
  local -a answers=("${(@f)$("${(Q)words[1]}" complete "${(@Q)words[2,CURRENT]}" 2> /dev/null)}")
  [[ $answers[1] == :* ]] && compset -P '--*='
  case $answers[1] in
    :folders) _files -/ ;;
    :files) _files ;;
    ?*) answers=("${(@)answers//:/\\:}") answers=("${(@)answers/$'\t'/:}") && _describe windrow answers ;;
  esac
}
if [[ $funcstack[1] == _windrow ]]; then _windrow "$@"; else compdef _windrow windrow; fi
)";

constexpr const char* fish = R"(# Completes windrow in fish.
function __windrow_complete
  set -l words (commandline -opc) (commandline -ct)
  set -l answers ($words[1] complete $words[2..-1] 2> /dev/null)
  set -l flag (string match -r '^--[^=]*=' -- $words[-1])
  switch "$answers[1]"
    case :folders
      set answers "$flag"(__fish_complete_directories (string replace -- "$flag" '' $words[-1]))
    case :files
      set answers "$flag"(__fish_complete_path (string replace -- "$flag" '' $words[-1]))
  end
  string join -- \n $answers
end
complete -c windrow -f -a '(__windrow_complete)'
)";

/// Prints the word and its meaning if it begins with the typed text.
void offer(const std::string& word, const std::string& typed, const std::string& about) {
  if (word.starts_with(typed)) print_text(word + "\t" + about + "\n");
}

/// Completes a value after `before`, which the shell takes for a part of the word.
void complete_value(const FlagFacts& flag, const std::string& before, const std::string& typed) {
  if (flag.value == "DIR") return print_text(":folders\n");
  if (flag.value == "FILE" || flag.value == "PATH") return print_text(":files\n");
  const std::string kept = before + typed.substr(0, flag.several ? typed.rfind(',') + 1 : 0);
  for (const std::string& choice : flag.choices) offer(kept + choice, before + typed, flag.about);
}

void complete_flag(const CLI::App& command, const std::string& typed) {
  for (const FlagFacts& flag : flags_of(command)) {
    if (!flag.positional) offer(flag.name, typed, flag.about);
  }
}

}  // namespace

void complete(const CLI::App& app, std::vector<std::string> words) {
  if (words.size() < 2) {
    const std::string typed = words.empty() ? "" : words.back();
    for (const CLI::App* command : commands_of(app)) offer(command->get_name(), typed, command->get_description());
    return complete_flag(app, typed);
  }
  const std::vector<const CLI::App*> commands = commands_of(app);
  const auto command = std::ranges::find(commands, words.front(), &CLI::App::get_name);
  if (command == commands.end()) return;
  std::string typed = words.back(), before;
  words.pop_back();
  if (const std::size_t equals = typed.find('='); typed.starts_with("--") && equals != std::string::npos) {
    before = typed.substr(0, equals + 1);
    words.push_back(typed.substr(0, equals));
    typed.erase(0, before.size());
  } else if (typed == "=") {  // bash takes it for a word
    typed.clear();
  } else if (words.back() == "=") {
    words.pop_back();
  }
  for (const FlagFacts& flag : flags_of(**command)) {
    const bool follows = flag.positional ? words.size() == 1 && !typed.starts_with('-') : flag.name == words.back();
    if (follows && !flag.value.empty()) return complete_value(flag, before, typed);
  }
  complete_flag(**command, typed);
}

void add_completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  CLI::App& command = *app.add_subcommand("completion", "Prints a script that completes this program's arguments.");
  flag(command, "shell", *shell, "Shell that reads the script", one_of({"bash", "zsh", "fish"}))->required();
  command.footer(
      "Installed files complete without further steps. Otherwise, add to the start file of the shell:\n"
      "  bash  source <(windrow completion bash)\n"
      "  zsh   source <(windrow completion zsh)\n"
      "  fish  windrow completion fish | source");
  command.callback([shell] { print_text(*shell == "bash" ? bash : *shell == "zsh" ? zsh : fish); });
}

}  // namespace windrow::program
