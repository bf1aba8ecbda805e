#include "record/failure.h"

#include <algorithm>
#include <new>
#include <utility>

namespace windrow {
namespace {

std::string where(const std::source_location& location) {
  return std::string(location.file_name()) + ":" + std::to_string(location.line());
}

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what() == nullptr ? "an exception whose what() is null" : e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

std::string subject(const Failure& failure) {
  if (failure.kind == Failure::Kind::lane) return "lane '" + failure.name + "'";
  const std::string on = failure.changes.empty() ? "" : " on " + failure.changes;
  return "op '" + failure.name + "'" + on + " (pushed at " + where(failure.pushed_at) + ")";
}

std::string_view predicate(Failure::Kind kind) {
  switch (kind) {
    case Failure::Kind::threw:
    case Failure::Kind::lane:
      return " failed: ";
    case Failure::Kind::waited:
      return " failed in a wait";
    case Failure::Kind::skipped:
      return " was skipped";
    case Failure::Kind::lost:
      return " was lost";
    case Failure::Kind::cancelled:
      return " was cancelled";
  }
  return "";
}

constexpr std::size_t named_in_text = 10;

RootFailure& root_of(const FailurePtr& failure) {
  // Every root is made as a RootFailure, by FailureLog::root. Callers change only its atomics.
  return const_cast<RootFailure&>(static_cast<const RootFailure&>(failure->root()));
}

std::exception_ptr nested_in(const std::exception_ptr& error) {
  if (!error) return nullptr;
  try {
    std::rethrow_exception(error);
  } catch (const std::nested_exception& nesting) {
    return nesting.nested_ptr();
  } catch (...) {
    return nullptr;
  }
}

bool contains(std::span<const std::exception_ptr> errors, const std::exception_ptr& error) {
  return std::ranges::find(errors, error) != errors.end();
}

bool active(const RootFailure& root) { return root.carriers.load() > 0; }

std::string describe_all(const std::vector<FailurePtr>& failures) {
  std::string text;
  for (std::size_t i = 0; i < std::min(failures.size(), named_in_text); ++i) {
    text += (i == 0 ? "" : "; ") + failures[i]->describe();
  }
  if (failures.size() > named_in_text) text += "; and " + std::to_string(failures.size() - named_in_text) + " more";
  return text;
}

}  // namespace

const Failure& Failure::root() const {
  const Failure* failure = this;
  while (failure->cause) failure = failure->cause.get();
  return *failure;
}

std::exception_ptr Failure::origin() const {
  const std::exception_ptr& thrown = root().error;
  std::exception_ptr nested = nested_in(thrown);
  return nested ? nested : thrown;
}

std::string Failure::describe() const {
  const std::string what = subject(*this) + std::string(predicate(kind));
  if (kind == Kind::cancelled) {
    const std::string why = message_of(error);
    return why == Cancelled().what() ? what : what + ": " + why;
  }
  if (!cause) return what + message_of(error);
  const std::string between = elided == 0 ? "" : " (" + std::to_string(elided) + " more failures between)";
  return what + between + " because " + cause->describe();
}

OpError::OpError(std::vector<FailurePtr> failures, std::shared_ptr<CoreLink> engine)
    : Error(describe_all(failures)),
      failures_(std::make_shared<const std::vector<FailurePtr>>(std::move(failures))),
      engine_(std::move(engine)) {}

void OpError::rethrow_root() const { std::rethrow_exception(failures().front()->root().error); }

FailureLog::FailureLog(std::uint32_t number) : number_(number), undescribed_(std::make_shared<RootFailure>()) {
  undescribed_->name = "op";
  undescribed_->error = std::make_exception_ptr(Error("there was no memory to keep what failed, and why"));
  undescribed_->engine = number;
  undescribed_->reported = true;
}

FailurePtr FailureLog::undescribed() noexcept {
  undescribed_->reported = false;
  return undescribed_;
}

FailurePtr FailureLog::thrown(const OpInfo& op, std::exception_ptr error, std::string changes) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const OpError& e) {
    const FailurePtr& first = e.failures().front();
    if (root_of(first).engine == number_) {
      try {
        list_again(first);
      } catch (const std::bad_alloc&) {
        return undescribed();
      }
      return caused(Failure::Kind::waited, op, first, std::move(changes));
    }
  } catch (const Cancelled&) {
    return root(Failure::Kind::cancelled, op, std::move(error), std::move(changes));
  } catch (...) {
  }
  return root(Failure::Kind::threw, op, std::move(error), std::move(changes));
}

void FailureLog::list_again(FailurePtr failure) {
  while (failure->cause) failure = failure->cause;
  auto root = std::const_pointer_cast<RootFailure>(std::static_pointer_cast<const RootFailure>(std::move(failure)));
  MutexLock lock(mutex_);
  root->reported = false;  // report it again, as part of another failure
  if (root->listed || root == undescribed_) return;
  roots_.push_back(root);
  root->listed = true;
}

FailureLog::Hold::Hold(const FailurePtr& failure) : failure_(failure) {
  if (failure_) ++root_of(failure_).carriers;
}

FailureLog::Hold::~Hold() {
  if (failure_) --root_of(failure_).carriers;
}

FailurePtr FailureLog::lane(std::string_view name, std::exception_ptr error) noexcept {
  return root(Failure::Kind::lane, {.name = name}, std::move(error), {});
}

FailurePtr FailureLog::root(Failure::Kind kind, const OpInfo& op, std::exception_ptr error,
                            std::string changes) noexcept try {
  auto failure = std::make_shared<RootFailure>();
  failure->kind = kind;
  failure->name = op.name;
  failure->pushed_at = op.pushed_at;
  failure->changes = std::move(changes);
  failure->error = std::move(error);
  failure->engine = number_;
  failure->nested = nested_in(failure->error);
  Dropped dropped;
  MutexLock lock(mutex_);
  roots_.push_back(failure);
  if (roots_.size() >= prune_at_) dropped = prune();
  lock.unlock();
  return failure;
} catch (const std::bad_alloc&) {
  return undescribed();
}

FailurePtr FailureLog::caused(Failure::Kind kind, const OpInfo& op, const FailurePtr& cause,
                              std::string changes) noexcept try {
  auto failure = std::make_shared<Failure>();
  failure->kind = kind;
  failure->name = op.name;
  failure->pushed_at = op.pushed_at;
  failure->changes = std::move(changes);
  if (cause->depth < Failure::chain_limit) {
    failure->depth = cause->depth + 1;
    failure->cause = cause;
  } else {
    failure->depth = cause->depth;
    failure->elided = cause->elided + 1;
    failure->cause = cause->cause;
  }
  return failure;
} catch (const std::bad_alloc&) {
  return cause;
}

void FailureLog::poison(VarState& var, FailurePtr failure) {
  ++root_of(failure).carriers;
  clear(var);
  ++poisoned_;
  set(var, std::move(failure));
}

void FailureLog::set(VarState& var, FailurePtr poison) noexcept {
  MutexLock lock(mutex_);
  var.poison.swap(poison);
}

void FailureLog::clear(VarState& var) {
  if (!var.poison) return;
  RootFailure& root = root_of(var.poison);
  // In this order the log still holds the root. So it is not destroyed here, where its destructor would run user code.
  set(var, nullptr);
  --root.carriers;
  --poisoned_;
}

static bool has_root_of_any(const FailurePtr& failure, std::span<const FailurePtr> others) {
  return failure &&
         std::ranges::any_of(others, [root = &failure->root()](const FailurePtr& f) { return &f->root() == root; });
}

void FailureLog::clear_of(VarState& var, std::span<const FailurePtr> failures) {
  if (has_root_of_any(var.poison, failures)) clear(var);
}

FailurePtr FailureLog::poison_of(const VarState& var, std::span<const FailurePtr> failures) {
  MutexLock lock(mutex_);
  return has_root_of_any(var.poison, failures) ? var.poison : nullptr;
}

void FailureLog::mark_reported(std::span<const FailurePtr> failures) {
  for (const FailurePtr& failure : failures) root_of(failure).reported = true;
}

std::vector<FailurePtr> FailureLog::to_report() {
  std::vector<FailurePtr> result;
  MutexLock lock(mutex_);
  for (const auto& root : roots_) {
    if (active(*root) || !root->reported) result.push_back(root);
  }
  if (active(*undescribed_) || !undescribed_->reported) result.push_back(undescribed_);
  return result;
}

void FailureLog::reported(std::span<const FailurePtr> failures) {
  Dropped dropped;
  MutexLock lock(mutex_);
  mark_reported(failures);
  dropped = prune();
  lock.unlock();
}

std::vector<FailurePtr> FailureLog::unreported() {
  Roots roots;
  std::vector<std::exception_ptr> reported;  // as part of what nests them
  {
    MutexLock lock(mutex_);
    roots = roots_;
    reported.assign(pruned_.begin(), pruned_.end());
  }
  for (const auto& root : roots) {
    if (root->nested && root->reported) reported.push_back(root->nested);
  }
  std::vector<std::exception_ptr> told = reported;  // or in `result`
  for (const auto& root : roots) {
    if (!root->nested) told.push_back(root->error);
  }
  std::vector<FailurePtr> result;
  for (const auto& root : roots) {
    if (root->reported || contains(root->nested ? told : reported, root->nested ? root->nested : root->error)) continue;
    if (root->nested) told.push_back(root->nested);
    result.push_back(root);
  }
  if (!undescribed_->reported) result.push_back(undescribed_);
  return result;
}

FailureLog::Dropped FailureLog::prune() noexcept {
  const auto kept =
      std::partition(roots_.begin(), roots_.end(), [](const auto& root) { return active(*root) || !root->reported; });
  Dropped dropped;
  const auto count = static_cast<std::size_t>(roots_.end() - kept);
  try {
    dropped.roots.reserve(count);
    dropped.nested.reserve(count);
  } catch (const std::bad_alloc&) {
    return dropped;
  }
  for (auto root = kept; root != roots_.end(); ++root) {
    (*root)->listed = false;
    if (const std::exception_ptr& nested = (*root)->nested; nested && !contains(pruned_, nested)) {
      dropped.nested.push_back(std::exchange(pruned_[next_pruned_++ % pruned_.size()], nested));
    }
    dropped.roots.push_back(std::move(*root));
  }
  roots_.erase(kept, roots_.end());
  prune_at_ = std::max<std::size_t>(64, 2 * roots_.size());
  return dropped;
}

}  // namespace windrow
