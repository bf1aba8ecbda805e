// Opening the plug-in library for MPI.
#pragma once

#include <string>

#include "plugin/mpi_calls.h"

namespace windrow::comm {

/// The table of the plug-in, which is opened by the first call and stays open. Throws MisuseError if there is none.
const MpiCalls& mpi_calls();

/// MPI's text for an error of one of these functions.
std::string mpi_text(const MpiCalls& calls, int error);

}  // namespace windrow::comm
