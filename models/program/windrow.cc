// The program `windrow`: trains and uses the models in models/, explains how their graphs are batched, and lists
// devices.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "program/commands/commands.h"
#include "program/output/program.h"

int main(int argc, char** argv) {
  using namespace windrow;
#ifdef M_TRIM_THRESHOLD
  // Returns free memory at the end of heaps to the system. Otherwise glibc keeps up to twice the size of the largest
  // block that was ever freed, such as the text of a corpus.
  mallopt(M_TRIM_THRESHOLD, 128 << 10);
#endif
  CLI::App app(
      "Trains and uses dynamic neural networks with the Windrow runtime, and prints how their graphs are batched.",
      "windrow");
  app.set_version_flag("--version", "windrow " + program::version_text(), "Print the version and exit");
  app.require_subcommand(1);
  for (const auto add : {program::add_train, program::add_resume, program::add_eval, program::add_predict,
                         program::add_sample, program::add_export, program::add_explain, program::add_schedule,
                         program::add_simulate, program::add_devices, program::add_completion, program::add_man}) {
    add(app);
  }
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && words.front() == "complete") {
    program::complete(app, {words.begin() + 1, words.end()});
    return 0;
  }
  return program::run(app, argc, argv);
}
