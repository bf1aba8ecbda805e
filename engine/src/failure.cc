#include "failure.h"

#include <algorithm>

namespace windrow {
namespace {

std::string where(const std::source_location& location) {
  return std::string(location.file_name()) + ":" + std::to_string(location.line());
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

std::string subject(const Failure& failure) {
  return "op '" + failure.op + "' (pushed at " + where(failure.pushed_at) + ")";
}

RootFailure& root_of(const FailurePtr& failure) {
  // Every root is made by FailureLog::root as a RootFailure; only its atomics are touched.
  return const_cast<RootFailure&>(static_cast<const RootFailure&>(failure->root()));
}

bool active(const RootFailure& root) { return root.carriers.load() > 0; }

std::string describe_all(const std::vector<FailurePtr>& failures) {
  std::string text;
  for (const FailurePtr& failure : failures) text += (text.empty() ? "" : "; ") + failure->describe();
  return text;
}

}  // namespace

const Failure& Failure::root() const {
  const Failure* failure = this;
  while (failure->cause) failure = failure->cause.get();
  return *failure;
}

std::string Failure::describe() const {
  if (!cause) return subject(*this) + " failed: " + message_of(error);
  const std::string between = elided == 0 ? "" : " (" + std::to_string(elided) + " more skips between)";
  return subject(*this) + " was skipped" + between + " because " + cause->describe();
}

OpError::OpError(std::vector<FailurePtr> failures)
    : Error(describe_all(failures)), failures_(std::make_shared<const std::vector<FailurePtr>>(std::move(failures))) {}

void OpError::rethrow_root() const { std::rethrow_exception(failures().front()->root().error); }

FailurePtr FailureLog::root(const OpInfo& op, std::exception_ptr error) {
  Roots dropped;
  MutexLock lock(mutex_);
  const auto known = std::find_if(roots_.begin(), roots_.end(), [&](const auto& r) { return r->error == error; });
  if (known != roots_.end()) return *known;
  auto failure = std::make_shared<RootFailure>();
  failure->op = op.name.empty() ? "op" : op.name;
  failure->pushed_at = op.pushed_at;
  failure->error = std::move(error);
  roots_.push_back(failure);
  if (roots_.size() >= prune_at_) dropped = prune();
  lock.unlock();
  return failure;
}

FailurePtr FailureLog::skip(const OpInfo& op, FailurePtr cause) {
  auto failure = std::make_shared<Failure>();
  failure->op = op.name.empty() ? "op" : op.name;
  failure->pushed_at = op.pushed_at;
  if (cause->depth < Failure::chain_limit) {
    failure->depth = cause->depth + 1;
    failure->cause = std::move(cause);
  } else {
    failure->depth = cause->depth;
    failure->elided = cause->elided + 1;
    failure->cause = cause->cause;
  }
  return failure;
}

void FailureLog::poison(VarState& var, FailurePtr failure) {
  ++root_of(failure).carriers;
  clear(var);
  var.poison = std::move(failure);
}

void FailureLog::clear(VarState& var) {
  if (!var.poison) return;
  --root_of(var.poison).carriers;
  var.poison.reset();  // the log still holds the root
}

void FailureLog::mark_reported(std::span<const FailurePtr> failures) {
  for (const FailurePtr& failure : failures) root_of(failure).reported = true;
}

std::vector<FailurePtr> FailureLog::report() {
  std::vector<FailurePtr> result;
  Roots dropped;
  MutexLock lock(mutex_);
  for (const auto& root : roots_) {
    if (active(*root) || !root->reported) result.push_back(root);
  }
  mark_reported(result);
  dropped = prune();
  lock.unlock();
  return result;
}

std::vector<FailurePtr> FailureLog::unreported() {
  std::vector<FailurePtr> result;
  MutexLock lock(mutex_);
  for (const auto& root : roots_) {
    if (!root->reported) result.push_back(root);
  }
  return result;
}

FailureLog::Roots FailureLog::prune() {
  const auto kept =
      std::partition(roots_.begin(), roots_.end(), [](const auto& root) { return active(*root) || !root->reported; });
  Roots dropped(std::make_move_iterator(kept), std::make_move_iterator(roots_.end()));
  roots_.erase(kept, roots_.end());
  prune_at_ = std::max<std::size_t>(64, 2 * roots_.size());
  return dropped;
}

}  // namespace windrow
