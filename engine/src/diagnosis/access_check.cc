#include "diagnosis/access_check.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "diagnosis/engine_log.h"
#include "lane/lanes.h"

namespace windrow {
namespace {

/// Each step is one-to-one, so a change of one word always changes the hash.
std::uint64_t hash_step(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 32;
}

std::uint64_t hash_of(std::span<const std::byte> bytes) {
  std::uint64_t hash = bytes.size();
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t size = std::min(sizeof word, bytes.size());
    std::memcpy(&word, bytes.data(), size);
    hash = hash_step(hash, word);
    bytes = bytes.subspan(size);
  }
  return hash;
}

const Dep::Access* find_access(OpRecord& op, const VarState& var) {
  for (const Dep::Access& access : op.touches()) {
    if (&var_of(access) == &var) return &access;
  }
  return nullptr;
}

enum class Offence { changed_undeclared, changed_read, read_undeclared };

/// Text that says what the op did, and what its author should write instead.
std::string text_of(Offence offence, const VarState& var) {
  const std::string name = name_of(var), called = " variable '" + name + "', which it ";
  switch (offence) {
    case Offence::changed_undeclared:
      return "changed" + called + "did not declare: add mutate(" + name + ")";
    case Offence::changed_read:
      return "changed" + called + "declared only to read: declare overwrite(" + name + "), or mutate(" + name +
             ") if it needs the old value";
    case Offence::read_undeclared:
      break;
  }
  return "read" + called + "did not declare: add read(" + name + ")";
}

}  // namespace

AccessCheck::Watched::Watched(const VarState& of, std::span<std::byte> behind)
    : var(&of), bytes(behind), hash(hash_of(behind)) {
  if (PageGuard::fits(bytes)) guard.emplace(bytes);
}

void AccessCheck::watch(const VarState& var, std::span<std::byte> bytes) {
  const bool sees_reads = bytes.empty() || PageGuard::fits(bytes);
  MutexLock lock(mutex_);
  const bool warns = !sees_reads && told_.insert(var.name.load()).second;
  watched_.emplace_back(var, bytes);
  lock.unlock();
  if (!warns) return;
  engine_log().warn(
      "windrow: checking mode cannot see reads of variable '{}' that an op did not declare, since its bytes are not "
      "whole pages; allocate them with page_allocator()",
      var.name.load());
}

void AccessCheck::forget(const VarState& var) {
  MutexLock lock(mutex_);
  watched_.remove_if([&](const Watched& watched) { return watched.var == &var; });
}

void AccessCheck::begin(OpRecord& op) {
  MutexLock lock(mutex_);
  for (Watched& watched : watched_) {
    if (watched.guard) watched.guard->open();
    watched.settled |= !op.info().lane->ordered && find_access(op, *watched.var) != nullptr;
    // The program itself may have written the bytes, which is allowed.
    if (watched.var->writers == 0 && watched.settled) watched.hash = hash_of(watched.bytes);
  }
  count(op, op.is_async(), 1);
  for (Watched& watched : watched_) {
    const bool may_touch = watched.var->async_users > 0 || find_access(op, *watched.var) != nullptr;
    if (watched.guard && !may_touch) watched.guard->shut();
  }
}

void AccessCheck::count(OpRecord& op, bool async, std::int16_t ops) {
  for (Dep::Access& access : op.touches()) {
    if (access.writes()) var_of(access).writers += ops;
    if (async) var_of(access).async_users += ops;
  }
}

std::exception_ptr AccessCheck::end(OpRecord& op) noexcept {
  std::string offences;
  std::exception_ptr untold;  // set if there was no memory for a text
  const auto note = [&](Offence offence, const VarState& var) {
    try {
      offences += (offences.empty() ? "" : "; ") + text_of(offence, var);
    } catch (const std::bad_alloc&) {
      untold = std::current_exception();
    }
  };
  MutexLock lock(mutex_);
  for (Watched& watched : watched_) {
    const bool touched = watched.guard && watched.guard->open();
    if (watched.var->writers > 0 || !watched.settled) continue;  // this op, or another active one, may write
    const bool declared = find_access(op, *watched.var) != nullptr;
    const std::uint64_t before = std::exchange(watched.hash, hash_of(watched.bytes));
    if (watched.hash != before) {
      note(declared ? Offence::changed_read : Offence::changed_undeclared, *watched.var);
    } else if (touched) {
      note(Offence::read_undeclared, *watched.var);
    }
  }
  if (untold || offences.empty()) return untold;
  try {
    return std::make_exception_ptr(MisuseError(offences));
  } catch (const std::bad_alloc&) {
    return std::current_exception();
  }
}

void AccessCheck::let_go(OpRecord& op, End how) {
  MutexLock lock(mutex_);
  count(op, how != End::of_function, -1);
  for (Watched& watched : watched_) {
    const Dep::Access* const access = find_access(op, *watched.var);
    if (access == nullptr || watched.var->writers > 0) continue;
    watched.settled &= how != End::of_issue || !access->writes();
    if (watched.settled) watched.hash = hash_of(watched.bytes);
  }
}

}  // namespace windrow
