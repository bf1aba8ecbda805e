#include "op.h"

#include <new>

namespace windrow {

// The accesses lie behind the record, and the body behind them, aligned as any type may ask for.
static_assert(sizeof(OpRecord) == 48 && sizeof(Dep::Access) == 32);
static_assert(alignof(std::max_align_t) == 16 && alignof(AsyncBody) <= 16);
static_assert(sizeof(VarState) == 128);

std::string site(const OpInfo& info) {
  return "op '" + std::string(info.name) + "' (pushed at " + info.pushed_at.file_name() + ":" +
         std::to_string(info.pushed_at.line()) + ")";
}

void OpRecord::set_function(OpFunction&& function) {
  table_ = function.table();
  if (table_ == nullptr) return;
  function.move_to(place());
  body_ = Body::function;
}

void OpRecord::end_body() noexcept {
  switch (std::exchange(body_, Body::none)) {
    case Body::none:
      break;
    case Body::function:
      if (table_->destroy != nullptr) table_->destroy(place());
      break;
    case Body::async:
      std::destroy_at(&async());
      break;
    case Body::declared:
      std::destroy_at(&at<std::shared_ptr<DeclaredState>>());
      break;
    case Body::wait:
      std::destroy_at(&at<std::shared_ptr<Waiter>>());
      break;
  }
}

}  // namespace windrow
