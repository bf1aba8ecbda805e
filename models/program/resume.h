// The command `windrow resume`.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace windrow::program {

/// Adds the command. Returns what it does: it has the app parse the arguments of `windrow train` that go on with a
/// training; run the command train then.
std::function<void()> add_resume(CLI::App& app);

}  // namespace windrow::program
