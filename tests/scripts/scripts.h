// Calls of the scripts.
#pragma once

#include "tests/programs/programs.h"

namespace windrow::testing {

class Scripts : public Programs {
 protected:
  /// A program in the test's folder that prints this, and its arguments to NAME.log.
  void make(const std::string& name, const std::string& prints) const {
    std::ofstream(folder / name) << "#!/bin/sh\necho \"$*\" >> " << in(name + ".log") << "\necho '" << prints << "'\n";
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
  }

  /// Each call, by its flags, ends with status 2, and with a line on standard error that ends so.
  void expect_script_refusals(const std::string& call,
                              const std::vector<std::pair<std::string, std::string>>& wrong) const {
    const std::string name = call.substr(0, call.find(' '));
    for (const auto& [flags, says] : wrong) {
      const Outcome outcome = run_script(call + " " + flags);
      EXPECT_TRUE(outcome.err.ends_with(name + ": " + says + "\n")) << outcome.err << says;
      EXPECT_EQ(outcome.out, "") << flags;
      EXPECT_EQ(outcome.status, 2) << flags;
    }
  }
  /// The file holds these texts, and no path of the test's folder.
  void expect_in(const std::string& file, const std::vector<std::string>& texts) const {
    const std::string text = read_file(folder / file);
    for (const std::string& one : texts) expect_has(text, one);
    expect_lacks(text, folder.string());
  }
};

}  // namespace windrow::testing
