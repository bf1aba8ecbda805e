// A move-only callable that stores small functions inside, and large ones in memory that is used again.
//
// std::function requires copyable targets, and std::move_only_function is C++23. The engine must also rely on a lambda
// with a few captured handles costing no allocation.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace windrow {

/// Memory of objects that one thread makes and another one destroys for each op, such as callables that are too large
/// to be stored inside a Function. Threads keep freed memory and exchange it in batches; a general allocator would take
/// a lock for each object. The memory of objects of up to 1 KiB is reused for others, and never returned to the heap.
/// Threads: any, also at the end of the process.
struct CallableMemory {
  static constexpr std::size_t alignment = 64;
  /// Throws std::bad_alloc.
  static void* take(std::size_t bytes);
  /// `bytes` must be the number of bytes that was taken.
  static void give_back(void* memory, std::size_t bytes) noexcept;
};

/// The same, for containers and std::allocate_shared.
template <class T>
struct PassedOn {
  using value_type = T;
  PassedOn() = default;
  template <class U>
  PassedOn(PassedOn<U>) {}
  T* allocate(std::size_t count) { return static_cast<T*>(CallableMemory::take(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t count) noexcept { CallableMemory::give_back(memory, count * sizeof(T)); }
  friend bool operator==(PassedOn, PassedOn) { return true; }
};

template <class Signature>
class Function;

template <class T>
struct IsFunction : std::false_type {};
template <class S>
struct IsFunction<Function<S>> : std::true_type {};
template <class T>
struct IsStdFunction : std::false_type {};
template <class S>
struct IsStdFunction<std::function<S>> : std::true_type {};
/// Whether objects of the type can be compared with a null pointer, which is no function.
template <class T>
inline constexpr bool may_be_empty = std::is_pointer_v<T> || std::is_member_pointer_v<T> || IsStdFunction<T>::value;

/// Whether objects of a class are called by several functions or by templates, such as generic lambdas. A question
/// whether these take certain arguments may fail to compile, so overload resolution must not ask it.
template <class F>
struct IsGeneric {
  struct Other {
    void operator()();
  };
  template <class G>
  struct Both : G, Other {};
  template <class G>
  static constexpr bool check() {
    if constexpr (std::is_class_v<G> && !std::is_final_v<G> && !std::is_polymorphic_v<G>) {
      return !requires { &G::operator(); }
      &&!requires { &Both<G>::operator(); };
    } else {
      return false;
    }
  }
  static constexpr bool value = check<F>();
};

/// Owns one callable, or none. Callables of up to `inline_bytes` bytes whose move constructor does not throw are stored
/// inside, larger ones in CallableMemory. Accepts anything callable with `Args...`; also anything callable with no
/// arguments, so that a function need not declare parameters that it does not use. Empty if constructed from a null
/// pointer or an empty std::function. Construction throws std::bad_alloc if there is no memory for the callable. A
/// callable whose destructor may throw does not compile: on a thread of the engine, nobody could catch the exception.
template <class Result, class... Args>
class Function<Result(Args...)> {
 public:
  static constexpr std::size_t inline_bytes = 64;

  template <class F>
  static constexpr bool is_callable = std::is_invocable_r_v<Result, F&, Args...> || std::is_invocable_r_v<Result, F&>;

  Function() = default;
  Function(std::nullptr_t) {}

  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, Function> &&
           (IsGeneric<std::decay_t<F>>::value || is_callable<std::decay_t<F>>)) Function(F&& f) {
    using Target = std::decay_t<F>;
    static_assert(is_callable<Target>, "the function cannot be called with what the engine passes");
    require_silent_end<Target>();
    if constexpr (may_be_empty<std::remove_cvref_t<F>>) {
      if (f == nullptr) return;
    }
    if constexpr (fits<Target>) {
      // A move copies 16 bytes; a callable without captures initialises none of them, which compilers would warn about.
      if constexpr (std::is_empty_v<Target>) std::memset(storage_, 0, 16);
      ::new (static_cast<void*>(storage_)) Target(std::forward<F>(f));
      table_ = &table_of<Inline<Target>>;
    } else {
      ::new (static_cast<void*>(storage_)) Box<Target>(boxed<Target>(std::forward<F>(f)));
      table_ = &table_of<Boxed<Target>>;
    }
  }

  Function(Function&& other) noexcept { take(other); }
  Function& operator=(Function&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~Function() { reset(); }

  explicit operator bool() const { return table_ != nullptr; }
  Result operator()(Args... args) { return table_->call(storage_, std::forward<Args>(args)...); }

  /// The operations on a stored callable.
  struct Table {
    Result (*call)(void*, Args&&...);
    void (*move)(void* from, void* to) noexcept;  ///< leaves `from` without a callable; null if the bytes may be copied
    void (*destroy)(void*) noexcept;              ///< null if there is nothing to destroy
    std::size_t bytes;                            ///< a multiple of 16
    bool owns;                                    ///< whether destroy() ends something that the call may use
  };

  /// Null if empty.
  const Table* table() const { return table_; }
  /// Moves the callable to `place`, which must have table()->bytes bytes with the alignment of std::max_align_t. The
  /// caller then owns the callable and uses it through that table. Must not be empty.
  void move_to(void* place) noexcept { relocate(*std::exchange(table_, nullptr), storage_, place); }

  /// The callable at `place`, which is moved from there; the counterpart of move_to().
  static Function taken_from(const Table& table, void* place) noexcept {
    Function taken;
    taken.table_ = &table;
    relocate(table, static_cast<std::byte*>(place), taken.storage_);
    return taken;
  }

  /// The table of a callable of type T, which must fit inside a Function.
  template <class T>
  static const Table& table_for() {
    static_assert(fits<T>);
    require_silent_end<T>();
    return table_of<Inline<T>>;
  }

  /// Becomes empty without destroying the callable, which is leaked.
  void abandon() noexcept { table_ = nullptr; }

  template <class T>
  static constexpr bool fits = sizeof(T) <= inline_bytes &&
                               alignof(T) <= alignof(std::max_align_t) && std::is_nothrow_move_constructible_v<T>;

  template <class T>
  static constexpr void require_silent_end() {
    static_assert(std::is_nothrow_destructible_v<T>,
                  "the function, or something that it captures, has a destructor that may throw (noexcept(false)); "
                  "expected one that does not");
  }

  template <class T>
  struct Inline {
    using Stored = T;
    static T& target(void* storage) { return *std::launder(static_cast<T*>(storage)); }
  };
  template <class T>
  struct EndOfBoxed {
    void operator()(T* target) const noexcept {
      target->~T();
      CallableMemory::give_back(target, sizeof(T));
    }
  };
  template <class T>
  using Box = std::conditional_t<alignof(T) <= CallableMemory::alignment, std::unique_ptr<T, EndOfBoxed<T>>,
                                 std::unique_ptr<T>>;
  template <class T, class F>
  static Box<T> boxed(F&& f) {
    if constexpr (alignof(T) > CallableMemory::alignment) {
      return std::make_unique<T>(std::forward<F>(f));
    } else {
      struct Giver {
        void operator()(void* memory) const noexcept { CallableMemory::give_back(memory, sizeof(T)); }
      };
      std::unique_ptr<void, Giver> memory(CallableMemory::take(sizeof(T)));
      T* const target = ::new (memory.get()) T(std::forward<F>(f));
      memory.release();
      return Box<T>(target);
    }
  }
  template <class T>
  struct Boxed {
    using Stored = Box<T>;
    static T& target(void* storage) { return **std::launder(static_cast<Stored*>(storage)); }
  };

  template <class Holder>
  static Result call_target(void* storage, Args&&... args) {
    auto& target = Holder::target(storage);
    // The cast drops the callable's result if the signature returns void.
    if constexpr (std::is_invocable_r_v<Result, decltype(target), Args...>) {
      return static_cast<Result>(std::invoke(target, std::forward<Args>(args)...));
    } else {
      return static_cast<Result>(std::invoke(target));
    }
  }
  template <class Holder>
  static void move_target(void* from, void* to) noexcept {
    using Stored = typename Holder::Stored;
    auto* source = std::launder(static_cast<Stored*>(from));
    ::new (to) Stored(std::move(*source));
    source->~Stored();
  }
  template <class Holder>
  static void destroy_target(void* storage) noexcept {
    using Stored = typename Holder::Stored;
    std::launder(static_cast<Stored*>(storage))->~Stored();
  }
  template <class Holder>
  static constexpr bool is_bytes = std::is_trivially_copyable_v<typename Holder::Stored>;
  template <class Holder>
  static constexpr bool ends_silently = std::is_trivially_destructible_v<typename Holder::Stored>;
  template <class Holder>
  static constexpr Table table_of = {&call_target<Holder>, is_bytes<Holder> ? nullptr : &move_target<Holder>,
                                     ends_silently<Holder> ? nullptr : &destroy_target<Holder>,
                                     (sizeof(typename Holder::Stored) + 15) / 16 * 16, !ends_silently<Holder>};

  static void relocate(const Table& table, std::byte* from, void* to) noexcept {
    if (table.move != nullptr) {
      table.move(from, to);
    } else {
      // In steps of 16 bytes: callables are small, and a call of memcpy costs more.
      std::memcpy(to, from, 16);
      for (std::size_t at = 16; at < table.bytes; at += 16)
        std::memcpy(static_cast<std::byte*>(to) + at, from + at, 16);
    }
  }
  void take(Function& other) noexcept {
    table_ = std::exchange(other.table_, nullptr);
    if (table_ != nullptr) relocate(*table_, other.storage_, storage_);
  }
  void reset() noexcept {
    if (table_ == nullptr) return;
    const Table& table = *std::exchange(table_, nullptr);
    if (table.destroy != nullptr) table.destroy(storage_);
  }

  const Table* table_ = nullptr;
  alignas(std::max_align_t) std::byte storage_[inline_bytes];
};

}  // namespace windrow
