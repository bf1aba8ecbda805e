// Variables, and the ways in which an op may access one.
//
// A variable is a tag that stands for whatever the program chooses: a buffer, a file, a random generator. This header
// knows neither that object nor how the engine orders ops.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace windrow {

/// A value that is as cheap to copy as a pointer. Construction from a string literal costs nothing. Any other string is
/// interned in a table of the process that is never freed, so names should denote kinds of ops and not instances.
class OpName {
 public:
  constexpr OpName() = default;
  template <std::size_t N>
  consteval OpName(const char (&literal)[N]) : text_(literal, N - 1) {}
  template <std::size_t N>
  OpName(char (&text)[N]) : text_(keep(text)) {}
  /// A null pointer gives no name.
  template <class Pointer>
  requires(std::is_same_v<std::remove_cvref_t<Pointer>, const char*> ||
           std::is_same_v<std::remove_cvref_t<Pointer>, char*>) OpName(Pointer&& text)
      : text_(text == nullptr ? std::string_view() : keep(text)) {}
  OpName(const std::string& text) : text_(keep(text)) {}
  OpName(std::string_view text) : text_(keep(text)) {}

  constexpr std::string_view text() const { return text_; }
  /// The same, null-terminated.
  constexpr const char* c_str() const { return text_.empty() ? "" : text_.data(); }

 protected:
  /// Interns the text.
  static std::string_view keep(std::string_view text);

 private:
  std::string_view text_;  // lives as long as the process
};

/// The name of a variable, buffer or tensor: an OpName that can pass through forwarding functions, such as
/// std::make_unique and emplace_back. They forward a literal as an array, which the compiler cannot distinguish from a
/// local array. So literals are interned, too: OpName("x") instead of "x" saves the look-up.
class VarName : public OpName {
 public:
  using OpName::OpName;
  constexpr VarName() = default;
  constexpr VarName(OpName name) : OpName(name) {}
  template <std::size_t N>
  VarName(const char (&text)[N]) : OpName(keep(text)) {}
  /// The name of a value (value.h): errors and traces of ops say that they changed 'name', or 'name[index]'. `index` is
  /// 0 or more, or whole_value.
  constexpr VarName(OpName name, std::int32_t index) : OpName(name), index_(index) {}

  static constexpr std::int32_t whole_value = -1, no_value = -2;
  constexpr std::int32_t index() const { return index_; }

 private:
  std::int32_t index_ = no_value;
};

class Front;
struct VarState;

/// A handle: copies name the same variable, and a default-constructed one names none.
///
/// Created by Engine::new_var, ended by Engine::retire. Use after the retire is detected and throws MisuseError. A Var
/// must not be used after its engine is gone.
class Var {
 public:
  Var() = default;
  explicit operator bool() const { return state_ != nullptr; }
  friend bool operator==(const Var&, const Var&) = default;

 private:
  friend class Front;
  friend struct std::hash<Var>;
  Var(VarState* state, std::uint32_t generation) : state_(state), generation_(generation) {}

  VarState* state_ = nullptr;
  std::uint32_t generation_ = 0;
};

}  // namespace windrow

template <>
struct std::hash<windrow::Var> {
  std::size_t operator()(const windrow::Var& var) const noexcept {
    return std::hash<const void*>()(var.state_) + var.generation_;
  }
};

namespace windrow {

/// How an op accesses a variable.
enum class AccessKind : std::uint8_t {
  read,  ///< shares the variable with other readers
  /// Exclusive, and does not use the old value: clears poison when it has run. If the op fails, the variable is
  /// poisoned by that failure until the next overwrite or heal, and its value is as the op left it.
  overwrite,
  mutate,  ///< exclusive, and may use the old value
  /// Exclusive like mutate, but commuting ops with no other ops between them may run in any order. An op that commutes
  /// on several variables can starve while others keep arriving on one of them.
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

/// A view of accesses, for function parameters only: it must not outlive the call.
///
/// A variable that is listed twice counts once; two different kinds of access to it count as mutate.
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
