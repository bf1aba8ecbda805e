// The descriptions of ops, one for each place of the program that pushes: kept once, so that a record needs a pointer.
#pragma once

#include <map>

#include "core/op.h"
#include "core/ports.h"
#include "windrow/engine/mutex.h"

namespace windrow {

/// All of one engine. They stay as long as it does: places times names times lanes are few.
class OpSites {
  template <class AnyPort>
  static auto& cache(AnyPort& port, const SiteKey& key) {
    return port.sites[key.hash() % port.sites.size()];
  }

 public:
  /// The description of what is pushed so, if the thread has looked it up lately; else null.
  [[gnu::always_inline]] static const OpInfo* known(const Port& port, const PushOptions& how) {
    const SiteKey key(how);
    const CachedSite& cached = cache(port, key);
    return cached.key == key ? cached.info : nullptr;
  }
  /// The same, of which this is known; any thread may have known it before.
  const OpInfo& keep(Port& port, const PushOptions& how, const OpInfo& info) WINDROW_EXCLUDES(mutex_);
  void each_mutex(EachMutex f) { f(mutex_); }  // see fork.h

 private:
  Mutex mutex_;
  std::map<SiteKey, OpInfo> all_ WINDROW_GUARDED_BY(mutex_);  // of nodes: references stay
};

}  // namespace windrow
