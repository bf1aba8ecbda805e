// windrow export, and that C++ which print_source() prints compiles and gives the bits of the library.
#include <random>

#include "tests/programs/programs.h"
#include "windrow/models/internal/image_classifier.h"
#include "windrow/models/saved_model.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/static.h"
#include "windrow/training/program.h"

namespace windrow::testing {
namespace {

class Export : public Programs {
 protected:
  void train(const std::string& flags) const {
    std::filesystem::remove_all(folder / "run");
    output("windrow train " + flags + " --hidden 8 --epochs 1 --save " + in("run"));
  }
  void refused(const std::string& flags, const std::string& says) const {
    expect_has(refusal_of(run("windrow export " + in("run") + " " + flags)), says);
    EXPECT_FALSE(std::filesystem::exists(folder / "file"));
  }
};

TEST_F(Export, WritesOneFileThatPredictsAsTheModelDoes) {
  train("listops --samples 32");
  output("windrow export " + in("run") + " --to " + in("file"));
  Engine engine;
  const Device host = host_device(engine);
  const LoadedProgram program = load_program(host, folder / "file");
  EXPECT_EQ(program.lists.at("labels").size(), 10u);
  Runner runner(host, program.function, *program.parameters);
  const InputGraph graph(
      program.function,
      {.child_begin = {0, 0, 0, 2}, .children = {0, 1}, .kinds = {0, 0, 1}, .indices = {{"symbol", {3, 4, 10}}}});
  const InputGraph* const graphs[] = {&graph};
  const Minibatch minibatch = runner.run(graphs);
  const std::vector<float> probabilities = apply(host, op::softmax, {.in = {minibatch.output("logits")}}).get();
  const std::vector<std::string> lines = {"[MAX 3 4 ]"};
  const std::vector<double> expected = load_model(host, folder / "run").network->predict(lines)[0].label->probabilities;
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), probabilities.end() - 10));
}

TEST_F(Export, RefusesModelsWithoutOutputsAndFlagsOfPrintedSource) {
  train("mlp --samples 8");
  refused("", "--to");
  for (const char* const old : {"--out tree", "--batch 3", "--name x"}) {
    refused("--to " + in("file") + " " + old, "one file of data and not as C++ source; expected --to FILE");
  }
  refused("--out tree", "no --to; expected a file");
  refused("--to " + in("none/file"), "none");
  EXPECT_EQ(run("windrow export " + in("run") + " --to " + in("images")).err, "");
  train("parser --samples 4 --embedding 8");
  refused("--to " + in("file"), "this model cannot be exported");
  train("var-lstm --samples 4 --embedding 8");
  refused("--to " + in("file"), "it pushes no output");
  std::filesystem::create_directory(folder / "run/empty");
  EXPECT_EQ(run("windrow export " + in("run/empty") + " --to " + in("file")).status, 2) << "no checkpoint";
}

class PrintedPrograms : public Programs {};

TEST_F(PrintedPrograms, GiveTheBitsOfTheLibrary) {
  constexpr Index rows = 70, pixels = 28 * 28;
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters(host, 1);
  const ImageClassifier classifier = make_convolutional(
      parameters, {.height = 28, .width = 28, .filters = 4, .more_filters = 6, .hidden = 64, .classes = 10});
  const ApplyOperator apply_op = [&](const Operator& op, const Operands& operands) {
    return apply(host, op, operands);
  };
  StaticProgram program{.name = "digits",
                        .body = [&](const StaticInputs& inputs) -> std::vector<Tensor> {
                          return {classifier.logits(apply_op, inputs.in.at(0))};
                        },
                        .rows = rows,
                        .width = pixels,
                        .outputs = {"logits"}};
  std::vector<float> numbers;  // the weights, then the input
  std::string weights;         // of Weights
  for (const Parameter& one : classifier.parameters) {
    const Tensor value = parameters.value(one);
    program.parameters.emplace_back(parameters.name(one), value);
    const std::vector<float> elements = value.get();
    weights += "all.subspan(" + std::to_string(numbers.size()) + ", " + std::to_string(elements.size()) + "), ";
    numbers.insert(numbers.end(), elements.begin(), elements.end());
  }
  const std::size_t begin = numbers.size();
  std::mt19937 random(1);
  for (Index i = 0; i < rows * pixels; ++i) numbers.push_back(static_cast<float>(random() % 256) / 256);
  const auto bytes = [](auto& floats) { return reinterpret_cast<char*>(floats.data()); };
  std::ofstream(folder / "numbers").write(bytes(numbers), static_cast<std::streamsize>(4 * numbers.size()));
  const PrintedSource source = print_source(host, program);
  for (const auto& [name, text] : source.files) std::ofstream(folder / name) << text;
  expect_has(source.files.at("model.h"), "c++ -std=c++20 -O2 -c model.cc ");
  std::ofstream(folder / "main.cc")
      << "#include <cstdio>\n#include <stdexcept>\n#include \"model.h\"\nint main() {\n"
         "  std::vector<float> numbers("
      << numbers.size()
      << ");\n  if (std::fread(numbers.data(), 4, numbers.size(), stdin) == 0) return 1;\n"
         "  const std::span<const float> all = numbers;\n"
         "  digits_model::Predictor predictor({"
      << weights << "});\n  const auto logits = predictor.run(all.subspan(" << begin
      << ")).logits;\n  std::fwrite(logits.data(), 4, logits.size(), stdout);\n"
         "  try {\n    static_cast<void>(predictor.run(all));\n"
         "  } catch (const std::invalid_argument&) {\n    return 0;\n  }\n  return 1;\n}\n";
  const std::string printed = output_of(run_command(
      "cd '" + folder.string() +
      "' && " WINDROW_COMPILER
      " -std=c++20 -O1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror main.cc model.cc " WINDROW_OPS_FLAGS
      " -o model && ./model < numbers"));
  Tensor images(host, rows, pixels);
  images.set({numbers.begin() + static_cast<std::ptrdiff_t>(begin), numbers.end()});
  std::vector<float> logits(rows * 10);
  ASSERT_EQ(printed.size(), 4 * logits.size());
  std::ranges::copy(printed, bytes(logits));
  EXPECT_EQ(logits, classifier.logits(apply_op, images).get());
}

}  // namespace
}  // namespace windrow::testing
