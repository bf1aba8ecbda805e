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

  /// Temporary memory for making a layout. Used by the thread that calls the runner.
  struct Scratch {
    std::vector<Index> group_of;              // by graph
    std::vector<std::uint32_t> type_numbers;  // the plan's numbers of the types of each graph, graph after graph
    std::vector<std::size_t> type_begin;      // by graph: its first element of type_numbers
    std::vector<std::int32_t> next;           // by group, level and type: the number of rows, then the next row
    std::vector<std::int32_t> row_of;         // by place, counted through all graphs; rows through all types
    std::vector<Index> next_row;              // by type
    std::vector<std::int32_t> numbers;        // of one graph; see InputGraph::Numbers
  } scratch;

  /// A spare layout with undefined contents. Any thread may call take() and give_back().
  Layout take() WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (spare_.empty()) return {};
    Layout layout = std::move(spare_.back());
    spare_.pop_back();
    return layout;
  }
  void give_back(Layout&& layout) noexcept WINDROW_EXCLUDES(mutex_) {
    layout.names.clear();  // of graphs that may have ended
    MutexLock lock(mutex_);
    if (spare_.size() < most_spare) spare_.push_back(std::move(layout));
  }

 private:
  static constexpr std::size_t most_spare = 8;  // as many minibatches are in flight, or fewer

  Mutex mutex_;
  std::vector<Layout> spare_ WINDROW_GUARDED_BY(mutex_);
};

/// Resizes a reused vector. Its elements are undefined. Frees memory that is much larger than needed.
template <class T>
void size_again(std::vector<T>& kept, std::size_t size) {
  constexpr std::size_t few = 1024, many_times = 8;
  if (kept.capacity() / many_times > std::max(size, few)) kept = std::vector<T>();  // `= {}` would keep the memory
  kept.resize(size);
}

}  // namespace windrow
