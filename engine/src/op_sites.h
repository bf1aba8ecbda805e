// The descriptions of ops, one for each place of the program that pushes: kept once, so that a record needs a pointer.
#pragma once

#include <map>

#include "op.h"
#include "ports.h"
#include "windrow/engine/mutex.h"

namespace windrow {

/// All of one engine. They stay as long as it does: places times names times lanes are few.
class OpSites {
 public:
  /// The description of what is pushed so; `describe()` makes it when it is not known yet. Throws what that throws.
  template <class Describe>
  const OpInfo& find(Port& port, const PushOptions& how, Describe&& describe) {
    const SiteKey key(how);
    CachedSite& cached = port.sites[key.hash() % port.sites.size()];
    if (cached.info != nullptr && cached.key == key) return *cached.info;
    cached = {key, &keep(key, describe())};
    return *cached.info;
  }

  void each_mutex(EachMutex f) { f(mutex_); }  // see fork.h

 private:
  const OpInfo& keep(const SiteKey& key, const OpInfo& info) WINDROW_EXCLUDES(mutex_);

  Mutex mutex_;
  std::map<SiteKey, OpInfo> all_ WINDROW_GUARDED_BY(mutex_);  // of nodes: references stay
};

}  // namespace windrow
