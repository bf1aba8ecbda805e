// Programs for inference: a vertex function with its weights in one file, which `windrow export` writes.
//
//   windrow::Engine engine;
//   const windrow::Device host = windrow::host_device(engine);
//   const windrow::LoadedProgram program = windrow::load_program(host, "listops.safetensors");
//   windrow::Runner runner(host, program.function, *program.parameters);
//   const windrow::InputGraph graph(program.function, {.child_begin = {0, 0, 0, 2}, .children = {0, 1}, ...});
//   const windrow::InputGraph* const graphs[] = {&graph};
//   const std::vector<float> logits = runner.run(graphs).output("logits").get();
//
// Knows no models, and no code that made the function. docs/export.md describes the file.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "windrow/batching/runner.h"
#include "windrow/training/tensor_file.h"

namespace windrow {

/// Texts by number, such as the words of a vocabulary or labels.
using ProgramLists = std::map<std::string, std::vector<std::string>>;

/// An owner; must end before the engine of its device.
struct LoadedProgram {
  /// Numbers of each vertex, or of each edge.
  struct Field {
    std::string name;
    Index width;
    friend bool operator==(const Field&, const Field&) = default;
  };

  std::unique_ptr<Parameters> parameters;
  VertexFunction function;
  std::vector<std::string> kinds;                                 ///< names; GraphData::kinds has their numbers
  std::vector<Field> indices, values, edge_indices, edge_values;  ///< what members of GraphData have by these names
  std::vector<Field> tensors;                                     ///< GivenTensors of each call
  std::vector<Field> outputs;                                     ///< of Minibatch::output()
  ProgramLists lists;
};

/// Reads a program, and copies its weights to the device. For the same calls, a runner of the program gives the same
/// bits as a runner of the saved function.
///
/// Throws FileError for a file that cannot be read, is damaged, is no program, or has a newer version, and for an
/// operator for which the device has no kernel. Before the call, add the kernels of your own operators to
/// Device::kernels; these operators must have no attributes. Loading a damaged or hostile file takes at most a few
/// times its size of memory. A runner accepts graphs of its function, but its numbers can be anything.
LoadedProgram load_program(const Device& device, const std::filesystem::path& file);

/// The contents of save_program(). A view.
struct ProgramContents {
  const VertexFunction& function;
  Parameters& parameters;
  ProgramLists lists = {};  ///< their texts without line breaks
};
/// Writes a program as a whole file (see WholeFile): the part of the function that its outputs need, without losses.
/// Waits for the values of the parameters. Throws MisuseError for a function without outputs or with parameters of
/// other sets, and for texts that a file cannot hold; FileError if writing fails.
void save_program(const std::filesystem::path& file, const ProgramContents& contents);

}  // namespace windrow
