#include "op.h"

#include <new>

namespace windrow {

static_assert(alignof(OpRecord) >= alignof(Dep::Access) && sizeof(OpRecord) % alignof(Dep::Access) == 0);

std::string site(const OpInfo& info) {
  return "op '" + std::string(info.name) + "' (pushed at " + info.pushed_at.file_name() + ":" +
         std::to_string(info.pushed_at.line()) + ")";
}

OpRecord* OpRecord::create(std::span<const Dep::Access> accesses) {
  void* memory = ::operator new(sizeof(OpRecord) + accesses.size_bytes());
  auto* first = reinterpret_cast<Dep::Access*>(static_cast<std::byte*>(memory) + sizeof(OpRecord));
  auto* op = ::new (memory) OpRecord(first, static_cast<std::uint32_t>(accesses.size()));
  std::uninitialized_copy(accesses.begin(), accesses.end(), first);
  for (Dep::Access& access : op->accesses()) access.op = op;
  return op;
}

void OpRecord::destroy(OpRecord* op) noexcept {
  if (op == nullptr) return;
  op->~OpRecord();  // accesses are trivially destructible
  ::operator delete(op);
}

static_assert(std::is_trivially_destructible_v<Dep::Access>);

}  // namespace windrow
