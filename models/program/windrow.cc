// The program `windrow`: trains and uses the models in models/, prints how their graphs are batched, and lists devices.
#include "devices.h"
#include "explain.h"
#include "flags.h"
#include "program.h"
#include "schedule.h"
#include "train.h"
#include "use.h"

int main(int argc, char** argv) {
  using namespace windrow;
  CLI::App app(
      "Trains and uses dynamic neural networks with the Windrow runtime, and prints how their graphs are batched.",
      "windrow");
  app.require_subcommand(1);
  const std::function<void()> train = program::add_train(app);
  const std::function<void()> eval = program::add_eval(app);
  const std::function<void()> predict = program::add_predict(app);
  const std::function<void()> explain = program::add_explain(app);
  const std::function<void()> schedule = program::add_schedule(app);
  const std::function<void()> devices = program::add_devices(app);
  return program::run(app, argc, argv, [&] {
    if (app.got_subcommand("train")) return train();
    if (app.got_subcommand("eval")) return eval();
    if (app.got_subcommand("predict")) return predict();
    if (app.got_subcommand("explain")) return explain();
    app.got_subcommand("devices") ? devices() : schedule();
  });
}
