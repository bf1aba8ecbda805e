// A training that is saved, and goes on in another engine with the same bits.
#include "windrow/training/checkpoint.h"

#include <filesystem>
#include <iostream>

#include "windrow/batching/lazy.h"

namespace {

/// A line through three points.
struct Training {
  windrow::Engine engine;
  windrow::Device host = windrow::host_device(engine);
  windrow::Parameters parameters{host, 1};
  windrow::Parameter w = parameters.add_product("w", 2, 1);
  windrow::LazyGraph graph{host, parameters};
  windrow::Optimiser optimiser{parameters, windrow::Method::adam(), {.rate = 0.1}};

  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      graph.backward(std::vector{loss({1, 0}, 2), loss({0, 1}, -1), loss({1, 1}, 1)});
      optimiser.step(3);
      graph.clear();
    }
  }
  windrow::LazyExpr loss(std::initializer_list<float> x, float y) {
    return squared_distance(matmul(graph.input(x), w), graph.input({y}));
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
    const windrow::Snapshot snapshot({first.parameters, &first.optimiser});
    writer.write(snapshot.contents(50));
    // How a lazy graph batches, and so how it rounds, depends on what it has learned, which no checkpoint has: so this
    // one forgets it, too. A Runner also has a forget().
    first.graph.forget();
    first.steps(50);
  }
  Training second;
  const windrow::NewestCheckpoint newest = windrow::CheckpointFolder(folder).newest();
  const windrow::SavedCheckpoint& checkpoint = newest.checkpoint.value();
  windrow::restore(checkpoint, {second.parameters, &second.optimiser});
  second.steps(50);
  const bool same = second.parameters.value(second.w).get() == first.parameters.value(first.w).get();
  std::cout << "after step " << second.optimiser.progress().steps << ": " << (same ? "the same bits" : "other bits")
            << "\n";
  std::filesystem::remove_all(folder);
  return same ? 0 : 1;
}
