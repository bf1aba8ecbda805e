// What tests of the programs share: a folder for each, runs by the shell, and what they printed.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace windrow::testing {

struct Outcome {
  std::string out, err;
  int status;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A folder of its own for each test, since tests run side by side, and of several builds too.
class Programs : public ::testing::Test {
 protected:
  Programs() {
    std::string name = ::testing::TempDir() + "windrow_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for the test");
    folder = name;
  }
  ~Programs() override { std::filesystem::remove_all(folder); }

  /// Runs one of the programs by the shell, which may send its output elsewhere.
  Outcome run(const std::string& command, const std::string& to = {}) const {
    return run_from("'" WINDROW_BIN "'/", command, to);
  }
  /// The same of the scripts.
  Outcome run_script(const std::string& command) const {
    return run_from("'" WINDROW_SOURCE_DIR "'/scripts/", command);
  }

  std::filesystem::path folder;

 private:
  Outcome run_from(const std::string& where, const std::string& command, const std::string& to = {}) const {
    const auto out = folder / "out", err = folder / "err";
    const std::string target = to.empty() ? ">'" + out.string() + "'" : to;
    const int status = std::system((where + command + " " + target + " 2>'" + err.string() + "'").c_str());
    return {read_file(out), read_file(err), WEXITSTATUS(status)};
  }
};

/// The number of that field, in one line of JSON.
inline double field(const std::string& line, const std::string& name) {
  const std::size_t at = line.find("\"" + name + "\": ");
  EXPECT_NE(at, std::string::npos) << name << " in " << line;
  return at == std::string::npos ? 0 : std::atof(line.c_str() + at + name.size() + 4);
}

/// What a program prints, by line.
inline std::vector<std::string> lines_of(const Outcome& outcome) {
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.status, 0);
  std::istringstream text(outcome.out);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

}  // namespace windrow::testing
