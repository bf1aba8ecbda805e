#include "wait/look.h"

#include <utility>

#include "record/running.h"

namespace windrow {
namespace {

thread_local constinit LookWhileWaiting* innermost_look = nullptr;

}  // namespace

LookWhileWaiting::LookWhileWaiting(std::function<void()> look)
    : look_(std::move(look)),
      next_(std::chrono::steady_clock::now() + interval),
      outer_(std::exchange(innermost_look, this)) {}
LookWhileWaiting::~LookWhileWaiting() { innermost_look = outer_; }
bool LookWhileWaiting::looks() {
  return innermost_look != nullptr && innermost_look->look_ && Running::innermost() == nullptr;
}
void LookWhileWaiting::look() {
  if (!looks()) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < innermost_look->next_) return;
  innermost_look->next_ = now + interval;
  innermost_look->look_();
}

}  // namespace windrow
