// Shell completions and the manual page: the commands `windrow completion` and `windrow man`, made from the flags that
// --help shows.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace windrow::program {

/// Adds both commands; what they return runs them, once the arguments have been parsed. Add them last: both describe
/// all commands of the app.
std::function<void()> add_completion(CLI::App& app);
std::function<void()> add_man(CLI::App& app);

/// A script for "bash", "zsh" or "fish".
std::string completion_script(const CLI::App& app, const std::string& shell);
/// Section 1, in the macros of man.
std::string manual_page(const CLI::App& app);

}  // namespace windrow::program
