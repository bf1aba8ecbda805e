// Memory of layouts, reused for later minibatches: new memory would have to be cleared and fetched into the cache.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "windrow/batching/internal/layout.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

/// A runner makes each layout in the memory of a layout whose minibatch has ended.
class LayoutMemory {
 public:
  LayoutMemory() { spare_.reserve(most_spare); }

  /// Temporary memory for making a layout.
  struct Scratch {
    std::vector<Index> group_of;              // by graph
    std::vector<std::uint32_t> type_numbers;  // the plan's numbers of the types of each graph, graph after graph
    std::vector<std::size_t> type_begin;      // by graph: its first element of type_numbers
    std::vector<std::int32_t> next;           // by group, level and type: the number of rows, then the next row
    std::vector<std::int32_t> row_of;         // by place, counted through all graphs; rows through all types
    std::vector<Index> next_row;              // by type
    std::vector<std::int32_t> numbers;        // of one graph; see InputGraph::Numbers
  };

  /// A spare object with undefined contents, or a new one. Any thread may call take() and give_back().
  Layout take() WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return last_of(spare_);
  }
  Scratch take_scratch() WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return last_of(spare_scratch_);
  }
  void give_back(Layout&& layout) noexcept WINDROW_EXCLUDES(mutex_) {
    layout.names.clear();  // of graphs that may have ended
    layout.memory = nullptr;
    MutexLock lock(mutex_);
    if (spare_.size() < most_spare) spare_.push_back(std::move(layout));
  }
  void give_back(Scratch&& scratch) WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    spare_scratch_.push_back(std::move(scratch));
  }

 private:
  template <class T>
  static T last_of(std::vector<T>& from) {
    if (from.empty()) return {};
    T one = std::move(from.back());
    from.pop_back();
    return one;
  }

  static constexpr std::size_t most_spare = 8;  // as many minibatches are in flight, or fewer

  Mutex mutex_;
  std::vector<Layout> spare_ WINDROW_GUARDED_BY(mutex_);
  std::vector<Scratch> spare_scratch_ WINDROW_GUARDED_BY(mutex_);  // as many as threads that make layouts at once
};

/// Resizes a reused vector. Its elements are undefined. Frees memory that is much larger than needed.
template <class T>
void size_again(std::vector<T>& kept, std::size_t size) {
  constexpr std::size_t few = 1024, many_times = 8;
  if (kept.capacity() / many_times > std::max(size, few)) kept = std::vector<T>();  // `= {}` would keep the memory
  kept.resize(size);
}

}  // namespace windrow
