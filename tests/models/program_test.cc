// Programs in files: they give the bits of the functions that were saved, and damaged ones are refused, or run.
#include "windrow/training/program.h"

#include "tests/batching/mixed_cell.h"
#include "tests/batching/random_function.h"
#include "tests/models/training.h"
#include "windrow/batching/internal/ir.h"
#include "windrow/models/internal/image_classifier.h"
#include "windrow/training/record.h"
#include "windrow/training/tensor_file.h"

namespace windrow {
namespace {

using testing::error_of, testing::first_seed, testing::Form, testing::Graphs, testing::graphs_of, testing::TextFolder;

class Programs : public ::testing::Test {
 protected:
  using Outputs = std::map<std::string, std::vector<float>>;

  static Outputs outputs_of(Runner& runner, const VertexFunction& function, const std::vector<GraphData>& data) {
    const Graphs graphs(function, data);
    const Minibatch minibatch = runner.run(graphs.pointers);
    Outputs outputs;
    for (const ir::Field& field : ir::function_of(function).outputs) {
      outputs[field.name] = minibatch.output(field.name).get();
    }
    return outputs;
  }
  LoadedProgram through_file(const VertexFunction& function, Parameters& parameters) const {
    save_program(file, {.function = function, .parameters = parameters});
    return load_program(host, file);
  }
  /// Minibatch by minibatch, since later ones depend on the vertex types of earlier ones.
  void expect_same(const VertexFunction& function, Parameters& parameters,
                   const std::vector<std::vector<GraphData>>& minibatches) const {
    const LoadedProgram program = through_file(function, parameters);
    Runner saved(host, function, parameters), loaded(host, program.function, *program.parameters);
    for (const std::vector<GraphData>& data : minibatches) {
      EXPECT_TRUE(outputs_of(saved, function, data) == outputs_of(loaded, program.function, data));
    }
  }
  template <class Cell>
  void expect_same_cell(const VertexFunction& function, Parameters& parameters) const {
    std::mt19937 random(first_seed());
    std::vector<std::vector<GraphData>> minibatches(3);
    for (std::vector<GraphData>& data : minibatches) {
      for (const std::int32_t size : {1, 7, 0, 20}) {
        data.push_back(testing::graph_for<Cell>(size, static_cast<Form>(random() % 3), random));
      }
    }
    expect_same(function, parameters, minibatches);
  }
  template <class Cell>
  void expect_same_cell() const {
    Parameters parameters(host, 1);
    const Cell cell(parameters);
    expect_same_cell<Cell>({"cell", testing::shape_of<Cell>(), [&](Vertex& v) { cell(v); }}, parameters);
  }

  TextFolder folder{{}};
  const std::filesystem::path file = folder.path / "program.safetensors";
  mutable Engine engine{{.workers = 2}};
  const Device host = host_device(engine);
};

TEST_F(Programs, GiveTheBitsOfCellsThatWereSaved) {
  expect_same_cell<testing::TreeLstm>();
  expect_same_cell<testing::OddCell>();
  expect_same_cell<testing::MixedCell>();
  expect_same_cell<testing::AttendingCell>();
  Parameters parameters(host, 1);
  const testing::Kinds kinds(parameters);
  expect_same_cell<testing::Kinds>(kinds.function(), parameters);
}

TEST_F(Programs, GiveTheBitsOfRandomFunctionsThatWereSaved) {
  for (unsigned seed = first_seed(); seed < first_seed() + 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Parameters parameters(host, seed);
    const testing::RandomFunction body(random, parameters);
    const VertexFunction function("random", {.arity = body.arity}, [&](Vertex& v) { body(v); });
    std::vector<GraphData> data;
    for (const std::int32_t size : {1, 6, 0, 9}) {
      data.push_back(testing::random_graph(size, body.arity, static_cast<Form>(random() % 3), random));
    }
    expect_same(function, parameters, {data, data});
  }
}

/// A binary tree in brackets over so many words.
std::string random_tree(std::size_t words, std::mt19937& random) {
  if (words == 1) return "(2 w" + std::to_string(random() % 50) + ")";
  const std::size_t left = 1 + random() % (words - 1);
  return "(2 " + random_tree(left, random) + " " + random_tree(words - left, random) + ")";
}

// From one small tree, to minibatches that are divided into groups, and their levels and phases into pieces.
TEST_F(Programs, GiveTheBitsOfTheModelsThatWereSaved) {
  struct Model {
    const char *name, *cell, *switched_on;
    std::vector<std::string> texts;
  };
  std::mt19937 random(first_seed());
  const auto trees = [&](std::size_t count) {
    std::vector<std::string> texts;
    while (texts.size() < count) texts.push_back(random_tree(1 + random() % 40, random));
    return texts;
  };
  for (const auto& [name, cell, switched_on, texts] : {
           Model{"tree-lstm", "", "", trees(testing::sanitized ? 8 : 200)},
           Model{"tree-lstm", "attention", "", trees(40)},
           Model{"listops", "", "", {"[MAX 1 [MIN 2 3 ] 7 ]", "[SM 1 2 3 4 5 6 7 8 9 ]", "[MED [MED 1 ] 5 ]"}},
           Model{"bilstm", "", "", {"It works", "a", "one two three four five"}},
           Model{"bilstm", "", "crf", {"It works", "a"}},
           Model{"bilstm-char", "", "", {"It works", "a", "one two three four five"}},
       }) {
    SCOPED_TRACE(std::string(name) + " " + cell + " " + switched_on);
    WorkloadOptions options{.samples = 16, .cell = cell};
    if (*switched_on != 0) options.switches = {switched_on};
    const Workload workload = make_workload(name, host, options);
    const GraphNetwork& network = graphs_of(workload);
    std::vector<GraphData> data;
    for (const std::string& text : texts) data.push_back(network.texts->read(text, "text").graph);
    expect_same(network.function(), *workload.parameters, {{data[0]}, data, {data[1]}});
  }
}

TEST_F(Programs, ComputeImagesAsTheClassifiersDo) {
  for (const bool convolutional : {false, true}) {
    Parameters parameters(host, 1);
    const Index pixels = 20 * 20, images = 3;
    const ImageClassifier classifier =
        convolutional
            ? make_convolutional(
                  parameters, {.height = 20, .width = 20, .filters = 3, .more_filters = 4, .hidden = 8, .classes = 10})
            : make_perceptron(parameters, {.pixels = pixels, .hidden = 8, .classes = 10});
    const LoadedProgram program = through_file(
        {"images", {}, [&](Vertex& v) { v.push("logits", classifier.logits_of_vertex(v.pull("pixels", pixels))); }},
        parameters);
    EXPECT_EQ(program.values, (std::vector<LoadedProgram::Field>{{"pixels", pixels}}));
    std::mt19937 random(first_seed());
    GraphData data{.child_begin = {0, 0, 0, 0}};
    std::vector<float>& elements = data.values["pixels"];
    while (elements.size() < images * pixels) elements.push_back(static_cast<float>(random() % 256) / 256);
    const Tensor tensor(host, images, pixels);
    tensor.set(elements);
    const ApplyOperator apply_op = [&](const Operator& op, const Operands& operands) {
      return apply(host, op, operands);
    };
    const std::vector<float> expected = classifier.logits(apply_op, tensor).get();
    Runner runner(host, program.function, *program.parameters);
    const std::vector<float> logits = outputs_of(runner, program.function, {data}).at("logits");
    testing::expect_near(logits, expected, 1e-5);
  }
}

TEST_F(Programs, SayWhatTheyPullAndHoldWhatOutputsNeed) {
  Parameters parameters(host, 1);
  const Parameter table = parameters.add("table", 4, 3, Initial::uniform(-1, 1));
  const Parameter of_loss = parameters.add("of loss", 3, 5, Initial::uniform(-1, 1));
  const VertexFunction function("chain", {.arity = any_arity}, [&](Vertex& v) {
    const State h = v.state("h", 3), aside = v.state("of losses", 5);
    const Expr own = embedding(table, v.pull_index("word")) + v.pull("x", 3);
    const Expr value = own + sum_children(v.each(h) * v.pull_edge("weight", 3));
    v.scatter(h, value);
    v.scatter(aside, matmul(value, of_loss));
    v.push("h", value);
    v.loss(softmax_cross_entropy(matmul(value, of_loss) + sum_children(v.each(aside)), v.pull_index("label")));
  });
  const ProgramLists lists = {{"words", {"a", "", "b"}}, {"none", {}}};
  save_program(file, {.function = function, .parameters = parameters, .lists = lists});
  const LoadedProgram program = load_program(host, file);
  using Fields = std::vector<LoadedProgram::Field>;
  EXPECT_EQ(program.function.name(), "chain");
  EXPECT_EQ(program.kinds, std::vector<std::string>{"chain"});
  EXPECT_EQ(program.indices, (Fields{{"word", 1}}));
  EXPECT_EQ(program.values, (Fields{{"x", 3}}));
  EXPECT_EQ(program.edge_values, (Fields{{"weight", 3}}));
  EXPECT_EQ(program.edge_indices, Fields());
  EXPECT_EQ(program.outputs, (Fields{{"h", 3}}));
  EXPECT_EQ(program.parameters->size(), 1u);
  EXPECT_EQ(program.lists, lists);
  const VertexFunction silent("silent", {}, [](Vertex& v) { v.loss(row_sum(v.pull("x", 2))); });
  EXPECT_EQ(error_of<MisuseError>([&] { save_program(file, {.function = silent, .parameters = parameters}); }),
            "silent: it pushes no output; expected one to save");
  EXPECT_THROW(save_program(file, {.function = function, .parameters = parameters, .lists = {{"a", {"b\nc"}}}}),
               MisuseError);
}

/// A small program that has most of what functions have, in memory, to be damaged.
class DamagedPrograms : public Programs {
 protected:
  DamagedPrograms() {
    Parameters parameters(host, 1);
    const testing::MixedCell cell(parameters);
    const Parameter drawn = parameters.add("drawn", 1, 4, Initial::uniform(-1, 1));
    const VertexFunction mixed("mixed", testing::shape_of<testing::MixedCell>(), [&](Vertex& v) {
      cell(v);
      const Expr x = v.pull("image", 16);
      const Expr image =
          max_pool2d(dropout(x, {.rate = 0.5}),
                     {.channels = 1, .height = 4, .width = 4, .window_height = 2, .window_width = 2, .stride = 2});
      v.push("pooled", layer_norm(top_k(tanh(image) * drawn, 3) * v.constant(3, 2.5)));
    });
    const VertexFunction leaf("leaf", {}, [&](Vertex& v) {
      const Expr x = matmul(v.pull("x", 2), cell.own) + apply(op::transpose, {v.parameter(cell.out)}) -
                     pow(v.pull_row("given", 3), 2);
      v.scatter(v.state("h", 3), x);
      v.scatter(v.state("c", 2), slice(x, 0, 2));
      v.push("largest", clamp(x, -1, 1));
    });
    save_program(file, {.function = {"all", {mixed, leaf}}, .parameters = parameters, .lists = {{"words", {"a"}}}});
    bytes = testing::read_file(file);
    const TensorFile whole(file);
    record = Record::parse(whole.metadata().at("windrow program"), "program");
    for (const StoredTensor& tensor : whole.tensors()) {
      whole.read(tensor.name, tensor.shape, values.emplace_back(tensor.bytes / 4));
      contents.tensors.push_back({tensor.name, tensor.shape, std::span<const float>(values.back())});
    }
  }
  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); }

  /// Loads the file, and runs what it says. Returns why it was refused, or nothing.
  std::string why_refused() const {
    try {
      run(load_program(host, file));
      return {};
    } catch (const FileError& error) {
      const std::string what = error.what();
      EXPECT_TRUE(what.starts_with(file.string() + ": ")) << what;
      EXPECT_EQ(what.find('\n'), what.npos) << what;
      EXPECT_LT(what.size(), 1000u) << what;
      return what;
    }
  }
  std::string why_refused(const std::string& content) const {
    std::ofstream(file, std::ios::binary) << content;
    return why_refused();
  }
  std::string why_refused(const Record& changed) {
    contents.metadata["windrow program"] = changed.json();
    write_tensor_file(file, contents);
    return why_refused();
  }
  /// Graphs may be refused, and indices be out of range.
  void run(const LoadedProgram& program) const {
    for (const std::size_t arity : {0, 4}) {
      try {
        const GraphData data = graph_of(program, arity);
        const InputGraph graph(program.function, data);
        const InputGraph* const pointer = &graph;
        Runner runner(host, program.function, *program.parameters);
        GivenTensors given;
        for (const auto& [name, width] : program.tensors) {
          const Tensor rows(host, graph.vertices(), width);
          rows.set(std::vector<float>(static_cast<std::size_t>(graph.vertices() * width), 0.5f));
          given.emplace(name, Given{rows});
        }
        const Minibatch minibatch = runner.run(std::span(&pointer, 1), given);
        for (const auto& [name, width] : program.outputs) static_cast<void>(minibatch.output(name).get());
      } catch (const MisuseError&) {
      } catch (const OpError&) {
      }
    }
  }
  /// Three leaves, and a vertex with the first `arity` of them (and missing ones), of alternating kinds.
  static GraphData graph_of(const LoadedProgram& program, std::size_t arity) {
    GraphData data{.child_begin = {0, 0, 0, 0}};
    for (std::size_t k = 0; k < arity; ++k) data.children.push_back(k == 3 ? no_child : static_cast<std::int32_t>(k));
    if (arity == 4) data.children.back() = 0;
    data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
    if (program.function.kinds() > 1) data.kinds = {1, 0, 1, 0};
    const auto fill = [](const auto& fields, auto& to, std::size_t rows) {
      for (const auto& [name, width] : fields) {
        if (width <= 1000) to[name].assign(rows * static_cast<std::size_t>(width), 1);
      }
    };
    fill(program.indices, data.indices, 4);
    fill(program.values, data.values, 4);
    fill(program.edge_indices, data.edge_indices, data.children.size());
    fill(program.edge_values, data.edge_values, data.children.size());
    return data;
  }

  /// Changes one value somewhere in the record: a number, a name, or how often a list has an element.
  RecordValue changed(const RecordValue& value, std::size_t& left) {
    Record record_of_value;
    record_of_value.set("v", value);
    const std::string json = record_of_value.json(JsonStyle::compact);
    const char kind = json[json.find(':') + 1] == ' ' ? json[json.find(':') + 2] : json[json.find(':') + 1];
    if (kind == '{') return changed(value.record(), left);
    if (kind == '[') {
      RecordValue::List list = value.list();
      if (!list.empty() && left-- == 0) {
        const std::size_t at = below(list.size());
        const RecordValue again = list[at];
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
        if (below(2) == 0) list.insert(list.end(), 2, again);
        return list;
      }
      for (RecordValue& one : list) one = changed(one, left);
      return list;
    }
    if (left-- != 0) return value;
    static const std::vector<std::string> names = {"edges",       "gather",       "apply",     "fill",    "given",
                                                   "row",         "gradient_row", "dropout",   "sibling", "concat",
                                                   "segment_max", "sum_parts",    "transpose", "x\n"};
    if (kind == '"') return names[below(names.size())];
    if (json.find_first_of(".e") != json.npos) return std::vector{0.0, -1.0, 1e39, 1e-50, std::nan("")}[below(5)];
    const std::int64_t numbers[] = {0, 1, 2, 3, -1, -2, 5, 31, 32, 1 << 20, INT32_MAX, INT64_MAX, INT64_MIN};
    return below(3) == 0 ? numbers[below(std::size(numbers))] : value.integer() + (below(2) == 0 ? 1 : -1);
  }
  Record changed(const Record& of, std::size_t& left) {
    Record result;
    for (const auto& [name, value] : of.values()) {
      if (left == 0 && below(4) == 0) {
        --left;  // left out
        continue;
      }
      result.set(name, changed(value, left));
    }
    return result;
  }

  std::string bytes;
  Record record;
  std::deque<std::vector<float>> values;
  TensorFileContents contents;
  std::mt19937_64 random{first_seed()};
};

TEST_F(DamagedPrograms, AreRefusedWhereverTheyEnd) {
  ASSERT_EQ(why_refused(bytes), "");
  for (std::size_t end = 0; end < bytes.size(); end += 61) {
    ASSERT_NE(why_refused(bytes.substr(0, end)), "") << end;
  }
}

TEST_F(DamagedPrograms, AreRefusedOrRunWithFlippedBits) {
  const std::size_t cases = testing::sanitized ? 100 : 500;
  std::size_t refused = 0;
  for (std::size_t i = 0; i < cases; ++i) {
    std::string damaged = bytes;
    for (std::size_t n = 0; n <= below(3); ++n) damaged[below(damaged.size())] ^= static_cast<char>(1 << below(8));
    refused += why_refused(damaged).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, cases / 4) << "seed " << first_seed();
}

// The file around them is whole, so that only the checks of the function can find what is wrong.
TEST_F(DamagedPrograms, AreRefusedOrRunWithOtherFunctions) {
  const std::size_t cases = testing::sanitized ? 100 : 300;
  std::size_t refused = 0;
  for (std::size_t i = 0; i < cases; ++i) {
    Record damaged = record;
    for (std::size_t n = 0; n <= below(2); ++n) {
      std::size_t left = below(900);
      damaged = changed(damaged, left);
    }
    refused += why_refused(damaged).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, cases / 4) << "seed " << first_seed();
  EXPECT_LT(refused, cases) << "seed " << first_seed();
}

TEST_F(DamagedPrograms, SayWhatIsWrong) {
  const std::string begin = file.string() + ": ";
  Record other = record;
  EXPECT_EQ(why_refused(other.set("version", 2u)), begin +
                                                       "program has format version 2; this program reads up to 1; "
                                                       "expected a file of this version, or a newer program");
  EXPECT_EQ(why_refused("hello"), begin + "has 5 bytes; expected a tensor file, at least 8 bytes");
  contents.metadata.clear();
  write_tensor_file(file, contents);
  EXPECT_EQ(why_refused(), begin + "tensors that are no program; expected a file that windrow export has written");
  contents.tensors.push_back({"more", {1, 1}, std::span<const float>(values.front()).first(1)});
  EXPECT_EQ(why_refused(record), begin + "tensors that it does not use; expected its parameters");
  contents.tensors.erase(contents.tensors.begin());
  EXPECT_NE(why_refused(record).find("has no tensor '"), std::string::npos);
  testing::expect_error<FileError>([&] { load_program(host, folder.path / "none"); }, "No such file");
}

}  // namespace
}  // namespace windrow
