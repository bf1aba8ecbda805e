// Shared by tests of training: folders with data, and access to a workload's graphs and parameters.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "windrow/models/graph_network.h"
#include "windrow/models/trainer.h"

namespace windrow::testing {

/// A new folder with the given texts by file name. The destructor removes it.
struct TextFolder {
  explicit TextFolder(const std::map<std::string, std::string>& texts) {
    std::string name = ::testing::TempDir() + "windrow_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the test");
    path = name;
    for (const auto& [file, text] : texts) std::ofstream(path / file) << text;
  }
  ~TextFolder() { std::filesystem::remove_all(path); }
  TextFolder(const TextFolder&) = delete;
  TextFolder& operator=(const TextFolder&) = delete;

  std::filesystem::path path;
};

/// The network of a workload whose graphs exist from the beginning.
inline GraphNetwork& graphs_of(const Workload& workload) { return dynamic_cast<GraphNetwork&>(*workload.network); }

inline std::vector<std::vector<float>> parameters_of(const Workload& workload) {
  std::vector<std::vector<float>> values;
  const Parameters& parameters = *workload.parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) values.push_back(parameters.value(parameters[i]).get());
  return values;
}

}  // namespace windrow::testing
