// Ranges of the host's threads that NVIDIA's profilers show, by NVTX, which is headers only. A profiler answers its
// calls; without one, or without the headers, they do nothing.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace windrow::cuda {

inline nvtxDomainHandle_t ranges() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("windrow");
  return domain;
}

inline void begin_range(const char* name) {
  nvtxEventAttributes_t range = {};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  nvtxDomainRangePushEx(ranges(), &range);
}

inline void end_range() { nvtxDomainRangePop(ranges()); }

}  // namespace windrow::cuda

#else

namespace windrow::cuda {

inline void begin_range(const char*) {}
inline void end_range() {}

}  // namespace windrow::cuda

#endif
