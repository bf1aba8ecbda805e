#include "running.h"

#include "core.h"

namespace windrow {
namespace {

thread_local Running* frame = nullptr;

}  // namespace

Running::Running(Core& of, OpRecord& running, Crew* slot)
    : core(&of), engine(of.number), op(&running), crew(slot), outer(frame) {
  frame = this;
}

Running::~Running() { frame = outer; }

Running* Running::innermost() { return frame; }

}  // namespace windrow
