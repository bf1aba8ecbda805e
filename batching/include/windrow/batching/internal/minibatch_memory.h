// Where the values of a minibatch lie in its memory, and the words that are copied to it. Pure data.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "windrow/batching/internal/layout.h"
#include "windrow/batching/internal/packed_layout.h"
#include "windrow/batching/internal/plan.h"
#include "windrow/ops/device.h"

namespace windrow {

/// Depends on the layout and the plan only, so it can be made before the minibatch begins (Layout::memory). A back end
/// derives from it to add words.
struct MinibatchMemory {
  enum class Ops : std::uint8_t { in_order, side_by_side };  ///< see Execution
  /// Choices of a back end.
  struct Choices {
    Ops ops = Ops::in_order;
    // For back ends that compute segments themselves:
    /// By type and number of the local: the rate of its rows if it needs memory. Plans without `fusion` have no locals.
    std::vector<std::vector<std::optional<Rate>>> locals = {};
    /// Whether steps gather by PackedLayout::children and consumers.
    bool gathers = true;
  };
  MinibatchMemory(const Device& device, const Plan& plan, const Layout& layout, const Choices& choices);
  virtual ~MinibatchMemory() = default;
  MinibatchMemory(const MinibatchMemory&) = delete;
  MinibatchMemory& operator=(const MinibatchMemory&) = delete;

  std::size_t bytes(Ops ops) const;

  std::vector<Index> offsets;              ///< in elements, by region of the plan; only set for types with rows
  std::vector<std::vector<Index>> locals;  ///< in order: offsets by type and number, in elements
  Index elements = 0;                      ///< of all values; the words follow them
  Index losses = 0;                        ///< elements at the beginning, with all losses in arenas
  PackedLayout packed;                     ///< side by side: only gathers, and not in the memory

 private:
  void place_values(const Device& device, const Plan& plan, const Layout& layout, const Choices& choices);
};

}  // namespace windrow
