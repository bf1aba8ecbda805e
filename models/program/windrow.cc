// The program `windrow`: trains and uses the models in models/, explains how their graphs are batched, and lists
// devices.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <utility>

#include "program/commands/commands.h"
#include "program/commands/export.h"
#include "program/output/program.h"

int main(int argc, char** argv) {
  using namespace windrow;
#ifdef M_TRIM_THRESHOLD
  // What threads free at the end of their heaps goes back to the system. Otherwise glibc keeps up to twice the size of
  // the largest block that was ever freed, such as the text of a corpus.
  mallopt(M_TRIM_THRESHOLD, 128 << 10);
#endif
  CLI::App app(
      "Trains and uses dynamic neural networks with the Windrow runtime, and prints how their graphs are batched.",
      "windrow");
  app.set_version_flag("--version", "windrow " + program::version_text(), "Print the version and exit");
  app.require_subcommand(1);
  const auto computing = [](program::Command command) -> program::Command {
    return [command = std::move(command)] {
      program::require_address_space();
      command();
    };
  };
  std::map<std::string, program::Command> commands;
  commands["train"] = computing(program::add_train(app));
  commands["resume"] = [resume = program::add_resume(app), train = commands["train"]] {
    resume();
    train();
  };
  commands["eval"] = computing(program::add_eval(app));
  commands["predict"] = computing(program::add_predict(app));
  commands["sample"] = computing(program::add_sample(app));
  commands["export"] = computing(program::add_export(app));
  commands["explain"] = computing(program::add_explain(app));
  commands["schedule"] = computing(program::add_schedule(app));
  commands["simulate"] = program::add_simulate(app);
  commands["devices"] = program::add_devices(app);
  commands["completion"] = program::add_completion(app);
  commands["man"] = program::add_man(app);
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words.front() == "complete") {
    program::complete(app, {words.begin() + 1, words.end()});
    return 0;
  }
  return program::run(app, argc, argv, [&] { commands.at(app.get_subcommands().front()->get_name())(); });
}
