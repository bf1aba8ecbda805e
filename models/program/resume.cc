#include "resume.h"

#include <algorithm>
#include <memory>
#include <string>

#include "flags.h"
#include "run_options.h"

namespace windrow::program {

std::function<void()> add_resume(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "resume",
      "Continues a training from its newest checkpoint, with the options that it had; flags of windrow train "
      "after the folder overrule these.");
  const auto run = std::make_shared<std::string>();
  flag(command, "run", *run, "Folder of checkpoints, which windrow train --save has written", folder())->required();
  command.allow_extras();
  return [&app, &command, run] {
    std::vector<std::string> arguments = resuming_arguments(*run, command.remaining());
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    app.parse(arguments);
  };
}

}  // namespace windrow::program
