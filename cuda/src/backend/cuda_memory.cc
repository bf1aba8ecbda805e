#include "backend/cuda_memory.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "backend/cuda_execution.h"

namespace windrow::cuda {
namespace {

/// Appends lists of rows to the words of a minibatch. The numbers in them are offsets from data(), in elements.
class ListPacker {
 public:
  ListPacker(const Plan& plan, const Layout& layout, MinibatchMemory& to) : plan_(plan), layout_(layout), to_(to) {
    std::size_t children = 0;
    for (const TypePlan& type : plan.types) {
      first_child_.push_back(children);
      children += type.by_number + type.per_edge;
    }
  }

  /// Appends begin and end for each row of the type, counted from the list's beginning; then the offsets of its
  /// consumers' slots. Returns where the list begins.
  std::size_t append(std::size_t type, const RowList& list) {
    const std::vector<Slots>& slots = slots_of(list);
    const TypeRows& rows = layout_.types[type];
    PackedLayout::Words& words = to_.packed.words;
    const std::size_t begin = words.size(), bounds = 2 * static_cast<std::size_t>(rows.rows);
    words.resize(begin + bounds + static_cast<std::size_t>(rows.rows) + rows.further.size());
    std::int32_t *const first = words.data() + begin, *end = first + bounds;
    const auto note = [&](const Slot& slot) {
      if (slot.row < 0) return;
      const Slots& of = slots[first_child_[slot.type] + slot.child];
      if (of.first >= 0) *end++ = static_cast<std::int32_t>(of.first + slot.row * of.stride);
    };
    auto more = rows.further.begin();
    for (Index r = 0; r < rows.rows; ++r) {
      first[2 * r] = static_cast<std::int32_t>(end - first);
      note(layout_.slot(type, r));
      for (; more != rows.further.end() && more->row == r; ++more) note(more->slot);
      first[2 * r + 1] = static_cast<std::int32_t>(end - first);
    }
    words.resize(static_cast<std::size_t>(end - words.data()));
    return begin;
  }

 private:
  /// Where the slots of one child of a type lie: the first one, -1 for none; and the distance between rows.
  struct Slots {
    Index first = -1, stride = 0;
  };
  /// By first_child_[type] + child. Made once for all types whose lists are of that kind.
  const std::vector<Slots>& slots_of(const RowList& list) {
    const auto [found, is_new] = slots_.try_emplace({list.of, list.state});
    if (!is_new) return found->second;
    if (to_.elements > std::numeric_limits<std::int32_t>::max()) {
      throw Error("a minibatch of more than 2^31 elements on a CUDA device; expected a smaller one");
    }
    for (const TypePlan& type : plan_.types) {
      const std::vector<ChildSlots>& links = list.of == RowList::Of::slots ? type.states : type.gradients;
      for (std::size_t child = 0; child < type.by_number + type.per_edge; ++child) {
        Slots& made = found->second.emplace_back();
        const std::size_t link = type.link(list.state, type.rate_of_child(child));
        if (link >= links.size() || !links[link].any() || links[link].column[child] < 0) continue;
        const ChildSlots& of = links[link];
        made = {to_.offsets[type.first_region + of.region] + of.column[child], type.regions[of.region].stride};
      }
    }
    return found->second;
  }

  const Plan& plan_;
  const Layout& layout_;
  MinibatchMemory& to_;
  std::vector<std::size_t> first_child_;  // by type: counted through the children of all types
  std::map<std::pair<RowList::Of, std::size_t>, std::vector<Slots>> slots_;
};

bool computes(const Plan& plan, Phase phase, const Layout::BatchRows& batch) {
  return batch.begin < batch.end && !plan.types[batch.type].phases[static_cast<std::size_t>(phase)].empty();
}

/// For each batch: the last earlier batch whose values it uses, and the first later batch that uses its values.
struct Neighbours {
  std::vector<std::ptrdiff_t> before, behind;
};
Neighbours neighbours_of(const Layout& layout, const std::vector<Layout::BatchRows>& batches) {
  const auto count = static_cast<std::ptrdiff_t>(batches.size());
  Neighbours made{std::vector<std::ptrdiff_t>(batches.size(), -1), std::vector<std::ptrdiff_t>(batches.size(), count)};
  std::vector<std::vector<std::ptrdiff_t>> batch_of(layout.types.size());
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    const Layout::BatchRows& batch = batches[static_cast<std::size_t>(i)];
    batch_of[batch.type].resize(static_cast<std::size_t>(layout.types[batch.type].rows), -1);
    std::fill(batch_of[batch.type].begin() + batch.begin, batch_of[batch.type].begin() + batch.end, i);
  }
  const auto note = [&](std::ptrdiff_t producer, const Slot& slot) {
    if (slot.row < 0 || batch_of[slot.type].empty()) return;
    const std::ptrdiff_t consumer = batch_of[slot.type][static_cast<std::size_t>(slot.row)];
    if (producer < 0 || consumer < 0) return;
    auto& before = made.before[static_cast<std::size_t>(consumer)];
    auto& behind = made.behind[static_cast<std::size_t>(producer)];
    before = std::max(before, producer);
    behind = std::min(behind, consumer);
  };
  for (std::size_t t = 0; t < layout.types.size(); ++t) {
    if (batch_of[t].empty()) continue;
    for (Index r = 0; r < layout.types[t].rows; ++r) {
      note(batch_of[t][static_cast<std::size_t>(r)], layout.slot(t, r));
    }
    for (const TypeRows::Further& further : layout.types[t].further) {
      note(batch_of[t][static_cast<std::size_t>(further.row)], further.slot);
    }
  }
  return made;
}

/// The sizes of sets of batches that do not depend on each other, by the first batch of each, in the order of the
/// phase. Batches of one type usually depend on each other.
std::vector<std::size_t> sets_of(const Layout& layout, const std::vector<Layout::BatchRows>& batches, bool forward) {
  const auto of_one_type = [&](const auto& batch) { return batch.type == batches.front().type; };
  std::vector<std::size_t> sets(batches.size(), 1);
  if (std::ranges::all_of(batches, of_one_type)) return sets;
  Neighbours neighbours = neighbours_of(layout, batches);
  const auto count = static_cast<std::ptrdiff_t>(batches.size());
  if (!forward) {  // count the batches from the other end
    for (auto& behind : neighbours.behind) behind = count - 1 - behind;
    std::reverse(neighbours.behind.begin(), neighbours.behind.end());
  }
  const std::vector<std::ptrdiff_t>& needs = forward ? neighbours.before : neighbours.behind;
  for (std::size_t one = 0; one < batches.size(); one += sets[one]) {
    std::size_t last = one + 1;
    while (last < batches.size() && needs[last] < static_cast<std::ptrdiff_t>(one)) ++last;
    sets[one] = last - one;
  }
  return sets;
}

/// Divides the samples among groups with about as many vertices each: by group, its first vertex; all vertices at the
/// end.
std::vector<std::int32_t> first_vertices(const Layout& layout, std::size_t groups) {
  const std::vector<std::int32_t>& graphs = layout.first_vertex;
  std::vector<std::int32_t> first;
  for (std::size_t g = 0; g < groups; ++g) {
    const auto least = static_cast<std::int32_t>(layout.vertices * static_cast<Index>(g) / static_cast<Index>(groups));
    const auto found = std::ranges::lower_bound(graphs, least);
    first.push_back(found == graphs.end() ? static_cast<std::int32_t>(layout.vertices) : *found);
  }
  first.push_back(static_cast<std::int32_t>(layout.vertices));
  return first;
}

/// By group, where its rows of the batch begin; the end of the batch at the end. Empty if the rows are not ordered by
/// sample.
std::vector<Index> cut_by_groups(const Layout& layout, const Layout::BatchRows& batch,
                                 const std::vector<std::int32_t>& first_of_groups) {
  if (first_of_groups.size() == 2) return {batch.begin, batch.end};
  const std::vector<std::int32_t>& vertices = layout.types[batch.type].vertex;
  std::vector<Index> cuts = {batch.begin};
  for (Index r = batch.begin; r < batch.end; ++r) {
    const std::int32_t vertex = vertices[static_cast<std::size_t>(r)];
    while (vertex >= first_of_groups[cuts.size()]) cuts.push_back(r);
    if (vertex < first_of_groups[cuts.size() - 1]) return {};
  }
  cuts.resize(first_of_groups.size(), batch.end);
  return cuts;
}

/// Appends the words that the kernel for levels reads if it computes the batches from `first` on; see levels.h.
CudaMemory::Batches append_batches(const Plan& plan, Phase phase, std::size_t first, std::size_t groups,
                                   const Layout& layout, PackedLayout::Words& words) {
  std::vector<Layout::BatchRows> batches = layout.batches.front();
  batches.erase(batches.begin(), batches.begin() + static_cast<std::ptrdiff_t>(first));
  std::erase_if(batches, [&](const auto& batch) { return !computes(plan, phase, batch); });
  const bool forward = phase == Phase::level;
  const std::vector<std::size_t> sets = sets_of(layout, batches, forward);
  if (!forward) std::reverse(batches.begin(), batches.end());
  groups = std::min(groups, layout.first_vertex.size());
  const std::vector<std::int32_t> first_of_groups = first_vertices(layout, groups);
  std::vector<std::vector<Index>> of_groups(groups);  // words of batches
  std::size_t count = 0;
  for (std::size_t one = 0; one < batches.size(); one += sets[one]) {
    std::vector<std::size_t> begins;
    for (const std::vector<Index>& of_group : of_groups) begins.push_back(of_group.size());
    for (std::size_t i = one; i < one + sets[one]; ++i) {
      const std::vector<Index> cuts = cut_by_groups(layout, batches[i], first_of_groups);
      if (cuts.empty()) return {};
      for (std::size_t g = 0; g < groups; ++g) {
        if (cuts[g] == cuts[g + 1]) continue;
        const Index batch[words_of_batch] = {Index{batches[i].type}, cuts[g], cuts[g + 1] - cuts[g], 1};
        of_groups[g].insert(of_groups[g].end(), batch, batch + words_of_batch);
        ++count;
      }
    }
    for (std::size_t g = 0; g < groups; ++g) {
      if (begins[g] == of_groups[g].size()) continue;
      of_groups[g][begins[g] + words_of_batch - 1] =
          static_cast<Index>((of_groups[g].size() - begins[g]) / words_of_batch);
    }
  }
  const CudaMemory::Batches made{
      .first = first, .begin = words.size(), .count = static_cast<Index>(count), .groups = groups};
  words.resize(words.size() + groups * words_of_barrier);
  std::size_t before = 0;
  for (const std::vector<Index>& of_group : of_groups) {
    words.push_back(static_cast<std::int32_t>(before));
    before += of_group.size() / words_of_batch;
    words.push_back(static_cast<std::int32_t>(before));
  }
  for (const std::vector<Index>& of_group : of_groups) {
    for (const Index word : of_group) words.push_back(static_cast<std::int32_t>(word));
  }
  return made;
}

/// The first batch from which one kernel is faster than launches: the last batches of a minibatch are its narrowest.
/// The costs are estimates, fitted to times of an H200. Most of a launch is the host's time. `windrow-perf gpu
/// --levels` compares both ways with this choice.
std::size_t first_of_kernel(const LevelsKernel& kernel, const Plan& plan, const Layout& layout, Phase phase,
                            Precision precision) {
  constexpr double launch = 4.5e-6, product = 11e-6, barrier = 2e-6, start = 8e-6;  // seconds
  constexpr double begin_of_product = 4e-6;                                         // of the device
  constexpr double of_team = 0.09e12;                                               // floating point operations
  constexpr double cache = 4e12;                                                    // bytes that teams read of rows
  const double of_launches = precision == Precision::float32 ? 32e12 : 150e12;      // floating point operations
  const std::vector<Layout::BatchRows>& batches = layout.batches.front();
  std::size_t best = batches.size();
  double saved = 0, most_saved = start;
  for (std::size_t i = batches.size(); i-- > 0;) {
    if (!computes(plan, phase, batches[i])) continue;
    const auto rows = static_cast<double>(batches[i].end - batches[i].begin);
    // A team computes 128 rows at a time, or 16, 32 or 64 in as much less time.
    const double rows_at_once = rows > 64 ? std::ceil(rows / 128) * 128 : rows > 32 ? 64 : rows > 16 ? 32 : 16;
    saved -= barrier * static_cast<double>(kernel.barriers);
    for (const LevelsKernel::Part& part : kernel.parts) {
      if (part.type != batches[i].type) continue;
      if (part.product == nullptr) {
        saved += launch;
        continue;
      }
      const auto flops = static_cast<double>(part.product->flops_a_row);
      const double bytes = static_cast<double>(part.product->in[0].width * kernel.teams) * sizeof(float);
      saved += std::max(product, begin_of_product + rows * flops / of_launches);
      saved -= rows_at_once * std::max(flops / (of_team * kernel.teams), bytes / cache);
    }
    if (saved <= most_saved) continue;
    most_saved = saved;
    best = i;
  }
  return best;
}

}  // namespace

CudaMemory::CudaMemory(const Device& device, const Plan& plan, const CudaPlan& cuda, const Layout& layout, bool whole)
    : MinibatchMemory(device, plan, layout, {.locals = cuda.fused.locals, .gathers = cuda.code == nullptr}) {
  std::size_t words = packed.words.size();
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    const TypeRows& rows = layout.types[t];
    words += cuda.fused.lists[t].size() * (3 * static_cast<std::size_t>(rows.rows) + rows.further.size());
  }
  packed.words.reserve(words + words / 16);  // and the batches
  ListPacker packer(plan, layout, *this);
  for (std::size_t t = 0; t < plan.types.size(); ++t) {
    lists.emplace_back();
    if (layout.types[t].rows == 0) continue;
    for (const RowList& list : cuda.fused.lists[t]) lists.back().push_back(packer.append(t, list));
  }
  for (std::size_t i = 0; i < cuda.fused.levels.size(); ++i) {
    const auto& kernel = cuda.fused.levels[i];
    if (!kernel || !whole || !cuda.hardware->runs_teams_together()) continue;
    const Phase phase = i == 0 ? Phase::level : Phase::back_level;
    const bool mixes = cuda.levels == Levels::automatic;
    const std::size_t first = mixes ? first_of_kernel(*kernel, plan, layout, phase, cuda.precision) : 0;
    const auto groups = static_cast<std::size_t>(kernel->most_groups);
    batches[i] = append_batches(plan, phase, first, groups, layout, packed.words);
  }
}

}  // namespace windrow::cuda
