// Programs printed as C++ source, which run without this library but for its kernels.
//
//   const windrow::PrintedSource source = windrow::print_source(host, {
//       .name = "perceptron",
//       .body = [&](const windrow::StaticInputs& call) -> std::vector<windrow::Tensor> { return {logits(call)}; },
//       .rows = 64, .width = 784, .parameters = {{"first", w}, ...}});
//
// Vertex functions are written as data; see windrow/training/program.h.
#pragma once
#include "windrow/engine/requirements.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "windrow/ops/static.h"

namespace windrow {

/// A value.
struct PrintedSource {
  std::string name;  ///< of its namespace: that of the program, and _model
  /// By name: model.h is the interface, model.cc what was printed of the program, main.cc a program for it, and
  /// CMakeLists.txt builds it; all others are the same for all programs. They need the headers and the library of the
  /// room ops.
  std::map<std::string, std::string> files = {};
  /// The names of the parameters that model.cc reads from a file in the format safetensors.
  std::vector<std::string> parameters = {};
};

/// A program of operators with one input, as the body of a Static.
struct StaticProgram {
  std::string name;
  Static::Body body;  ///< returns the outputs
  Index rows, width;  ///< of the input
  std::vector<std::pair<std::string, Tensor>> parameters = {};
  std::vector<std::string> outputs = {};  ///< names, as many as the body returns
};

/// Records the body once, as Static does, and prints its operators with planned addresses. The printed code computes
/// the same bits. Throws what the body throws, and MisuseError for a device other than the host, and for what cannot be
/// printed: an op that is no operator of operators.h, a view of a part of a tensor, and a tensor from outside that is
/// no parameter.
PrintedSource print_source(const Device& device, const StaticProgram& program);

}  // namespace windrow
