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

#include "windrow/engine/internal/typed_access.h"
#include "windrow/engine/options.h"
#include "windrow/engine/var.h"

namespace windrow {

namespace typed {

/// The parameters of a function that has one signature; void for a generic lambda and for overloads.
template <class F>
struct ParametersOf {
  using type = void;
};
template <class R, class... P>
struct ParametersOf<R (*)(P...)> {
  using type = std::tuple<P...>;
};
template <class R, class... P>
struct ParametersOf<R (*)(P...) noexcept> {
  using type = std::tuple<P...>;
};
template <class Member>
struct OfCall {
  using type = void;
};
template <class C, class R, class... P>
struct OfCall<R (C::*)(P...)> {
  using type = std::tuple<P...>;
};
template <class C, class R, class... P>
struct OfCall<R (C::*)(P...) const> {
  using type = std::tuple<P...>;
};
template <class C, class R, class... P>
struct OfCall<R (C::*)(P...) noexcept> {
  using type = std::tuple<P...>;
};
template <class C, class R, class... P>
struct OfCall<R (C::*)(P...) const noexcept> {
  using type = std::tuple<P...>;
};
template <class F>
requires requires { &F::operator(); }
struct ParametersOf<F> : OfCall<decltype(&F::operator())> {};

/// The parameters without a leading OpContext&, which a function may have.
template <class Parameters>
struct WithoutContext {
  using type = Parameters;
};
template <class... P>
struct WithoutContext<std::tuple<OpContext&, P...>> {
  using type = std::tuple<P...>;
};

/// `number` counts the accesses from 1; compilers print it with a failed assertion.
template <std::size_t number, class Parameter, class Argument>
constexpr bool check_parameter() {
  using Given = std::remove_reference_t<Argument>;
  constexpr bool reads = !std::is_reference_v<Argument> || std::is_const_v<Given>;
  static_assert(reads || std::is_reference_v<Parameter>,
                "a parameter of the op's function is a copy, so changes would be lost: mutate, overwrite and commute "
                "give T&; expected a parameter T& (or declare a read)");
  static_assert(!std::is_lvalue_reference_v<Argument> || std::is_const_v<Given> == false ||
                    std::is_const_v<std::remove_reference_t<Parameter>> || !std::is_reference_v<Parameter>,
                "a parameter of the op's function is T&, but its access is a read, which gives const T&; expected a "
                "parameter const T&, or mutate(x) in place of read(x)");
  static_assert(std::is_convertible_v<Argument, Parameter>,
                "a parameter of the op's function does not take what its access gives: accesses are passed in the "
                "order of the list; expected a parameter for the type of that value");
  return true;
}

template <class Arguments, class Parameters, class Numbers>
struct Check;
template <class... A, class... P, std::size_t... i>
struct Check<std::tuple<A...>, std::tuple<P...>, std::index_sequence<i...>> {
  static constexpr bool fine = (check_parameter<i + 1, P, A>() && ...);
};

template <class F, class... Argument>
constexpr bool check_function() {
  using Parameters = typename WithoutContext<typename ParametersOf<F>::type>::type;
  if constexpr (!std::is_void_v<Parameters>) {
    constexpr std::size_t has = std::tuple_size_v<Parameters>;
    static_assert(has <= sizeof...(Argument),
                  "the op's function has more parameters than the op has accesses; expected an access for each "
                  "parameter: read(x), mutate(x), overwrite(x) or commute(x)");
    static_assert(has >= sizeof...(Argument),
                  "the op's function has fewer parameters than the op has accesses; expected a parameter for each "
                  "access, in the same order");
    if constexpr (has == sizeof...(Argument)) {
      return Check<std::tuple<Argument...>, Parameters, std::index_sequence_for<Argument...>>::fine;
    }
  } else {
    static_assert(
        std::disjunction_v<std::is_invocable<F&, Argument...>, std::is_invocable<F&, OpContext&, Argument...>>,
        "the op's function cannot be called with what its accesses give: const T& for a read, T& for "
        "mutate, overwrite and commute, in the order of the list");
  }
  return true;
}

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

template <class F, TypedAccess... A>
auto call_of(F&& function, const A&... accesses) {
  using Target = std::decay_t<F>;
  static_assert(check_function<Target, ArgumentOf<A>...>());
  return Call<Target, std::index_sequence_for<A...>, decltype(accesses.kept())...>(Target(std::forward<F>(function)),
                                                                                   accesses.kept()...);
}

/// The same as an OpFunction, which is empty for an empty function.
template <class Op, class F, TypedAccess... A>
Op op_of(F&& function, const A&... accesses) {
  if constexpr (Op::template may_be_empty<std::remove_cvref_t<F>>) {
    if (function == nullptr) return nullptr;
  }
  return call_of(std::forward<F>(function), accesses...);
}

/// Calls f(AccessList).
template <class F, TypedAccess... A>
decltype(auto) with_list(F&& f, const A&... accesses) {
  if constexpr (requires { (A::count + ... + std::size_t{0}); }) {
    std::array<Access, (A::count + ... + std::size_t{0})> list;
    std::size_t n = 0;
    (accesses.list([&](Access access) { list[n++] = access; }), ...);
    return f(AccessList(std::span<const Access>(list)));
  } else {
    std::vector<Access> list;
    (accesses.list([&](Access access) { list.push_back(access); }), ...);
    return f(AccessList(list));
  }
}

}  // namespace typed

/// Pushes of functions that receive the objects that they declare, with up to eight accesses; a range counts as one.
/// The function's parameters are what each access gives, in the order of the list, optionally preceded by an
/// OpContext&. A function with other parameters does not compile. Everything else is as with Engine::push and
/// Engine::declare.
///
/// run() pushes an op whose result becomes a value (value.h, which the program must include). The result's type needs a
/// default constructor.
class TypedPushes {
 public:
  template <class Function, TypedAccess A>
  void push(Function&& function, const A& a, const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a);
  }
  template <class Function, TypedAccess A, TypedAccess B>
  void push(Function&& function, const A& a, const B& b, const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C>
  void push(Function&& function, const A& a, const B& b, const C& c, const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b, c);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D>
  void push(Function&& function, const A& a, const B& b, const C& c, const D& d, const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b, c, d);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D, TypedAccess E>
  void push(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e,
            const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b, c, d, e);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D, TypedAccess E, TypedAccess F>
  void push(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f,
            const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b, c, d, e, f);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D, TypedAccess E, TypedAccess F,
            TypedAccess G>
  void push(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
            const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b, c, d, e, f, g);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D, TypedAccess E, TypedAccess F,
            TypedAccess G, TypedAccess H>
  void push(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
            const H& h, const PushOptions& options = {}) {
    push_typed(std::forward<Function>(function), options, a, b, c, d, e, f, g, h);
  }

  template <class Function, TypedAccess A>
  auto declare(Function&& function, const A& a, const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a);
  }
  template <class Function, TypedAccess A, TypedAccess B>
  auto declare(Function&& function, const A& a, const B& b, const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C>
  auto declare(Function&& function, const A& a, const B& b, const C& c, const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b, c);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D>
  auto declare(Function&& function, const A& a, const B& b, const C& c, const D& d, const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b, c, d);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D, TypedAccess E>
  auto declare(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e,
               const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b, c, d, e);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D, TypedAccess E, TypedAccess F>
  auto declare(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f,
               const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b, c, d, e, f);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D, TypedAccess E, TypedAccess F,
            TypedAccess G>
  auto declare(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
               const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b, c, d, e, f, g);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D, TypedAccess E, TypedAccess F,
            TypedAccess G, TypedAccess H>
  auto declare(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
               const H& h, const PushOptions& options = {}) {
    return declare_typed(std::forward<Function>(function), options, a, b, c, d, e, f, g, h);
  }

  template <class Function>
  auto run(Function&& function, const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options);
  }
  template <class Function, TypedAccess A>
  auto run(Function&& function, const A& a, const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a);
  }
  template <class Function, TypedAccess A, TypedAccess B>
  auto run(Function&& function, const A& a, const B& b, const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a, b);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C>
  auto run(Function&& function, const A& a, const B& b, const C& c, const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a, b, c);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D>
  auto run(Function&& function, const A& a, const B& b, const C& c, const D& d, const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a, b, c, d);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D, TypedAccess E>
  auto run(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e,
           const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a, b, c, d, e);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D, TypedAccess E, TypedAccess F>
  auto run(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f,
           const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a, b, c, d, e, f);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D, TypedAccess E, TypedAccess F,
            TypedAccess G>
  auto run(Function&& function, const A& a, const B& b, const C& c, const D& d, const E& e, const F& f, const G& g,
           const PushOptions& options = {}) {
    return run_typed(std::forward<Function>(function), options, a, b, c, d, e, f, g);
  }
  template <class Function, TypedAccess A, TypedAccess B, TypedAccess C, TypedAccess D, TypedAccess E, TypedAccess F,
            TypedAccess G, TypedAccess H>
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
