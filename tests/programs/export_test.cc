// windrow export: the printed programs compile, run, and give the bits of the library.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <random>
#include <regex>

#include "tests/programs/programs.h"
#include "windrow/models/exporting.h"
#include "windrow/models/graph_network.h"
#include "windrow/models/image_classifier.h"
#include "windrow/models/images.h"
#include "windrow/models/trainer.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/source.h"

namespace windrow::testing {
namespace {

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

class Export : public Programs {
 protected:
  std::string at(const std::string& name) const { return (folder / name).string(); }
  void train(const std::string& flags) const {
    const Outcome outcome = run("windrow train " + flags + " --epochs 1 --save '" + at("run") + "'");
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }
  /// Exports the trained model, and compiles the program.
  void compile(const std::string& flags = "") const {
    const Outcome exported = run("windrow export '" + at("run") + "' --out '" + at("exported") + "' " + flags);
    ASSERT_EQ(exported.status, 0) << exported.err;
    ASSERT_EQ(exported.err, "");
    EXPECT_NE(exported.out.find("c++ -std=c++20 -O2 main.cc model.cc "), std::string::npos) << exported.out;
    const Outcome made =
        run_command("cd '" + at("exported") +
                    "' && " WINDROW_COMPILER
                    " -std=c++20 -O1 -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror main.cc model.cc " +
                    WINDROW_OPS_FLAGS + " -o model");
    ASSERT_EQ(made.status, 0) << made.err;
  }
  Outcome compute(const std::vector<std::string>& lines, const std::string& flags = "") const {
    std::ofstream input(folder / "lines");
    for (const std::string& line : lines) input << line << "\n";
    input.close();
    return run_command("'" + at("exported/model") + "' '" + at("exported/weights.safetensors") + "' " + flags + " < '" +
                       at("lines") + "'");
  }
};

/// A graph as exported programs read it. The library's labels are no input of theirs.
std::string line_of(const GraphData& graph, const std::vector<std::string>& indices) {
  std::string line;
  const auto add = [&](const std::string& name, const auto& numbers) {
    line += (line.empty() ? "" : " ") + name + "=";
    for (std::size_t i = 0; i < numbers.size(); ++i) line += (i > 0 ? "," : "") + std::to_string(numbers[i]);
  };
  add("child_begin", graph.child_begin);
  add("children", graph.children);
  if (!graph.kinds.empty()) add("kinds", graph.kinds);
  for (const std::string& name : indices) add(name, graph.indices.at(name));
  return line;
}

/// A trained model of graphs as the library computes it.
struct Library {
  explicit Library(const std::filesystem::path& folder)
      : checkpoint(std::move(*CheckpointFolder(folder).newest().checkpoint)),
        workload(load_model(host_device(engine), folder)) {}

  GraphNetwork& network() const { return dynamic_cast<GraphNetwork&>(*workload.network); }
  GraphData read(const std::string& text) const { return network().texts->read(text, "text").graph; }
  /// The bits of the output "logits".
  std::vector<float> logits(const std::vector<GraphData>& data) const {
    Runner runner(host_device(engine), network().function(), *workload.parameters);
    runner.see(saved_vertex_types(checkpoint));
    std::vector<InputGraph> graphs;
    for (const GraphData& one : data) graphs.emplace_back(network().function(), one);
    std::vector<const InputGraph*> pointers;
    for (const InputGraph& graph : graphs) pointers.push_back(&graph);
    return runner.run(pointers).output("logits").get();
  }

  mutable Engine engine{{.workers = 2}};
  SavedCheckpoint checkpoint;
  Workload workload;
};

/// A binary tree in brackets over so many words.
std::string random_tree(std::size_t words, std::mt19937& random) {
  if (words == 1) return "(2 w" + std::to_string(random() % 50) + ")";
  const std::size_t left = 1 + random() % (words - 1);
  return "(2 " + random_tree(left, random) + " " + random_tree(words - left, random) + ")";
}

TEST_F(Export, OfATreeLstmGivesTheBitsOfTheLibrary) {
  train("tree-lstm --hidden 128 --embedding 64 --samples 64");
  compile();
  const Library library(folder / "run");
  std::mt19937 random(1);
  std::vector<GraphData> all;
  // From one small tree, to minibatches that are divided into groups, and their levels and phases into pieces.
  for (const std::size_t trees : {1u, 2u, 7u, 64u, 200u}) {
    std::vector<GraphData> graphs;
    std::vector<std::string> lines;
    for (std::size_t t = 0; t < trees; ++t) {
      graphs.push_back(library.read(random_tree(1 + random() % 40, random)));
      lines.push_back(line_of(graphs.back(), {"word"}));
    }
    const std::vector<float> expected = library.logits(graphs);
    for (const char* const threads : {"1", "3"}) {
      const Outcome outcome = compute(lines, std::string("--batch 1000 --threads ") + threads);
      ASSERT_EQ(outcome.status, 0) << outcome.err;
      EXPECT_EQ(floats_in(outcome.out), expected) << trees << " trees, " << threads << " threads";
      EXPECT_TRUE(outcome.out.starts_with("{\"logits\": [[")) << outcome.out;
    }
  }
  const Outcome measured = compute({line_of(library.read("(2 (2 a) (2 b))"), {"word"})}, "--seconds 0.01");
  EXPECT_TRUE(std::regex_match(measured.out, std::regex("[0-9.]+ graphs/s\n"))) << measured.out << measured.err;
  EXPECT_TRUE(std::filesystem::exists(folder / "exported/words.txt"));
  EXPECT_EQ(read_file(folder / "exported/labels.txt"), "very negative\nnegative\nneutral\npositive\nvery positive\n");
}

TEST_F(Export, RefusesGraphsThatDoNotFit) {
  train("tree-lstm --hidden 8 --embedding 8 --samples 16");
  compile();
  struct Bad {
    const char *line, *says;
  };
  for (const auto& [line, says] : {
           Bad{"child_begin=0,0,2 children=0,1 word=1,-1", "is its own descendant"},
           Bad{"child_begin=0,0,2 children=0,7 word=1,-1", "there is no vertex 7"},
           Bad{"child_begin=0,0,1 children=0 word=1,-1", "no vertex of the training set had just these children"},
           Bad{"child_begin=0,0,0,0,3 children=0,1,2 word=1,1,1,-1", "too many children"},
           Bad{"child_begin=0,0 children= word=", "no 'word'"},
           Bad{"child_begin=0,0 children= word=1,2", "input 'word' has 2 numbers; expected 1"},
           Bad{"child_begin=0,0 children=0 word=1", "1 children; expected child_begin to go from 0 to their number"},
           Bad{"child_begin=0,0 children= word=1 word=2", "'word' twice; expected it once"},
           Bad{"child_begin=0,0 children= word=1,", "'1,'; expected numbers"},
           Bad{"child_begin=0,0 children= word=99999999999", "'99999999999'; expected a number"},
           Bad{"child_begin=0,0 children= word=1000000", "expected 0 to"},
           Bad{"word=1", "line 1: no child_begin"},
           Bad{"child_begin=0,0 children= colour=1", "line 1: 'colour' is no member"},
           Bad{"child_begin=0,x children= word=1", "'x'; expected a number"},
           Bad{"children", "expected name=numbers"},
       }) {
    const Outcome outcome = compute({line});
    EXPECT_EQ(outcome.status, 2) << line;
    EXPECT_NE(outcome.err.find(says), std::string::npos) << line << ": " << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  EXPECT_EQ(compute({"child_begin=0 children= word="}).out, "{\"logits\": []}\n") << "no vertices";
  EXPECT_EQ(compute({}).out, "");
  // What the library cannot compute is found in the minibatch, and what is no graph before it.
  const std::string good = "child_begin=0,0 children= word=1";
  const Outcome all_good = compute({good, good + "\r"});
  EXPECT_EQ(std::count(all_good.out.begin(), all_good.out.end(), '\n'), 2) << all_good.err;
  for (const std::string bad : {"child_begin=0,0 children= word=1000000", "no graph"}) {
    const Outcome third = compute({good, good, bad, good});
    EXPECT_EQ(third.out, all_good.out);
    EXPECT_NE(third.err.find(": line 3: "), std::string::npos) << third.err;
    EXPECT_EQ(third.status, 2);
  }
  // Offsets that only fit if numbers overflow.
  const std::string file = read_file(folder / "exported/weights.safetensors");
  std::uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof(size));
  const std::string data = file.substr(8 + size);
  std::string header = file.substr(8, size);
  std::smatch offsets;
  ASSERT_TRUE(std::regex_search(header, offsets, std::regex(R"("data_offsets": *\[([0-9]+), *([0-9]+)\])")));
  const std::uint64_t bytes = std::stoull(offsets[2]) - std::stoull(offsets[1]);
  header.replace(static_cast<std::size_t>(offsets.position(0)), static_cast<std::size_t>(offsets.length(0)),
                 "\"data_offsets\":[" + std::to_string(0 - bytes) + ",0]");
  size = header.size();
  std::ofstream(folder / "exported/weights.safetensors", std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&size), sizeof(size)) << header << data;
  const Outcome hostile = compute({"child_begin=0,0 children= word=1"});
  EXPECT_EQ(hostile.status, 2);
  EXPECT_NE(hostile.err.find("weights.safetensors: "), std::string::npos) << hostile.err;
  std::ofstream(folder / "exported/weights.safetensors", std::ios::binary) << file;
  EXPECT_EQ(compute({"child_begin=0,0 children= word=1"}, "--batch 0.5").status, 2);
  std::filesystem::resize_file(folder / "exported/weights.safetensors", 100);
  const Outcome damaged = compute({"child_begin=0,0 children= word=1"});
  EXPECT_EQ(damaged.status, 2);
  EXPECT_NE(damaged.err.find("weights.safetensors: "), std::string::npos) << damaged.err;
}

TEST_F(Export, OfListsOfAnyLengthGivesTheBitsOfTheLibrary) {
  train("listops --hidden 32 --samples 64");
  compile();
  const Library library(folder / "run");
  std::vector<GraphData> graphs;
  std::vector<std::string> lines;
  for (const char* const text : {"[MAX 1 [MIN 2 3 ] 7 ]", "[SM 1 2 3 4 5 6 7 8 9 ]", "[MED [MED 1 ] [MAX 3 4 ] 5 ]"}) {
    graphs.push_back(library.read(text));
    lines.push_back(line_of(graphs.back(), {"symbol"}));
  }
  const Outcome outcome = compute(lines);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(floats_in(outcome.out), library.logits(graphs));
}

/// A tree over edges: children are weighed by attention.
TEST_F(Export, OfAttentionOverChildrenGivesTheBitsOfTheLibrary) {
  train("tree-lstm --cell attention --hidden 32 --embedding 32 --samples 64");
  compile();
  const Library library(folder / "run");
  std::mt19937 random(2);
  std::vector<GraphData> graphs;
  std::vector<std::string> lines;
  for (int t = 0; t < 40; ++t) {
    graphs.push_back(library.read(random_tree(1 + random() % 20, random)));
    lines.push_back(line_of(graphs.back(), {"word"}));
  }
  const Outcome outcome = compute(lines, "--threads 2");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(floats_in(outcome.out), library.logits(graphs));
}

TEST_F(Export, OfATaggerGivesTheBitsOfTheLibrary) {
  train("bilstm --hidden 16 --embedding 16 --layers 2 --samples 32");
  compile();
  const Library library(folder / "run");
  std::vector<GraphData> graphs;
  std::vector<std::string> lines;
  for (const char* const text : {"It works", "a", "one two three four five"}) {
    graphs.push_back(library.read(text));
    lines.push_back(line_of(graphs.back(), {"word"}));
  }
  const Outcome outcome = compute(lines);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(floats_in(outcome.out), library.logits(graphs));
}

/// What the classifiers of images compute, without the network around them.
std::vector<float> logits_of_images(const Library& library, bool convolutional, std::vector<float> pixels, Index rows) {
  const Device host = host_device(library.engine);
  Parameters parameters(host, 1);
  const auto& sizes = library.workload.options.sizes;
  const ImageClassifier classifier =
      convolutional ? make_convolutional(parameters, {.height = 28,
                                                      .width = 28,
                                                      .filters = sizes.at("filters"),
                                                      .more_filters = sizes.at("more-filters"),
                                                      .hidden = sizes.at("hidden"),
                                                      .classes = 10})
                    : make_perceptron(parameters, {.pixels = 28 * 28, .hidden = sizes.at("hidden"), .classes = 10});
  for (const Parameter& one : classifier.parameters) {
    parameters.value(one).set(
        library.workload.parameters->value(library.workload.parameters->find(parameters.name(one))).get());
  }
  Tensor images(host, rows, 28 * 28);
  images.set(std::move(pixels));
  const ApplyOperator apply_op = [&](const Operator& op, const Operands& operands) {
    return apply(host, op, operands);
  };
  return classifier.logits(apply_op, images).get();
}

class ExportOfImages : public Export, public ::testing::WithParamInterface<const char*> {};

TEST_P(ExportOfImages, GivesTheBitsOfTheLibrary) {
  const std::string model = GetParam();
  const bool convolutional = model == "cnn";
  train(model + (convolutional ? " --filters 4 --more-filters 6" : "") + " --hidden 64 --samples 32");
  constexpr Index rows = 70;
  compile("--batch " + std::to_string(rows));
  std::mt19937 random(1);
  std::vector<float> pixels;
  std::vector<std::string> lines;
  for (Index r = 0; r < rows; ++r) {
    std::string line;
    for (int i = 0; i < 28 * 28; ++i) {
      pixels.push_back(static_cast<float>(random() % 256) / 256);
      std::array<char, 32> text{};
      const auto end = std::to_chars(text.data(), text.data() + text.size(), pixels.back()).ptr;
      line += (i > 0 ? " " : "") + std::string(text.data(), end);
    }
    lines.push_back(line);
  }
  const Outcome outcome = compute(lines);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Library library(folder / "run");
  EXPECT_EQ(floats_in(outcome.out), logits_of_images(library, convolutional, pixels, rows));
  EXPECT_EQ(compute({"1 2 3"}).status, 2);
  const std::string zeros = [] {
    std::string text = "0";
    for (int i = 1; i < 28 * 28; ++i) text += " 0";
    return text;
  }();
  EXPECT_EQ(compute({"1e-60" + zeros.substr(1)}).out, compute({zeros}).out);
  EXPECT_NE(compute({"1e39" + zeros.substr(1)}).err.find("'1e39'; expected a number"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(All, ExportOfImages, ::testing::Values("mlp", "cnn"),
                         [](const auto& one) { return std::string(one.param); });

TEST_F(Export, OfImagesOfAnotherSizeThanGeneratedOnes) {
  LabelledImages images = generate_digits(16, 1);
  images.height = 49;  // the same bytes as fewer images
  images.width = 64;
  images.labels.resize(4);
  images.pixels.resize(4 * 49 * 64);
  for (const char* const part : {"train", "t10k"}) {
    std::ofstream pixels(folder / (std::string(part) + "-images-idx3-ubyte"), std::ios::binary),
        labels(folder / (std::string(part) + "-labels-idx1-ubyte"), std::ios::binary);
    write_idx(images, pixels, labels);
  }
  for (const std::string model : {"mlp", "cnn"}) {
    const std::string run_folder = at(model);
    const Outcome trained = run("windrow train " + model + " --hidden 8 --epochs 1 --data '" + folder.string() +
                                "' --save '" + run_folder + "'");
    ASSERT_EQ(trained.status, 0) << trained.err;
    const Outcome exported =
        run("windrow export '" + run_folder + "' --name digits --out '" + at(model + "_exported") + "'");
    EXPECT_EQ(exported.status, 0) << exported.err;
    const std::string header = read_file(folder / (model + "_exported") / "model.h");
    EXPECT_NE(header.find("width = 3136"), std::string::npos) << header;
    EXPECT_NE(header.find("namespace digits {"), std::string::npos) << header;
  }
  EXPECT_EQ(run("windrow export '" + at("mlp") + "' --name time --out '" + at("none") + "'").err,
            "windrow: --name: 'time'; expected a C++ name, and none of the C library; see windrow export --help\n");
}

TEST_F(Export, RefusesFoldersThatAreNotEmptyAndModelsThatCannotBePrinted) {
  train("parser --samples 4 --hidden 8 --embedding 8");
  const auto refused = [&](const std::string& out, const std::string& says) {
    const Outcome outcome = run("windrow export '" + at("run") + "' --out '" + at(out) + "'");
    EXPECT_EQ(outcome.status, 2);
    EXPECT_NE(outcome.err.find(says), std::string::npos) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  };
  refused("run", "a folder that is not empty");
  refused("exported", "this model cannot be exported");
  EXPECT_FALSE(std::filesystem::exists(folder / "exported"));
  std::ofstream(folder / "file") << "x";
  refused("file", "a file; expected an empty folder");
  std::filesystem::remove_all(folder / "run");
  train("seq2seq --samples 4 --hidden 8 --embedding 8");
  refused("exported", "seq2seq cannot be exported: attention");
  std::filesystem::remove_all(folder / "run");
  train("var-lstm --samples 4 --hidden 8 --embedding 8");
  refused("exported", "it pushes no output");
  std::filesystem::create_directory(folder / "empty");
  EXPECT_EQ(run("windrow export '" + at("empty") + "' --out '" + at("exported") + "'").status, 2) << "no checkpoint";
  EXPECT_EQ(run("windrow export '" + at("run") + "'").status, 2) << "no --out";
}

}  // namespace
}  // namespace windrow::testing
