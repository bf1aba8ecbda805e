#include "mpi/library.h"

#include <array>

#include "windrow/engine/error.h"
#include "windrow/engine/internal/plug_in.h"

namespace windrow::comm {
const MpiCalls& mpi_calls() {
  static const OpenedPlugIn opened =
      open_plug_in({.file = "windrow_mpi.so",
                    .variable = "WINDROW_MPI_PLUGIN",
                    .function = "windrow_mpi_calls",
                    .version = MpiCalls::current_version,
                    .purpose = "MPI cannot be used",
                    .needs = "expected the plug-in of a build with an MPI library (package libopenmpi-dev) there or "
                             "where WINDROW_MPI_PLUGIN says",
                    .global = true});
  if (opened.table == nullptr) throw MisuseError(opened.error);
  return *static_cast<const MpiCalls*>(opened.table);
}

std::string mpi_text(const MpiCalls& calls, int error) {
  std::array<char, 512> text{};
  calls.text(error, text.data(), text.size());
  return text.data();
}

}  // namespace windrow::comm
