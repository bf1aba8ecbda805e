#include "lazy/keys.h"

#include <atomic>
#include <bit>
#include <functional>

namespace windrow::lazy {
namespace {

/// Tests set it before they record.
std::atomic<bool> all_collide{false};

void mix(std::size_t& hash, std::size_t more) { hash = (hash ^ more) * 0x9e3779b97f4a7c15u; }

}  // namespace

void Keys::collide(bool all_hashes_equal) { all_collide = all_hashes_equal; }

std::size_t Keys::hash_of(const Key& key) {
  if (all_collide.load(std::memory_order_relaxed)) return 0;
  std::size_t hash = std::hash<const void*>()(key.op);
  for (Index size : key.attributes.sizes) mix(hash, static_cast<std::size_t>(size));
  for (double value : key.attributes.values) mix(hash, std::bit_cast<std::size_t>(value));
  for (std::int32_t operand : key.operands) mix(hash, static_cast<std::size_t>(operand));
  for (Index width : key.widths) mix(hash, static_cast<std::size_t>(width));
  for (Index width : key.index_widths) mix(hash, static_cast<std::size_t>(width));
  return hash ^ hash >> 32;
}

}  // namespace windrow::lazy
