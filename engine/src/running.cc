#include "running.h"

namespace windrow {
namespace {

thread_local Running* frame = nullptr;

}  // namespace

Running::Running(Core& engine, OpRecord& running, Crew* slot) : core(&engine), op(&running), crew(slot), outer(frame) {
  frame = this;
}

Running::~Running() { frame = outer; }

Running* Running::innermost() { return frame; }

}  // namespace windrow
