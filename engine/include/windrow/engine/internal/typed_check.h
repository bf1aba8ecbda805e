// Whether the function of a typed push takes what its accesses give; if not, an assertion fails that says what is
// expected. Nothing here runs.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

namespace windrow {

class OpContext;

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
struct OfCall<R (C::*)(P...)&> : OfCall<R (C::*)(P...)> {};
template <class C, class R, class... P>
struct OfCall<R (C::*)(P...) const&> : OfCall<R (C::*)(P...)> {};
template <class C, class R, class... P>
struct OfCall<R (C::*)(P...)& noexcept> : OfCall<R (C::*)(P...)> {};
template <class C, class R, class... P>
struct OfCall<R (C::*)(P...) const& noexcept> : OfCall<R (C::*)(P...)> {};
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
template <class... P>
struct WithoutContext<std::tuple<const OpContext&, P...>> {
  using type = std::tuple<P...>;
};

/// What a generic lambda with a parameter too many receives for it.
struct MoreParametersThanAccesses {};

/// Whether an arithmetic parameter holds every value of the type that an access gives; true for other types.
template <class Given, class Parameter>
constexpr bool holds() {
  using From = std::remove_cvref_t<Given>;
  using To = std::remove_cvref_t<Parameter>;
  if constexpr (std::is_arithmetic_v<From> && std::is_arithmetic_v<To>) {
    using Of = std::numeric_limits<From>;
    using Into = std::numeric_limits<To>;
    return (Of::is_integer || !Into::is_integer) && (!Of::is_signed || Into::is_signed) && Of::digits <= Into::digits;
  } else {
    return true;
  }
}

/// Whether a parameter takes what its access gives; if not, an assertion fails that says so. `number` counts the
/// accesses from 1; compilers print it with the failed assertion.
template <std::size_t number, class Parameter, class Argument>
constexpr bool check_parameter() {
  constexpr bool reads = !std::is_reference_v<Argument> || std::is_const_v<std::remove_reference_t<Argument>>;
  constexpr bool copies = !std::is_lvalue_reference_v<Parameter>;
  constexpr bool changes =
      std::is_lvalue_reference_v<Parameter> && !std::is_const_v<std::remove_reference_t<Parameter>>;
  constexpr bool loses = copies && !reads, breaks = changes && reads && std::is_reference_v<Argument>;
  constexpr bool takes = std::is_convertible_v<Argument, Parameter>, fits = holds<Argument, Parameter>();
  static_assert(!loses,
                "a parameter of the op's function is a copy, so changes would be lost: mutate, overwrite and commute "
                "give T&; expected a parameter T& (or declare a read)");
  static_assert(loses || !breaks,
                "a parameter of the op's function is T&, but its access is a read, which gives const T&; expected a "
                "parameter const T&, or mutate(x) in place of read(x)");
  static_assert(loses || breaks || takes,
                "a parameter of the op's function does not take what its access gives: accesses are passed in the "
                "order of the list; expected a parameter for the type of that value");
  static_assert(loses || breaks || !takes || fits,
                "a parameter of the op's function cannot hold every number of the value's type: accesses are passed in "
                "the order of the list; expected a parameter of that type");
  return !loses && !breaks && takes && fits;
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
    } else {
      return false;
    }
  } else if constexpr (std::is_invocable_v<F&, Argument...>) {
    return true;
  } else {
    constexpr bool has_more = std::is_invocable_v<F&, MoreParametersThanAccesses&, Argument...>;
    static_assert(!has_more,
                  "the op's function is a generic lambda with more parameters than the op has accesses; expected an "
                  "access for each (the type of a leading parameter for the context is written: OpContext&)");
    constexpr bool fine = std::is_invocable_v<F&, OpContext&, Argument...>;
    static_assert(has_more || fine,
                  "the op's function cannot be called with what its accesses give: const T& for a read, T& for "
                  "mutate, overwrite and commute, in the order of the list");
    return !has_more && fine;
  }
}

}  // namespace typed
}  // namespace windrow
