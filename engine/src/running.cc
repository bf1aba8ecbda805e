#include "running.h"

namespace windrow {
namespace {

thread_local Running* frame = nullptr;

}  // namespace

Running::Running(Core& engine, OpRecord& running, Slots* taken)
    : core(&engine), op(&running), slots(taken), outer(frame) {
  frame = this;
}

Running::~Running() { frame = outer; }

Running* Running::innermost() { return frame; }

}  // namespace windrow
