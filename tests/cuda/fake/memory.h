// Memory of fake devices: programs get addresses that the host cannot access, and kernels those of a second mapping.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tests/twice_mapped.h"

namespace windrow::fake {

using testing::TwiceMapped;

/// Makes the memory of a device, at an address that no other object is likely to contain by chance.
std::unique_ptr<TwiceMapped> make_memory(int device, std::size_t capacity);

/// The address at which the host can access memory of a device; other addresses, as they are.
void* mapped(const void* address);
/// Replaces the device addresses among the 8-byte words of an object, where `is_address` says that they are addresses.
void relocate(std::vector<std::byte>& object, const std::function<bool(const void* word)>& is_address);
/// The memory that has the address; null if that is none of a device.
const TwiceMapped* memory_of(const void* address);

}  // namespace windrow::fake
