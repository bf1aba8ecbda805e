// The program `windrow`: trains and uses the models in models/, explains how their graphs are batched, and lists
// devices.
#include <malloc.h>

#include <map>

#include "about.h"
#include "devices.h"
#include "explain.h"
#include "export.h"
#include "flags.h"
#include "manual.h"
#include "program.h"
#include "resume.h"
#include "schedule.h"
#include "simulate.h"
#include "train.h"
#include "use.h"

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
  std::map<std::string, std::function<void()>> commands;
  commands["train"] = program::add_train(app);
  commands["resume"] = [resume = program::add_resume(app), train = commands["train"]] {
    resume();
    train();
  };
  commands["eval"] = program::add_eval(app);
  commands["predict"] = program::add_predict(app);
  commands["sample"] = program::add_sample(app);
  commands["export"] = program::add_export(app);
  commands["explain"] = program::add_explain(app);
  commands["schedule"] = program::add_schedule(app);
  commands["simulate"] = program::add_simulate(app);
  commands["devices"] = program::add_devices(app);
  commands["completion"] = program::add_completion(app);
  commands["man"] = program::add_man(app);
  return program::run(app, argc, argv, [&] { commands.at(app.get_subcommands().front()->get_name())(); });
}
