// Variables, and the ways an op may touch one.
//
// A variable is a tag: it stands for whatever the program says it stands for (a buffer, a file, a random generator).
// This header knows nothing of what is behind it, nor of how the engine orders the ops that name it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace windrow {

class Core;
struct VarState;

/// A handle: copies name the same variable, and a default-made one names none.
///
/// Made by Engine::new_var, ended by Engine::retire. A handle kept after the retire is recognised, not trusted: using
/// it throws MisuseError. It must not be used after its engine is gone.
class Var {
 public:
  Var() = default;
  explicit operator bool() const { return state_ != nullptr; }
  friend bool operator==(const Var&, const Var&) = default;

 private:
  friend class Core;
  Var(VarState* state, std::uint32_t generation) : state_(state), generation_(generation) {}

  VarState* state_ = nullptr;
  std::uint32_t generation_ = 0;
};

/// How an op touches a variable.
enum class AccessKind : std::uint8_t {
  read,       ///< shares the variable with other readers
  overwrite,  ///< alone, and does not look at the old value: clears poison when it has run. One that fails leaves the
              ///< value as far as it got, poisoned by its own failure, until the next overwrite or a heal
  mutate,     ///< alone, and may look at the old value
  /// As mutate; but such ops with no others between them may run in any order. One that commutes at several variables
  /// may be passed for as long as others at one of them keep coming.
  commute,
};

struct Access {
  Var var;
  AccessKind kind;
};

inline Access read(Var var) { return {var, AccessKind::read}; }
inline Access mutate(Var var) { return {var, AccessKind::mutate}; }
inline Access overwrite(Var var) { return {var, AccessKind::overwrite}; }
inline Access commute(Var var) { return {var, AccessKind::commute}; }

/// A view of accesses, for parameters only: it must not outlive the call it is passed to.
///
/// A variable named twice counts once; two different kinds together make mutate.
class AccessList {
 public:
  AccessList() = default;
  AccessList(std::initializer_list<Access> list) : items_(list.begin(), list.size()) {}
  AccessList(std::span<const Access> list) : items_(list) {}
  AccessList(const std::vector<Access>& list) : items_(list) {}

  const Access* begin() const { return items_.data(); }
  const Access* end() const { return items_.data() + items_.size(); }
  std::size_t size() const { return items_.size(); }

 private:
  std::span<const Access> items_;
};

}  // namespace windrow
