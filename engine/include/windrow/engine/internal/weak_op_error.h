// For languages whose garbage collector does not see through C++: an error of theirs that kept the failures alive would
// keep, with the original exceptions, what these refer to, such as the frames that hold the error itself.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <memory>
#include <optional>
#include <vector>

#include "windrow/engine/error.h"

namespace windrow {

/// Names an OpError without owning its failures. A value.
class WeakOpError {
 public:
  explicit WeakOpError(const OpError& error)
      : failures_(error.failures_->begin(), error.failures_->end()), engine_(error.engine_) {}
  /// An equal OpError, or none if a failure is gone: then no variable carries it any more.
  std::optional<OpError> lock() const {
    std::vector<FailurePtr> failures;
    for (const std::weak_ptr<const Failure>& failure : failures_) {
      failures.push_back(failure.lock());
      if (failures.back() == nullptr) return std::nullopt;
    }
    return OpError(std::move(failures), engine_);
  }

 private:
  std::vector<std::weak_ptr<const Failure>> failures_;
  std::shared_ptr<CoreLink> engine_;
};

}  // namespace windrow
