// A training that is saved, and goes on in another engine with the same bits.
#include "windrow/training/checkpoint.h"

#include <filesystem>
#include <iostream>

#include "windrow/batching/runner.h"

namespace {

/// A line through three points.
struct Training {
  windrow::Engine engine;
  windrow::Device host = windrow::host_device(engine);
  windrow::Parameters parameters{host, 1};
  windrow::Parameter w = parameters.add_product("w", 2, 1);
  windrow::VertexFunction line{
      "line", {}, [this](windrow::Vertex& v) { v.loss(squared_distance(matmul(v.pull("x", 2), w), v.pull("y", 1))); }};
  windrow::InputGraph graph{line,
                            {.child_begin = {0, 0, 0, 0}, .values = {{"x", {1, 0, 0, 1, 1, 1}}, {"y", {2, -1, 1}}}}};
  windrow::Runner runner{host, line, parameters};
  windrow::Optimiser optimiser{parameters, windrow::Method::adam(), {.rate = 0.1}};

  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      runner.differentiate(std::vector{&graph});
      optimiser.step(3);
    }
  }
};

}  // namespace

int main() {
  const auto folder = std::filesystem::temp_directory_path() / "windrow-example-checkpoint";
  std::filesystem::remove_all(folder);
  Training first;
  {
    first.steps(50);
    windrow::CheckpointWriter writer(folder);
    writer.write(windrow::Snapshot({first.parameters, &first.optimiser}).contents(50));
    first.steps(50);  // as if nothing had happened
  }
  Training second;
  const windrow::NewestCheckpoint newest = windrow::CheckpointFolder(folder).newest();
  windrow::restore(newest.checkpoint.value(), {second.parameters, &second.optimiser});
  second.steps(50);
  const bool same = second.parameters.value(second.w).get() == first.parameters.value(first.w).get();
  std::cout << "after step " << second.optimiser.progress().steps << ": " << (same ? "the same bits" : "other bits")
            << "\n";
  std::filesystem::remove_all(folder);
  return same ? 0 : 1;
}
