// Plug-ins: shared libraries with code that needs what not every machine has, such as CUDA or MPI. For other rooms of
// this project; programs need none of it.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <string>

namespace windrow {

/// Where a plug-in is, and what it gives. A value.
struct PlugIn {
  const char* file;      ///< its name; looked for beside the program, in ../lib/windrow, and where the system looks
  const char* variable;  ///< of the environment: the path to use instead, if it is set and not empty
  const char* function;  ///< takes nothing, and returns the address of the plug-in's table, which begins with an int
  int version;           ///< that this int must have
  const char* purpose;   ///< for errors: "MPI cannot be used: ..."
  const char* needs;     ///< for errors: "expected the plug-in of a build with ... there or where VARIABLE says ..."
  bool global = false;   ///< whether its libraries' own plug-ins look for their symbols
};

struct OpenedPlugIn {
  const void* table = nullptr;
  std::string error = {};  ///< one line, if there is no table
};

/// Opens the library, for the life of the process. May be called from any thread.
OpenedPlugIn open_plug_in(const PlugIn& what);

}  // namespace windrow
