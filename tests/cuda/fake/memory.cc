#include "memory.h"

#include "world.h"

namespace windrow::fake {

// The lower half of an address is a large number: a small one, such as 0, beside a padding with what is left of an
// address would look like one.
constexpr std::uintptr_t first_address = 0x7e9d5a5a0000;
constexpr std::uintptr_t distance = std::uintptr_t{1} << 34;

std::unique_ptr<TwiceMapped> make_memory(int device, std::size_t capacity) {
  return std::make_unique<TwiceMapped>(capacity, first_address + static_cast<std::uintptr_t>(device) * distance);
}

/// Memories are made and end when no work runs, so that this needs no mutex.
const TwiceMapped* memory_of(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  if (at < first_address) return nullptr;
  const std::size_t device = (at - first_address) / distance;
  const auto& all = world().memories;
  return device < all.size() && all[device]->contains(address) ? all[device].get() : nullptr;
}

void* mapped(const void* address) {
  const TwiceMapped* const memory = memory_of(address);
  return memory == nullptr ? const_cast<void*>(address) : memory->mapped(address);
}

void relocate(std::vector<std::byte>& object, const std::function<bool(const void* word)>& is_address) {
  for (std::size_t i = 0; i + sizeof(void*) <= object.size(); i += sizeof(void*)) {
    void* word;
    std::memcpy(&word, &object[i], sizeof word);
    if (memory_of(word) == nullptr || !is_address(word)) continue;
    word = mapped(word);
    std::memcpy(&object[i], &word, sizeof word);
  }
}

}  // namespace windrow::fake
