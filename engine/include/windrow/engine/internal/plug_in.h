// Plug-ins: shared libraries whose code needs libraries that not every machine has, such as CUDA or MPI. For other
// parts of this project; programs do not need this header.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <string>

namespace windrow {

/// Where a plug-in is, and what it provides. A value.
struct PlugIn {
  const char* file;      ///< its name; searched for beside the program, in ../lib/windrow, and as dlopen searches
  const char* variable;  ///< environment variable with the path to use instead, if it is set and not empty
  const char* function;  ///< has no parameters; returns the address of the plug-in's table, which begins with an int
  int version;           ///< required value of this int
  const char* purpose;   ///< for errors: "MPI cannot be used: ..."
  const char* needs;     ///< for errors: "a build with ..."
  bool global = false;   ///< whether plug-ins of its libraries need the symbols of these libraries
};

struct OpenedPlugIn {
  const void* table = nullptr;
  std::string error = {};  ///< one line, if there is no table
};

/// Opens the library, for the life of the process. May be called from any thread.
OpenedPlugIn open_plug_in(const PlugIn& what);

}  // namespace windrow
