#include "op_sites.h"

#include <bit>
#include <cstring>

namespace windrow {

OpSites::Key OpSites::key_of(const OpInfo& info) {
  return {.pushed_at = std::bit_cast<decltype(Key::pushed_at)>(info.pushed_at),
          .name = info.name.data(),
          .name_size = info.name.size(),
          .lane = info.lane,
          .run_always = info.run_always};
}

std::size_t OpSites::Hash::operator()(const Key& key) const {
  std::size_t place = 0;
  std::memcpy(&place, key.pushed_at.data(), std::min(sizeof place, key.pushed_at.size()));
  std::size_t hash = place ^ (reinterpret_cast<std::size_t>(key.name) << 1) ^ (reinterpret_cast<std::size_t>(key.lane) << 3) ^ key.run_always;
  hash *= 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

const OpInfo& OpSites::keep(Port& port, const OpInfo& info) {
  const Key key = key_of(info);
  const OpInfo*& cached = port.sites[Hash()(key) % port.sites.size()];
  if (cached != nullptr && key_of(*cached) == key) return *cached;
  MutexLock lock(mutex_);
  cached = &all_.try_emplace(key, info).first->second;  // a map of nodes: references stay
  return *cached;
}

}  // namespace windrow
