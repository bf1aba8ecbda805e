#include "nccl/library.h"

#include <array>

#include "windrow/engine/error.h"
#include "windrow/engine/internal/plug_in.h"

namespace windrow::comm {
namespace {

const OpenedPlugIn& opened() {
  static const OpenedPlugIn plug_in =
      open_plug_in({.file = "windrow_nccl.so",
                    .variable = "WINDROW_NCCL_PLUGIN",
                    .function = "windrow_nccl_calls",
                    .version = NcclCalls::current_version,
                    .purpose = "NCCL cannot be used",
                    .needs = "expected the plug-in of a build with nvcc and nccl.h there or where WINDROW_NCCL_PLUGIN "
                             "says, and libnccl.so.2"});
  return plug_in;
}

}  // namespace

const NcclCalls& nccl_calls() {
  if (opened().table == nullptr) throw MisuseError(opened().error);
  return *static_cast<const NcclCalls*>(opened().table);
}
std::string why_no_nccl() { return opened().table == nullptr ? opened().error : ""; }

std::string nccl_text(const NcclCalls& calls, int error) {
  std::array<char, 512> text{};
  calls.text(error, text.data(), text.size());
  return text.data();
}

}  // namespace windrow::comm
