#include "diagnosis/access_check.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "lane/lanes.h"

namespace windrow {
namespace {

/// Each step is one-to-one, so a change of one word never goes unseen.
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

void add_offence(std::string& offences, const char* verb, const VarState& var, const char* declared) {
  offences += (offences.empty() ? " " : " and ") + std::string(verb) + " variable '" + name_of(var) +
              "', which it " + declared;
}

}  // namespace

AccessCheck::Watched::Watched(const VarState& of, std::span<std::byte> behind)
    : var(&of), bytes(behind), hash(hash_of(behind)) {
  if (PageGuard::fits(bytes)) guard.emplace(bytes);
}

void AccessCheck::watch(const VarState& var, std::span<std::byte> bytes) {
  MutexLock lock(mutex_);
  watched_.emplace_back(var, bytes);
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
    // It is no offence if the program itself has written the bytes.
    if (watched.var->writers == 0 && watched.settled) watched.hash = hash_of(watched.bytes);
  }
  for (Dep::Access& access : op.touches()) var_of(access).writers += access.writes();
  for (Watched& watched : watched_) {
    if (watched.guard && find_access(op, *watched.var) == nullptr) watched.guard->shut();
  }
}

std::exception_ptr AccessCheck::end(OpRecord& op) noexcept {
  std::string offences;
  std::exception_ptr untold;  // set if there was no memory to say what the op did
  const auto note = [&](const char* did, const VarState& var, const char* declared) {
    try {
      add_offence(offences, did, var, declared);
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
      note("changed", *watched.var, declared ? "declared only to read" : "did not declare");
    } else if (touched) {
      note("read", *watched.var, "did not declare");
    }
  }
  if (untold || offences.empty()) return untold;
  try {
    return std::make_exception_ptr(MisuseError(site(op.info()) + offences));
  } catch (const std::bad_alloc&) {
    return std::current_exception();
  }
}

void AccessCheck::let_go(OpRecord& op, bool settled) {
  MutexLock lock(mutex_);
  for (Dep::Access& access : op.touches()) var_of(access).writers -= access.writes();
  for (Watched& watched : watched_) {
    const Dep::Access* const access = find_access(op, *watched.var);
    if (access == nullptr || watched.var->writers > 0) continue;
    watched.settled &= settled || !access->writes();
    if (watched.settled) watched.hash = hash_of(watched.bytes);
  }
}

}  // namespace windrow
