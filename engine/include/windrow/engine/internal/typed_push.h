// Pushes of functions that receive the objects that they declare. Engine derives from TypedPushes; engine.h includes
// this file.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <array>
#include <cstddef>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "windrow/engine/internal/function.h"
#include "windrow/engine/internal/typed_access.h"
#include "windrow/engine/internal/typed_check.h"
#include "windrow/engine/options.h"
#include "windrow/engine/var.h"

namespace windrow {

class DeclaredOp;

namespace typed {

/// What an access of the op keeps. `number` distinguishes it from others of its type.
template <std::size_t number, class Kept>
struct KeptAt {
  [[no_unique_address]] Kept kept;
};

/// The function of an op and what it receives. If both are trivially copyable, so is this class (a std::tuple would not
/// be), and the engine moves it as bytes.
template <class F, class Numbers, class... Kept>
struct Call;
template <class F, std::size_t... i, class... Kept>
struct Call<F, std::index_sequence<i...>, Kept...> : KeptAt<i, Kept>... {
  [[no_unique_address]] F function;

  Call(F&& f, Kept&&... kept) : KeptAt<i, Kept>{std::move(kept)}..., function(std::move(f)) {}

  decltype(auto) operator()(OpContext& context) {
    // Tries without the context first, since the body of a generic lambda need not accept one.
    if constexpr (std::is_invocable_v<F&, std::invoke_result_t<Kept&, OpContext&>...>) {
      return std::invoke(function, static_cast<KeptAt<i, Kept>&>(*this).kept(context)...);
    } else {
      return std::invoke(function, context, static_cast<KeptAt<i, Kept>&>(*this).kept(context)...);
    }
  }
};

/// In place of a function that an assertion has refused, so that compilers report little else.
struct Refused {
  int operator()(OpContext&) { return 0; }
};

template <class F, TypedAccess... A>
auto call_with(F&& function, const A&... accesses) {
  using Target = std::decay_t<F>;
  if constexpr (check_function<Target, ArgumentOf<A>...>()) {
    return Call<Target, std::index_sequence_for<A...>, decltype(accesses.kept())...>(Target(std::forward<F>(function)),
                                                                                     accesses.kept()...);
  } else {
    return Refused();
  }
}

/// The function with what it receives. An Access gives it nothing.
template <class F, AnyAccess... A>
auto call_of(F&& function, const A&... accesses) {
  if constexpr ((TypedAccess<A> && ...)) {
    return call_with(std::forward<F>(function), accesses...);
  } else {
    const auto given = [](const auto& access) {
      if constexpr (TypedAccess<std::remove_cvref_t<decltype(access)>>) {
        return std::tie(access);
      } else {
        return std::tuple<>();
      }
    };
    return std::apply([&](const auto&... typed) { return call_with(std::forward<F>(function), typed...); },
                      std::tuple_cat(given(accesses)...));
  }
}

/// Of a function that can be empty, whether it is.
template <class F>
bool is_empty(const F& function) {
  if constexpr (IsFunction<F>::value) {
    return !function;
  } else if constexpr (may_be_empty<F>) {
    return function == nullptr;
  } else {
    return false;
  }
}

/// The same as an OpFunction, which is empty for an empty function.
template <class Op, class F, AnyAccess... A>
Op op_of(F&& function, const A&... accesses) {
  if (is_empty(function)) return nullptr;
  return call_of(std::forward<F>(function), accesses...);
}

/// The number of variables of an access, if it is known at compile time.
template <class A>
struct CountOf {};
template <class A>
requires requires { A::count; }
struct CountOf<A> : std::integral_constant<std::size_t, A::count> {};
template <>
struct CountOf<Access> : std::integral_constant<std::size_t, 1> {};

/// Calls add(Access) for each variable.
template <AnyAccess A, class F>
void list(const A& access, F&& add) {
  if constexpr (TypedAccess<A>) {
    access.list(add);
  } else {
    add(access);
  }
}

/// Calls f(AccessList).
template <class F, AnyAccess... A>
decltype(auto) with_list(F&& f, const A&... accesses) {
  if constexpr (requires { (CountOf<A>::value + ... + std::size_t{0}); }) {
    std::array<Access, (CountOf<A>::value + ... + std::size_t{0})> all;
    std::size_t n = 0;
    (list(accesses, [&](Access access) { all[n++] = access; }), ...);
    return f(AccessList(std::span<const Access>(all)));
  } else {
    std::vector<Access> all;
    (list(accesses, [&](Access access) { all.push_back(access); }), ...);
    return f(AccessList(all));
  }
}

/// What a push was given in place of read(x) and the like.
template <class X>
concept NoAccess = Accessible<X> || std::same_as<std::remove_const_t<X>, Var>;

}  // namespace typed

/// Pushes of functions that receive the objects that they declare, with up to eight accesses; a range counts as one.
/// The function's parameters are what each access gives, in the order of the list, optionally preceded by an
/// OpContext&. A function with other parameters does not compile; of a generic lambda, declare the parameters `auto&`,
/// since a change of an `auto` is lost. An access to a variable, such as mutate(var), gives the function nothing.
/// Everything else is as with Engine::push and Engine::declare.
///
/// run() pushes an op whose result becomes a value (value.h, which the program must include). The result's type needs a
/// default constructor.
class TypedPushes {
 public:
  template <class Function, AnyAccess A>
  void push(Function&& function, const A& a, const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a);
  }
  template <class Function, AnyAccess A, AnyAccess B>
  void push(Function&& function, const A& a, const B& b, const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C>
  void push(Function&& function, const A& a, const B& b, const C& c, const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b, c);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D>
  void push(Function&& function, const A& a, const B& b, const C& c, const D& d, const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b, c, d);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D, AnyAccess E>
  void push(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e,
            const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b, c, d, e);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D, AnyAccess E, AnyAccess F>
  void push(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f,
            const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b, c, d, e, f);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D, AnyAccess E, AnyAccess F, AnyAccess G>
  void push(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
            const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b, c, d, e, f, g);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D, AnyAccess E, AnyAccess F, AnyAccess G,
            AnyAccess H>
  void push(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
            const H& h, const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b, c, d, e, f, g, h);
  }

  /// Of a push without accesses, or with values in place of accesses, says what is missing.
  template <class Function, class... X>
  requires(!std::same_as<std::remove_cvref_t<Function>, DeclaredOp> &&
           (sizeof...(X) == 0 || (typed::NoAccess<X> || ...))) void push(Function&&, const X&...) {
    static_assert(
        std::is_void_v<Function>,
        "a push without an access, or with a value in place of one; expected read(x), mutate(x), overwrite(x) "
        "or commute(x) for each value, or {} for none");
  }

  template <class Function, AnyAccess A>
  auto declare(Function&& function, const A& a, const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a);
  }
  template <class Function, AnyAccess A, AnyAccess B>
  auto declare(Function&& function, const A& a, const B& b, const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C>
  auto declare(Function&& function, const A& a, const B& b, const C& c, const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b, c);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D>
  auto declare(Function&& function, const A& a, const B& b, const C& c, const D& d, const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b, c, d);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D, AnyAccess E>
  auto declare(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e,
               const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b, c, d, e);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D, AnyAccess E, AnyAccess F>
  auto declare(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f,
               const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b, c, d, e, f);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D, AnyAccess E, AnyAccess F, AnyAccess G>
  auto declare(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
               const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b, c, d, e, f, g);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D, AnyAccess E, AnyAccess F, AnyAccess G,
            AnyAccess H>
  auto declare(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
               const H& h, const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b, c, d, e, f, g, h);
  }

  template <class Function>
  auto run(Function&& function, const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options);
  }
  template <class Function, AnyAccess A>
  auto run(Function&& function, const A& a, const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a);
  }
  template <class Function, AnyAccess A, AnyAccess B>
  auto run(Function&& function, const A& a, const B& b, const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a, b);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C>
  auto run(Function&& function, const A& a, const B& b, const C& c, const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a, b, c);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D>
  auto run(Function&& function, const A& a, const B& b, const C& c, const D& d, const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a, b, c, d);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D, AnyAccess E>
  auto run(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e,
           const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a, b, c, d, e);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D, AnyAccess E, AnyAccess F>
  auto run(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f,
           const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a, b, c, d, e, f);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D, AnyAccess E, AnyAccess F, AnyAccess G>
  auto run(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
           const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a, b, c, d, e, f, g);
  }
  template <class Function, AnyAccess A, AnyAccess B, AnyAccess C, AnyAccess D, AnyAccess E, AnyAccess F, AnyAccess G,
            AnyAccess H>
  auto run(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
           const H& h, const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a, b, c, d, e, f, g, h);
  }

 protected:
  TypedPushes() = default;

 private:
  template <class Function, class... A>
  void push_typed(Function&& function, const PushOptions& options, const A&... accesses);
  template <class Function, class... A>
  auto declare_typed(Function&& function, const PushOptions& options, const A&... accesses);
  /// Defined in value.h.
  template <class Function, class... A>
  auto run_typed(Function&& function, const PushOptions& options, const A&... accesses);
};

}  // namespace windrow
