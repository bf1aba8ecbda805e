// scripts/site. The test site.builds builds the pages of this tree.
#include <filesystem>
#include <fstream>

#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

namespace fs = std::filesystem;

class SiteScript : public Programs {
 protected:
  /// A tree with the script, the site's sources and a few pages.
  SiteScript() {
    const fs::path root = WINDROW_SOURCE_DIR;
    for (const char* name : {"docs/site", "scripts/site", "CMakeLists.txt"}) {
      fs::create_directories((folder / name).parent_path());
      fs::copy(root / name, folder / name, fs::copy_options::recursive);
    }
    fs::create_directories(folder / "perf/results");
    std::ofstream(folder / "perf/results/README.md") << "# Results\n";
    std::ofstream(folder / "README.md") << "# First page\n";
    std::ofstream(folder / "docs/page.md") << "# Page\n\n[first](../README.md#first-page), [last](#no-such-heading)\n";
    std::ofstream(folder / "docs/site/contents.md")
        << "\n```{toctree}\n:hidden:\n\ndocs/page\ndocs/api\ndocs/headers\nperf/results/README\n```\n";
    std::ofstream(folder / "docs/headers.md") << "# Headers\n";
  }
  Outcome site(const std::string& flags) const { return run_command("cd " + in("") + "&& scripts/site " + flags); }
};

TEST_F(SiteScript, EndsWithOneLineAndStatus2) {
  for (const auto& [flags, says] : std::vector<std::pair<std::string, std::string>>{
           {"--fast", "unknown argument '--fast'; expected --out DIR"},
           {"--out", "--out: no folder; expected one"},
           {"--out docs", "--out docs has other files; expected a new folder, or one of an earlier site"}}) {
    expect_refused(site(flags), "scripts/site: " + says + "\n");
  }
}

TEST_F(SiteScript, FailsForALinkToAHeadingThatIsNotThere) {
  const Outcome outcome = site("");
  if (outcome.err.starts_with("scripts/site: missing: ")) GTEST_SKIP() << outcome.err;
  expect_has(outcome.err, "docs/page.md:3: ");
  expect_has(outcome.err, "no-such-heading");
  expect_lacks(outcome.err, "first-page");
  EXPECT_EQ(outcome.status, 1);
}

}  // namespace
}  // namespace windrow::testing
