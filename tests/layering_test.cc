// The layers of the tree: what each room may include, and facts that need no more than lines of files.
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/tree_files.h"

namespace windrow::testing {
namespace {

/// What a room may include besides itself and the standard library.
struct Allowed {
  std::set<std::string> rooms, libraries;
};
const std::map<std::string, Allowed> layers = {
    {"engine",
     {.rooms = {},
      .libraries = {"oneapi", "tbb", "concurrentqueue", "nlohmann", "spdlog", "pthread.h", "dlfcn.h", "linux",
                    "sched.h", "sys", "unistd.h"}}},
    {"memory", {.rooms = {"engine"}, .libraries = {"sys", "malloc.h", "unistd.h"}}},
    {"ops", {.rooms = {"engine", "memory"}, .libraries = {"dnnl.h", "hwy"}}},
    {"comm", {.rooms = {"engine", "memory", "ops"}, .libraries = {"mpi.h", "nccl.h"}}},
    {"batching", {.rooms = {"engine", "memory", "ops"}, .libraries = {}}},
    {"training",
     {.rooms = {"engine", "memory", "ops", "comm", "batching"},
      .libraries = {"nlohmann", "dirent.h", "fcntl.h", "sys", "unistd.h"}}},
    {"cuda",
     {.rooms = {"engine", "memory", "ops", "batching"},
      .libraries = {"cublas_v2.h", "cuda.h", "cuda_runtime_api.h", "dlfcn.h", "elementwise_formulas.h", "nvrtc.h",
                    "nvtx3", "unistd.h"}}},
    {"models",
     {.rooms = {"engine", "memory", "ops", "batching", "training", "cuda", "comm"},
      .libraries = {"CLI", "dnnl.h", "execinfo.h", "fcntl.h", "malloc.h", "sys", "unistd.h", "zlib.h"}}},
    {"perf",
     {.rooms = {"engine", "memory", "ops", "batching", "training", "cuda", "comm", "models"},
      .libraries = {"sys", "unistd.h", "malloc.h", "devices.h", "mpi_calls.h", "program.h", "flags.h", "peak.h",
                    "model.h", "nlohmann", "oneapi", "omp.h", "taskflow", "starpu.h", "dynet"}}},
    {"python",
     {.rooms = {"engine", "memory", "ops", "batching", "training", "cuda", "comm", "models"},
      .libraries = {"nanobind", "unistd.h"}}},
};

std::vector<std::string> includes_of(const fs::path& file) {
  std::vector<std::string> result;
  for (const std::string& line : lines_of(file)) {
    if (line.starts_with("#include ")) result.push_back(line.substr(10, line.find_last_of("\">") - 10));
  }
  return result;
}

std::string first_part(const std::string& path) { return path.substr(0, path.find('/')); }

bool is_standard(const std::string& include) { return include.find_first_of("./") == std::string::npos; }

using Check = std::function<void(const std::string& room, const fs::path& file, const std::string& include)>;
void for_each_include(const Check& check) {
  for (const auto& [room, allowed] : layers) {
    for (const fs::path& file : sources_of(room)) {
      for (const std::string& include : includes_of(file)) check(room, file, include);
    }
  }
}

TEST(Layering, RoomsIncludeOnlyWhatLiesBelowThem) {
  std::size_t seen = 0;
  for_each_include([&](const std::string& room, const fs::path& file, const std::string& include) {
    if (!include.starts_with("windrow/")) return;
    ++seen;
    const std::string other = first_part(include.substr(8));
    EXPECT_TRUE(other == room || layers.at(room).rooms.contains(other))
        << file << " includes " << include << ", which " << room << " may not";
  });
  EXPECT_GT(seen, 500u);
}

TEST(Layering, RoomsUseOnlyTheirLibraries) {
  for_each_include([&](const std::string& room, const fs::path& file, const std::string& include) {
    const bool own = include.starts_with("windrow/") || fs::exists(file.parent_path() / include) ||
                     fs::exists(root / room / include) || fs::exists(root / room / "src" / include);
    EXPECT_TRUE(is_standard(include) || own || layers.at(room).libraries.contains(first_part(include)))
        << file << " includes " << include << ", which is none of the libraries of " << room;
  });
}

TEST(Layering, ARoomReachesNoOthersPrivateFiles) {
  for_each_include([&](const std::string&, const fs::path& file, const std::string& include) {
    EXPECT_EQ(include.find(".."), std::string::npos) << file << " includes " << include;
    EXPECT_EQ(include.find("/src/"), std::string::npos) << file << " includes " << include;
  });
}

TEST(Layering, TheReferenceUsesNoLibrary) {
  const std::set<std::string> own = {"checks.h", "operators/attributes.h", "reference/reference.h"};
  for (const fs::path& file : sources_of("ops")) {
    if (file.parent_path().filename() != "reference") continue;
    for (const std::string& include : includes_of(file)) {
      EXPECT_TRUE(is_standard(include) || include.starts_with("windrow/ops/") || own.contains(include))
          << file << ": " << include;
    }
  }
}

TEST(Layering, PublicHeadersFirstCheckWhatTheyRequire) {
  const std::string first = "windrow/engine/internal/requirements.h";
  for (const auto& [room, allowed] : layers) {
    for (const fs::path& file : sources_of(room)) {
      if (file.string().find("/include/windrow/") == std::string::npos || file.string().ends_with(first)) continue;
      const std::vector<std::string> includes = includes_of(file);
      EXPECT_TRUE(!includes.empty() && includes[0] == first) << file << "; expected " << first;
    }
  }
}

TEST(Layering, ExamplesNeedNoInternalHeader) {
  for (const fs::path& file : sources_of("examples")) {
    for (const std::string& include : includes_of(file)) {
      EXPECT_EQ(include.find("/internal/"), std::string::npos) << file << " includes " << include;
    }
  }
}

TEST(Layering, FilesHoldOneIdea) {
  std::vector<std::string> folders = {"tests", "examples"};
  for (const auto& [room, allowed] : layers) folders.push_back(room);
  for (const std::string& folder : folders) {
    for (const fs::path& file : sources_of(folder)) EXPECT_LE(lines_of(file).size(), 400u) << file;
  }
  for (const char* folder : {"python", "tests/python", "examples/python"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const bool python = entry.path().extension() == ".py";
      EXPECT_LE(python ? lines_of(entry.path()).size() : 0u, 400u) << entry.path();
    }
  }
  EXPECT_LE(lines_of(root / "docs/design.md").size(), 250u) << "newcomers read it in ten minutes";
}

}  // namespace
}  // namespace windrow::testing
