#include "core/op_sites.h"

namespace windrow {

const OpInfo& OpSites::keep(Port& port, const PushOptions& how, const OpInfo& info) {
  const SiteKey key(how);
  MutexLock lock(mutex_);
  const OpInfo& kept = all_.try_emplace(key, info).first->second;
  cache(port, key) = {key, &kept};
  return kept;
}

}  // namespace windrow
