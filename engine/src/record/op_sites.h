// The descriptions of ops, one for each place of the program that pushes. Each is stored once, so that a record needs
// only a pointer.
#pragma once

#include <map>

#include "record/op.h"
#include "record/ports.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

/// All descriptions of one engine. They live as long as the engine: there are few combinations of place, name and lane.
class OpSites {
  template <class AnyPort>
  static auto& cache(AnyPort& port, const SiteKey& key) {
    return port.sites[key.hash() % port.sites.size()];
  }

 public:
  /// The description for these options, if the thread has looked it up lately; else null.
  [[gnu::always_inline]] static const OpInfo* known(const Port& port, const PushOptions& how) {
    const SiteKey key(how);
    const CachedSite& cached = cache(port, key);
    return cached.key == key ? cached.info : nullptr;
  }
  /// The description for these options. Stores `info` if no thread has stored it before.
  const OpInfo& keep(Port& port, const PushOptions& how, const OpInfo& info) WINDROW_EXCLUDES(mutex_) {
    const SiteKey key(how);
    MutexLock lock(mutex_);
    const OpInfo& kept = all_.try_emplace(key, info).first->second;
    cache(port, key) = {key, &kept};
    return kept;
  }
  void each_mutex(EachMutex f) { f(mutex_); }  // see fork.h

 private:
  Mutex mutex_;
  std::map<SiteKey, OpInfo> all_ WINDROW_GUARDED_BY(mutex_);  // a map, so that references stay valid
};

}  // namespace windrow
