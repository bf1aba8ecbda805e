// The commands of `windrow`: each function adds one to the app, which runs it when it has parsed its arguments.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace windrow::program {

void add_train(CLI::App& app);
/// The command makes the app parse, and so run, the arguments of `windrow train` that continue a training.
void add_resume(CLI::App& app);
// Use a trained model.
void add_eval(CLI::App& app);
void add_predict(CLI::App& app);
void add_sample(CLI::App& app);
void add_export(CLI::App& app);
// Look at models and machines.
void add_explain(CLI::App& app);
void add_schedule(CLI::App& app);
void add_simulate(CLI::App& app);
void add_devices(CLI::App& app);
void add_completion(CLI::App& app);
/// Add it last: it describes all commands of the app.
void add_man(CLI::App& app);

/// Prints the completions of the last word, for the scripts of add_completion(): a line with the word, a tab and its
/// meaning for each; or ":files" or ":folders".
void complete(const CLI::App& app, std::vector<std::string> words);

}  // namespace windrow::program
