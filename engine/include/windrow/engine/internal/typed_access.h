// Typed accesses: what read(x), mutate(x), overwrite(x) and commute(x) return for a value that an op receives.
//
// A type takes part by a member `template <AccessKind kind> ... access()`, which returns OneAccess, or another class
// with
//   void list(F&& add) const     calls add(Access) for each variable that the access names; `static constexpr
//                                std::size_t count` is their number, if it is known at compile time
//   Kept kept() const            what the op stores: small, and valid until the variables are retired
// A Kept is called in the op, as kept(OpContext&), and returns what the op's function receives. It may throw, which
// fails the op. Its memory must be freed by the op that retires the variable, or be owned by the Kept.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "windrow/engine/var.h"

namespace windrow {

class OpContext;

/// A class as described above.
template <class A>
concept TypedAccess = requires(const A& access, void (*add)(Access)) {
  access.list(add);
  access.kept();
};

/// What a typed push takes: also the access to a variable, for which the function receives nothing.
template <class A>
concept AnyAccess = TypedAccess<A> || std::same_as<A, Access>;

/// What the function of an op receives for the access.
template <TypedAccess A>
using ArgumentOf = std::invoke_result_t<decltype(std::declval<const A&>().kept())&, OpContext&>;

/// Access to one variable. `Kept` is what the op stores. A value; it must be pushed before the variable's owner ends.
template <class Kept>
class OneAccess {
 public:
  static constexpr std::size_t count = 1;

  OneAccess(Access access, Kept kept) : var_(access.var), kind_(access.kind), kept_(std::move(kept)) {}
  template <class F>
  void list(F&& add) const {
    add(Access{var_, kind_});
  }
  Kept kept() const { return kept_; }

 private:
  // Apart, so that compilers keep no Access in memory, which takes time to write in parts and to read as a whole.
  Var var_;
  AccessKind kind_;
  Kept kept_;
};

/// The reference that a kind of access gives: const T& for a read, otherwise T&.
template <class T, AccessKind kind>
using Accessed = std::conditional_t<kind == AccessKind::read, const T, T>;

/// For an op that receives one object, which lives as long as its variable.
template <class T>
struct ObjectKept {
  T* object;
  T& operator()(OpContext&) const { return *object; }
};
template <class T, AccessKind kind>
using ObjectAccess = OneAccess<ObjectKept<Accessed<T, kind>>>;

/// Access to contiguous objects, each with its own variable. A view: it must not outlive the call to which it is
/// passed.
template <class T, AccessKind kind>
class RangeAccess {
 public:
  struct Kept {
    std::span<Accessed<T, kind>> objects;
    std::span<Accessed<T, kind>> operator()(OpContext&) const { return objects; }
  };

  RangeAccess(std::span<const Var> vars, std::span<Accessed<T, kind>> objects) : vars_(vars), objects_(objects) {}
  template <class F>
  void list(F&& add) const {
    for (const Var var : vars_) add(Access{var, kind});
  }
  Kept kept() const { return {objects_}; }

 private:
  std::span<const Var> vars_;
  std::span<Accessed<T, kind>> objects_;
};

/// Whether read(x) and the other functions below take an X&.
template <class X>
concept Accessible = requires(X& x) {
  { x.template access<AccessKind::mutate>() } -> TypedAccess;
};

template <Accessible X>
auto read(const X& x) {
  return x.template access<AccessKind::read>();
}
template <class X>
requires Accessible<X>
auto mutate(X&& x) { return x.template access<AccessKind::mutate>(); }
template <class X>
requires Accessible<X>
auto overwrite(X&& x) { return x.template access<AccessKind::overwrite>(); }
template <class X>
requires Accessible<X>
auto commute(X&& x) { return x.template access<AccessKind::commute>(); }

}  // namespace windrow
