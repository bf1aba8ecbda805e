// The descriptions of ops, one for each place of the program that pushes: kept once, so that a record needs a pointer.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
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
    const SiteKey key{.pushed_at = std::bit_cast<SiteKey::Location>(how.pushed_at),
                      .name = how.name.text().data(),
                      .lane = how.lane,
                      .run_always = how.run_always};
    CachedSite& cached = port.sites[hash(key) % port.sites.size()];
    if (cached.info == nullptr || cached.key != key) cached = {key, &keep(key, describe())};
    return *cached.info;
  }

 private:
  static std::size_t hash(const SiteKey& key) {
    std::size_t hash = 0;
    std::memcpy(&hash, key.pushed_at.data(), std::min(sizeof hash, key.pushed_at.size()));
    hash = hash * 31 + reinterpret_cast<std::size_t>(key.name);
    return hash ^ (hash >> 7) ^ key.lane.index;
  }
  const OpInfo& keep(const SiteKey& key, const OpInfo& info) WINDROW_EXCLUDES(mutex_);

  Mutex mutex_;
  std::map<SiteKey, OpInfo> all_ WINDROW_GUARDED_BY(mutex_);  // of nodes: references stay
};

}  // namespace windrow
