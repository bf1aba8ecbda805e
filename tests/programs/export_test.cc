// windrow export, and that C++ which print_source() prints compiles and gives the bits of the library.
#include <array>
#include <charconv>
#include <random>

#include "tests/programs/programs.h"
#include "windrow/models/internal/image_classifier.h"
#include "windrow/models/saved_model.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/static.h"
#include "windrow/training/program.h"
#include "windrow/training/tensor_file.h"

namespace windrow::testing {
namespace {

class Export : public Programs {
 protected:
  std::string at(const std::string& name) const { return "'" + (folder / name).string() + "'"; }
  void train(const std::string& flags) const {
    std::filesystem::remove_all(folder / "run");
    output("windrow train " + flags + " --hidden 8 --epochs 1 --save " + at("run"));
  }
  void refused(const std::string& flags, const std::string& says) const {
    expect_has(refusal_of(run("windrow export " + at("run") + " " + flags)), says);
    EXPECT_FALSE(std::filesystem::exists(folder / "file"));
  }
};

TEST_F(Export, WritesOneFileThatPredictsAsTheModelDoes) {
  train("listops --samples 32");
  output("windrow export " + at("run") + " --to " + at("file"));
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
    refused("--to " + at("file") + " " + old, "one file of data and not as C++ source; expected --to FILE");
  }
  refused("--out tree", "no --to; expected a file");
  refused("--to " + at("none/file"), "none");
  EXPECT_EQ(run("windrow export " + at("run") + " --to " + at("images")).err, "");
  train("parser --samples 4 --embedding 8");
  refused("--to " + at("file"), "this model cannot be exported");
  train("var-lstm --samples 4 --embedding 8");
  refused("--to " + at("file"), "it pushes no output");
  std::filesystem::create_directory(folder / "run/empty");
  EXPECT_EQ(run("windrow export " + at("run/empty") + " --to " + at("file")).status, 2) << "no checkpoint";
}

/// All numbers in the text, as floats.
std::vector<float> floats_in(const std::string& text) {
  std::vector<float> numbers;
  for (const char *at = text.data(), *const end = at + text.size(); at < end;) {
    float number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error == std::errc()) numbers.push_back(number);
    at = error == std::errc() ? rest : at + 1;
  }
  return numbers;
}

class PrintedPrograms : public Programs {
 protected:
  Outcome compute(const std::string& lines) const {
    std::ofstream(folder / "lines") << lines;
    return run_command("cd '" + folder.string() + "' && ./model weights.safetensors < lines");
  }
};

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
  std::vector<std::vector<float>> values;
  TensorFileContents weights;
  for (const Parameter& one : classifier.parameters) {
    const Tensor value = parameters.value(one);
    program.parameters.emplace_back(parameters.name(one), value);
    values.push_back(value.get());
    const auto rows_of = static_cast<std::uint64_t>(value.rows()), width = static_cast<std::uint64_t>(value.width());
    weights.tensors.push_back({parameters.name(one), {rows_of, width}, std::span<const float>(values.back())});
  }
  write_tensor_file(folder / "weights.safetensors", weights);
  const PrintedSource source = print_source(host, program);
  for (const auto& [name, text] : source.files) std::ofstream(folder / name) << text;
  expect_has(source.files.at("model.h"), "c++ -std=c++20 -O2 main.cc model.cc ");
  output_of(run_command(
      "cd '" + folder.string() +
      "' && " WINDROW_COMPILER
      " -std=c++20 -O1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror main.cc model.cc " WINDROW_OPS_FLAGS
      " -o model"));

  std::mt19937 random(1);
  std::vector<float> elements;
  std::string lines;
  for (Index i = 0; i < rows * pixels; ++i) {
    elements.push_back(static_cast<float>(random() % 256) / 256);
    std::array<char, 32> text{};
    lines += std::string(text.data(), std::to_chars(text.data(), text.data() + text.size(), elements.back()).ptr);
    lines += (i + 1) % pixels == 0 ? '\n' : ' ';
  }
  Tensor images(host, rows, pixels);
  images.set(std::move(elements));
  EXPECT_EQ(floats_in(output_of(compute(lines))), classifier.logits(apply_op, images).get());
  std::string zeros = " 0";
  for (Index i = 2; i < pixels; ++i) zeros += " 0";
  EXPECT_EQ(compute("1e-60" + zeros).out, compute("0" + zeros).out);
  expect_has(compute("1e39" + zeros).err, "'1e39'; expected a number");
  EXPECT_EQ(compute("1 2 3").status, 2);
  std::filesystem::resize_file(folder / "weights.safetensors", 100);
  expect_has(refusal_of(compute("0" + zeros)), "weights.safetensors: ");
}

}  // namespace
}  // namespace windrow::testing
