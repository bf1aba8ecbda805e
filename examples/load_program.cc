// Finds the value of a nested list with a model that `windrow train listops` has trained, and `windrow export` has
// written to a file. Nothing of the model is compiled here: the file says what a vertex computes.
#include <windrow/training/program.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace {

/// Adds the vertices of a list such as [MAX 2 9 [MIN 4 7 ] ], and returns the number of the last one. A digit is a
/// vertex of kind 0, and a list is one of kind 1, whose children are its elements.
std::int32_t read(std::istream& text, windrow::GraphData& graph) {
  static const std::vector<std::string> operators = {"[MAX", "[MIN", "[MED", "[SM"};
  std::string word;
  text >> word;
  const auto found = std::ranges::find(operators, word) - operators.begin();
  const bool is_list = found < std::ssize(operators);
  std::vector<std::int32_t> elements;
  while (is_list && (text >> std::ws).good() && text.peek() != ']') elements.push_back(read(text, graph));
  if (is_list) text.get();

  graph.children.insert(graph.children.end(), elements.begin(), elements.end());
  graph.child_begin.push_back(static_cast<std::int32_t>(graph.children.size()));
  graph.kinds.push_back(is_list ? 1 : 0);
  graph.indices["symbol"].push_back(is_list ? static_cast<std::int32_t>(10 + found) : std::stoi(word));
  return static_cast<std::int32_t>(graph.kinds.size()) - 1;
}

}  // namespace

int main(int argc, char** argv) try {
  windrow::Engine engine;
  const windrow::Device host = windrow::host_device(engine);
  const windrow::LoadedProgram program = windrow::load_program(host, argc > 1 ? argv[1] : "listops.safetensors");
  const std::vector<std::string>& labels = program.lists.at("labels");

  windrow::GraphData data;
  std::istringstream text(argc > 2 ? argv[2] : "[MAX 2 9 [MIN 4 7 ] ]");
  const auto root = static_cast<std::size_t>(read(text, data));
  const windrow::InputGraph graph(program.function, data);
  const windrow::InputGraph* const graphs[] = {&graph};

  windrow::Runner runner(host, program.function, *program.parameters);
  const std::vector<float> logits = runner.run(graphs).output("logits").get();  // a row for each vertex
  const float* const row = logits.data() + root * labels.size();
  std::printf("the value is %s\n",
              labels[static_cast<std::size_t>(std::max_element(row, row + labels.size()) - row)].c_str());
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
