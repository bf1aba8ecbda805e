// scripts/size, in a tree of few files.
#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

class SizeScript : public Programs {
 protected:
  SizeScript() {
    std::filesystem::create_directories(folder / "scripts");
    std::filesystem::copy(std::filesystem::path(WINDROW_SOURCE_DIR) / "scripts/size", folder / "scripts/size");
    write("engine/include/windrow/engine/var.h", "// A variable.\n\nclass Var {\n  int value;\n};\n");
    write("engine/include/windrow/engine/internal/detail.h", "struct Detail {};\n");
    write("engine/src/var.cc", "/* Two\n   lines */\nint one;\n");
    write("docs/engine.md", "One line.\n");
  }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << text;
  }
};

TEST_F(SizeScript, CountsCodeCommentsHeadersAndTypes) {
  const auto lines = lines_of(run_there("scripts/size"));
  const auto has = [&](const std::string& expression) {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return std::regex_match(line, std::regex(expression)); });
  };
  EXPECT_TRUE(has(" +code +comments +largest folder +headers +types"));
  EXPECT_TRUE(has("engine +5 +3 +1 +1 +1"));
  EXPECT_TRUE(has("all rooms +5 +3 +1 +1 +1"));
  EXPECT_TRUE(has("docs/ +1"));
  EXPECT_FALSE(has("Warning.*"));
}

TEST_F(SizeScript, WarnsAboveALimit) {
  for (int i = 0; i < 24; ++i) write("engine/src/file" + std::to_string(i) + ".cc", "int x;\n");
  EXPECT_EQ(lines_of(run_there("scripts/size")).back(), "Warning: all rooms, largest folder: 25; the limit is 24");
}

TEST_F(SizeScript, RefusesSeveralRevisions) { EXPECT_EQ(run_there("scripts/size one two").status, 2); }

}  // namespace
}  // namespace windrow::testing
