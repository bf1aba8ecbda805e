// The layout of --help.
#pragma once

namespace CLI {
class App;
}

namespace windrow::program {

/// Gives the program and all its commands one layout: each option on a line of its own, with its description, its
/// accepted values and its default.
void lay_out_help(CLI::App& app);

}  // namespace windrow::program
