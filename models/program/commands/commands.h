// The commands of `windrow`: each function adds one; what it returns runs it, once the arguments have been parsed.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace windrow::program {

using Command = std::function<void()>;

Command add_train(CLI::App& app);
/// Has the app parse the arguments of `windrow train` that go on with a training; run the command train then.
Command add_resume(CLI::App& app);
// Use a trained model.
Command add_eval(CLI::App& app);
Command add_predict(CLI::App& app);
Command add_sample(CLI::App& app);
// Look at models and machines.
Command add_explain(CLI::App& app);
Command add_schedule(CLI::App& app);
Command add_simulate(CLI::App& app);
Command add_devices(CLI::App& app);
Command add_completion(CLI::App& app);
/// Add it last: it describes all commands of the app.
Command add_man(CLI::App& app);

/// Prints what can stand in place of the last word, for the scripts of add_completion(): a line for each word, a tab,
/// and what it means; or ":files" or ":folders".
void complete(const CLI::App& app, std::vector<std::string> words);

}  // namespace windrow::program
