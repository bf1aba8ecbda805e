#include <functional>
#include <string>
#include <unordered_set>

#include "process/fork.h"
#include "process/immortal.h"
#include "windrow/engine/internal/mutex.h"
#include "windrow/engine/var.h"

namespace windrow {
namespace {

struct HashOfText {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

struct Table {
  Mutex mutex;
  std::unordered_set<std::string, HashOfText, std::equal_to<>> names WINDROW_GUARDED_BY(mutex);
};

}  // namespace

std::string_view OpName::keep(std::string_view text) {
  Table& all = immortal<Table>();
  MutexLock lock(all.mutex);
  const auto known = all.names.find(text);  // needs no memory
  return known != all.names.end() ? *known : *all.names.emplace(text).first;
}

void each_mutex_of_names(EachMutex f) { f(immortal<Table>().mutex); }

}  // namespace windrow
