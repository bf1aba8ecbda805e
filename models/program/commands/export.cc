#include "program/commands/export.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <string_view>

#include "program/options/flags.h"
#include "program/training/saving.h"
#include "windrow/models/exporting.h"
#include "windrow/ops/device.h"
#include "windrow/ops/printing.h"

namespace windrow::program {
namespace {

struct ExportArguments {
  std::string folder, to;
  ExportOptions options;
};

Check name_of_namespace() {
  const std::string expected = "a C++ name, and none of the C library";
  return {"NAME", expected, [expected](std::string& text) {
            const bool good = print::namespace_name(text) == text;
            return good ? std::string() : "'" + text + "'; expected " + expected;
          }};
}

/// A name as the shell reads it back.
std::string as_typed(const std::string& name) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("/._-+").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (std::ranges::all_of(name, plain)) return name;
  std::string typed = "'";
  for (const char c : name) typed += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return typed + "'";
}

void export_folder(const ExportArguments& arguments) {
  const SavedCheckpoint checkpoint = newest_checkpoint(arguments.folder);
  Engine engine({.workers = 1});
  const ToldOnce once(engine);
  const std::string command = export_model(host_device(engine), checkpoint, arguments.to, arguments.options);
  print("cd %s && %s\n", as_typed(arguments.to).c_str(), command.c_str());
}

}  // namespace

std::function<void()> add_export(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "export", "Writes a trained model as C++ source and weights, which compile with one command, and prints it.");
  const auto to = std::make_shared<ExportArguments>();
  flag(command, "run", to->folder, "Folder of checkpoints, which windrow train --save has written", folder())
      ->required();
  flag(command, "--out", to->to, "Folder for the program: an empty one, or a new one", new_folder())->required();
  flag(command, "--batch", to->options.rows, "Of mlp and cnn: images that the recorded schedule computes together",
       whole_number(1, 1 << 16));
  flag(command, "--name", to->options.name, "Of the program and its namespace; by default that of the network",
       name_of_namespace())
      ->default_str("");
  command.footer(
      "The program computes what the model puts out, with the same bits, by the kernels of the library windrow-ops.\n"
      "It does not label texts: its graphs have numbers of words, as the lines of words.txt have them from 1 on.");
  return [to] { export_folder(*to); };
}

}  // namespace windrow::program
