// A folder for each test, because tests of one or several builds run concurrently; and what its files hold.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>

namespace windrow::testing {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

/// A new folder. The destructor removes it.
struct TestFolder {
  TestFolder() {
    std::string name = ::testing::TempDir() + "windrow_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the test");
    path = name;
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string file(const std::string& name) const { return (path / name).string(); }
  std::set<std::string> files() const { return names_in(path); }

  std::filesystem::path path;
};

/// A test with a folder of its own.
class FileTest : public ::testing::Test {
  const TestFolder own_;

 protected:
  const std::filesystem::path& folder = own_.path;
};

}  // namespace windrow::testing
