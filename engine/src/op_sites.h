// The descriptions of ops, one for each place of the program that pushes: kept once, so that a record needs a pointer.
#pragma once

#include <array>
#include <deque>
#include <unordered_map>

#include "op.h"
#include "ports.h"
#include "windrow/engine/mutex.h"

namespace windrow {

/// All of one engine. They stay as long as it does: places times names times lanes are few.
class OpSites {
 public:
  /// The kept copy of `info`. Throws std::bad_alloc.
  const OpInfo& keep(Port& port, const OpInfo& info) WINDROW_EXCLUDES(mutex_);

 private:
  struct Key {
    std::array<std::byte, sizeof(std::source_location)> pushed_at;
    const char* name;
    std::size_t name_size;
    const LaneState* lane;
    bool run_always;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const;
  };
  static Key key_of(const OpInfo& info);

  Mutex mutex_;
  std::unordered_map<Key, OpInfo, Hash> all_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
