#include "op_sites.h"

namespace windrow {

const OpInfo& OpSites::keep(const SiteKey& key, const OpInfo& info) {
  MutexLock lock(mutex_);
  return all_.try_emplace(key, info).first->second;
}

}  // namespace windrow
