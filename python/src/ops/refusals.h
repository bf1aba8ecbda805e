// Errors for what the values of this package do not support; their texts say what to do instead.
//
// Operators are overloaded for several kinds of values. If no overload fits, nanobind's error lists all of them. To
// avoid that, the last overload takes any objects, and says in one line what is wrong: see explained(). Valid calls
// cost no more.
#pragma once
#include <array>
#include <span>
#include <string_view>
#include <type_traits>

#include "python.h"

namespace windrow::python {

/// An argument of a last overload: an object that converts to T, or another object, which the overload refuses.
template <class T, bool only_arrays>
struct AskedObject {
  nb::handle given;
  nb::detail::make_caster<T>* fitting;  // null for another object
};
template <class T>
using Asked = AskedObject<T, false>;
/// Takes other objects only if they are arrays. For other operands, Python tries the operators of their classes.
template <class T>
using AskedBesideArrays = AskedObject<T, true>;

/// "IntTensor", without the name of its module.
std::string short_type_name(nb::handle object);

/// "f(Tensor, int); expected ...". Empty handles stand for numbers and other arguments that fit.
nb::builtin_exception refused_call(std::string_view name, std::span<const nb::handle> given, std::string_view expected);

/// Whether an object is an array of some library, and not a scalar of that library.
bool looks_like_array(nb::handle object);

/// Defines what would otherwise be silently wrong: == by identity, the truth of any object, a NumPy array of one
/// object. Each raises TypeError: "== or != of `values`; expected `compared`". Objects keep their hash by identity, so
/// sets and keys of dicts remain possible.
template <class Class>
void refuse_comparison(Class& of, const std::string& values, const std::string& compared) {
  of.def(
      "__eq__",
      [=](nb::handle, nb::handle) -> bool {
        throw nb::type_error(("== or != of " + values + "; expected " + compared).c_str());
      },
      nb::arg().none(), nb::sig("def __eq__(self, other: object, /) -> bool"), "Raises TypeError.");
  of.def(
      "__hash__", [](nb::handle self) { return std::hash<const void*>()(self.ptr()) >> 4; },
      "By identity: keys of dicts and members of sets are objects, not their elements.");
}
template <class Class>
void refuse_truth(Class& of, const std::string& values, const std::string& read) {
  of.def(
      "__bool__",
      [=](nb::handle) -> bool { throw nb::type_error((values + " as a condition; expected " + read).c_str()); },
      nb::sig("def __bool__(self) -> bool"), "Raises TypeError.");
}
template <class Class>
void refuse_conversions(Class& of, const std::string& values, const std::string& compared, const std::string& read) {
  refuse_comparison(of, values, compared);
  refuse_truth(of, values, read);
  of.def(
      "__array__",
      [=](nb::handle, const nb::args&, const nb::kwargs&) -> bool {
        throw nb::type_error((values + " as an array of NumPy; expected " + read).c_str());
      },
      nb::sig("def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Never"),
      "Raises TypeError.");
}

/// The range [begin, end) of columns that a slice names. Raises TypeError for other objects.
std::pair<std::int64_t, std::int64_t> columns_of(nb::handle part, std::int64_t width);

/// The operands of f(x, y) or f([x, y]).
inline nb::object listed(const nb::args& given) {
  const bool list = given.size() == 1 && (PyList_Check(given[0].ptr()) || PyTuple_Check(given[0].ptr()));
  return list ? nb::object(given[0]) : nb::object(given);
}

namespace refusals {

template <class T, bool arrays>
nb::handle given(const AskedObject<T, arrays>& argument) {
  return argument.given;
}
template <class T>
nb::handle given(const T&) {
  return {};
}
template <class T, bool arrays>
bool fits(const AskedObject<T, arrays>& argument) {
  return argument.fitting != nullptr;
}
template <class T>
bool fits(const T&) {
  return true;
}
template <class T, bool arrays>
decltype(auto) value(const AskedObject<T, arrays>& argument) {
  return argument.fitting->operator nb::detail::cast_t<const T&>();
}
template <class T>
const T& value(const T& argument) {
  return argument;
}

/// Numbers remain as they are, since all kinds of values have the same numbers. Other arguments become As<...>.
template <class Argument, template <class> class As>
using Asking =
    std::conditional_t<std::is_arithmetic_v<std::decay_t<Argument>>, Argument, const As<std::decay_t<Argument>>&>;

template <template <class> class As, class Function, class Result, class... Arguments>
auto explained(const char* name, const char* expected, Function function, Result (Function::*)(Arguments...) const) {
  return [=](Asking<Arguments, As>... arguments) -> Result {
    if (!(fits(arguments) && ...)) throw refused_call(name, std::array{given(arguments)...}, expected);
    return function(value(arguments)...);
  };
}

}  // namespace refusals

/// Makes the last overload of `name` from `function`, which must not be overloaded: raises TypeError for arguments of
/// other types. As is Asked or AskedBesideArrays. `name` and `expected` are literals.
template <template <class> class As = Asked, class Function>
auto explained(const char* name, const char* expected, Function function) {
  return refusals::explained<As>(name, expected, function, &Function::operator());
}

}  // namespace windrow::python

namespace nanobind::detail {

/// Takes other objects only in nanobind's second pass over the overloads, in which arguments are converted.
template <class T, bool only_arrays>
struct type_caster<windrow::python::AskedObject<T, only_arrays>> {
  using Object = windrow::python::AskedObject<T, only_arrays>;
  static constexpr auto Name = make_caster<T>::Name;
  template <class>
  using Cast = Object;
  template <class>
  static constexpr bool can_cast() {
    return true;
  }
  bool from_python(handle from, std::uint32_t flags, cleanup_list* cleanup) noexcept {
    given = from;
    fits = !from.is_none() && caster.from_python(from, flags, cleanup);
    if (fits) return true;
    if ((flags & static_cast<std::uint32_t>(cast_flags::convert)) == 0) return false;
    return !only_arrays || windrow::python::looks_like_array(from);
  }
  explicit operator Object() { return {given, fits ? &caster : nullptr}; }

  make_caster<T> caster;
  handle given;
  bool fits = false;
};

}  // namespace nanobind::detail
