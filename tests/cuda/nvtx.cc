// What NVTX opens in place of a profiler (NVTX_INJECTION64_PATH): writes the ranges of domain "windrow" to the file
// that WINDROW_TEST_RANGES names, one a line, after as many blanks as ranges enclose it.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace {

int windrow;  // its address stands for the domain
std::mutex mutex;
thread_local int depth = 0;

nvtxDomainHandle_t domain_create(const char* name) {
  return std::strcmp(name, "windrow") == 0 ? reinterpret_cast<nvtxDomainHandle_t>(&windrow) : nullptr;
}

int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* range) {
  if (domain != reinterpret_cast<nvtxDomainHandle_t>(&windrow)) return 0;
  const std::lock_guard lock(mutex);
  std::FILE* const to = std::fopen(std::getenv("WINDROW_TEST_RANGES"), "a");
  std::fprintf(to, "%*s%s\n", depth, "", range->message.ascii);
  std::fclose(to);
  return depth++;
}

int pop(nvtxDomainHandle_t domain) { return domain == nullptr ? 0 : --depth; }

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t export_table) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(domain_create);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}
