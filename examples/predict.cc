// A model that `windrow train listops --save DIR` has trained finds the values of nested lists.
#include <windrow/models/saved_model.h>

#include <cstdio>

int main(int argc, char** argv) try {
  const char* folder = argc > 1 ? argv[1] : "run";
  windrow::Engine engine;
  const windrow::Workload model = windrow::load_model(windrow::host_device(engine), folder);
  const std::vector<std::string> lines = {"[MAX 2 9 [MIN 4 7 ] ]", "[SM 3 4 ]"}, labels = model.network->labels();
  for (const windrow::Prediction& prediction : model.network->predict(lines)) {
    const std::size_t best = prediction.label->number;
    std::printf("%s, with probability %.2f\n", labels[best].c_str(), prediction.label->probabilities[best]);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
