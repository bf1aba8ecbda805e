// A list of ops that have become ready.
#pragma once

#include "core/op.h"

namespace windrow {

/// Ready ops on their way to a policy, linked through the ops themselves.
class ReadyList {
 public:
  void push(Dep::Op& op) {
    op.next_ready = nullptr;
    *end_ = &op;
    end_ = &op.next_ready;
  }
  bool empty() const { return first_ == nullptr; }
  OpRecord* pop() {
    Dep::Op* op = first_;
    if (op == nullptr) return nullptr;
    first_ = op->next_ready;
    if (first_ == nullptr) end_ = &first_;
    return static_cast<OpRecord*>(op);
  }

 private:
  Dep::Op* first_ = nullptr;
  Dep::Op** end_ = &first_;
};

}  // namespace windrow
