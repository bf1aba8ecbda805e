#include <memory>
#include <string>

#include "program/commands/commands.h"
#include "program/options/flags.h"
#include "program/output/program.h"
#include "program/training/saving.h"
#include "windrow/engine/error.h"
#include "windrow/models/saved_model.h"
#include "windrow/ops/device.h"

namespace windrow::program {
namespace {

struct ExportArguments {
  std::string folder, to, unused;
};

void export_folder(const ExportArguments& arguments) {
  if (!arguments.unused.empty()) {
    throw MisuseError(
        "--out, --batch and --name are no longer used, since a model is exported as one file of data and not "
        "as C++ source; expected --to FILE");
  }
  const SavedCheckpoint checkpoint = newest_checkpoint(arguments.folder);
  Engine engine({.workers = 1});
  const ToldOnce once(engine);
  export_model(host_device(engine), checkpoint, arguments.to);
}

}  // namespace

void add_export(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "export", "Writes a trained model to one file, which programs can run without the model's code.");
  const auto to = std::make_shared<ExportArguments>();
  flag(command, "run", to->folder, "Folder of checkpoints, which windrow train --save has written", folder())
      ->required();
  flag(command, "--to", to->to, "The file, in the format safetensors", new_file())->required();
  for (const char* const old : {"--out", "--batch", "--name"}) {
    command.add_option(old, to->unused)->group("");  // hidden
  }
  command.footer(
      "windrow::load_program() of windrow/training/program.h reads the file, and gives the bits of the library. It\n"
      "holds the vertex function with its weights, the vocabularies and the labels.");
  computes(command, [to] { export_folder(*to); });
}

}  // namespace windrow::program
