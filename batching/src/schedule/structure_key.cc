#include <span>

#include "windrow/batching/graph.h"

namespace windrow {
namespace {

/// The finaliser of SplitMix64, which spreads each bit over all others.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t structure_key(const GraphData& graph) {
  std::uint64_t key = 0;
  const auto add = [&](std::uint64_t number) { key = mixed(key + 0x9e3779b97f4a7c15ull + number); };
  for (const std::span<const std::int32_t> numbers : {std::span(graph.child_begin), {graph.children}, {graph.kinds}}) {
    add(numbers.size());
    for (const std::int32_t number : numbers) add(static_cast<std::uint32_t>(number));
  }
  return key;
}

}  // namespace windrow
