// Finds the value of a nested list with a model that `windrow train listops` has trained, and `windrow export` has
// written to a file. Nothing of the model is compiled here: the file says what a vertex computes.
#include <windrow/training/program.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

namespace {

/// Adds the vertices of a list such as [MAX 2 9 [MIN 4 7 ] ], and returns the last one: each digit is a vertex, and
/// each list is one behind its elements.
std::int32_t read(std::istream& text, windrow::GraphData& graph) {
  static const std::vector<std::string> operators = {"[MAX", "[MIN", "[MED", "[SM"};
  std::vector<std::int32_t> elements;
  std::string word;
  text >> word;
  const auto found = std::ranges::find(operators, word);
  std::int32_t symbol =
      found == operators.end() ? std::stoi(word) : static_cast<std::int32_t>(found - operators.begin() + 10);
  while (found != operators.end() && (text >> std::ws).good() && text.peek() != ']')
    elements.push_back(read(text, graph));
  if (found != operators.end()) text.get();

  graph.children.insert(graph.children.end(), elements.begin(), elements.end());
  graph.child_begin.push_back(static_cast<std::int32_t>(graph.children.size()));
  graph.indices["symbol"].push_back(symbol);
  return static_cast<std::int32_t>(graph.child_begin.size()) - 2;
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
