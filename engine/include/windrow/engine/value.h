// Values: objects that ops receive according to their declared accesses, so that a forgotten access does not compile.
//
//   windrow::Value<Tile> x(engine, "x", tile), b(engine, "b");
//   engine.push([](const Tile& from, Tile& to) { blur(from, to); }, read(x), overwrite(b), {.name = "blur"});
//   windrow::Value<double> sum = engine.run([](const Tile& t) { return total(t); }, read(b));
//   std::printf("%f\n", sum.get());  // waits
//
//   windrow::Values<Tile> tiles(engine, "tiles", 8);
//   engine.push([](Tile& tile) { load(tile); }, overwrite(tiles[5]));  // errors name it 'tiles[5]'
//   engine.push([](std::span<const Tile> all, double& sum) { ... }, read(all(tiles)), mutate(total));
//
// A value owns an object of any movable type and its variable. A typed push also takes accesses to variables, for which
// the function receives nothing: push(f, read(x), mutate(of_a_file)). Use the untyped push of engine.h for accesses
// that are known only at run time; there x.var() stands for x.
//
// Contract
//   Access   An op receives const T& for a read, T& for mutate, overwrite and commute. It must not keep the reference.
//   Lifetime A value may end before the ops that use it and before or after its engine: the object lives until the last
//            of these ops has run. After the engine's end, calls throw MisuseError.
//   Errors   Messages and traces name the values that an op changes: op 'blur' on 'tiles[5]'.
//   Graphs   A value that is made and ends inside a capture belongs to the graph. Its object is made once, not once per
//            launch, so ops of the graph should overwrite it before they read it.
//   Threads  Any thread may call any member, but not while another thread moves or ends the value. What get() and
//            edit() return may be used until the next push that conflicts.
//   Poison   set() and an op that overwrites heal a value. Engine::heal computes nothing: it declares the object good
//            as the failed op left it. The result of a failed run() is default-constructed.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "windrow/engine/coroutine.h"
#include "windrow/engine/engine.h"
#include "windrow/engine/internal/engine_use.h"
#include "windrow/engine/internal/push_refusal.h"

namespace windrow {

/// Waits for a value in a coroutine. co_await returns const T&, and of a value that ends the object itself.
template <class T, class Result = const T&>
class ReadyValue {
 public:
  ReadyValue(Engine& engine, Access access, T& object, std::source_location from)
      : ready_(engine, {access}, from), object_(object) {}
  bool await_ready() const noexcept { return ready_.await_ready(); }
  void await_suspend(std::coroutine_handle<> coroutine) { ready_.await_suspend(coroutine); }
  Result await_resume() const {
    ready_.await_resume();
    return static_cast<std::conditional_t<std::is_reference_v<Result>, Result, T&&>>(object_);
  }

 private:
  Ready ready_;
  T& object_;
};

/// One value, whoever owns it: a Value, or an element of Values. Neither copies nor outlives its owner.
template <class T>
class ValueRef {
  static_assert(std::is_object_v<T> && !std::is_const_v<T> && !std::is_array_v<T>,
                "windrow::Value<T>: T must be an object type without const, and no array; expected std::array");

 public:
  using Site = std::source_location;

  ValueRef(const ValueRef&) = delete;
  ValueRef& operator=(const ValueRef&) = delete;

  /// For untyped accesses. Empty if the value was moved from.
  Var var() const { return var_; }

  /// Waits for earlier ops that change the value, and returns it. Throws as Engine::wait does.
  const T& get(Site from = Site::current()) const& {
    engine_->wait({windrow::read(var_)}, from);
    return *object_;
  }
  /// Waits for all earlier ops that use the value, and returns it for changes.
  T& edit(Site from = Site::current()) & {
    engine_->wait({windrow::mutate(var_)}, from);
    return *object_;
  }
  /// Pushes an op that replaces the value, and so heals it. In a capture, throws MisuseError unless T is trivially
  /// copyable, because each launch needs a copy.
  void set(T value, Site from = Site::current()) {
    if constexpr (!std::is_trivially_copyable_v<T>) {
      if (PushRefusal::refuses_or_captures(*engine_)) {
        throw MisuseError(
            "set() in a capture or where pushes are refused; expected a push of an op that assigns the "
            "value, as each launch does so again");
      }
    }
    engine_->push([object = object_, value = std::move(value)]() mutable { *object = std::move(value); },
                  {windrow::overwrite(var_)}, {.name = "set", .pushed_at = from});
  }
  /// For coroutines: co_await value, or co_await value.ready(), awaits what get() waits for. As with get(), a later op
  /// may change the object; for a copy: co_await engine.run([](const T& t) { return t; }, read(value)).
  ReadyValue<T> ready(Site from = Site::current()) const& { return {*engine_, windrow::read(var_), *object_, from}; }
  ReadyValue<T> operator co_await() const& { return ready(); }

  /// For read(), mutate(), overwrite() and commute().
  template <AccessKind kind>
  ObjectAccess<T, kind> access() {
    return {Access{var_, kind}, {object_}};
  }
  template <AccessKind kind>
  ObjectAccess<T, kind> access() const {
    static_assert(kind == AccessKind::read, "a const Value may only be read; expected read(x)");
    return {Access{var_, kind}, {object_}};
  }

 protected:
  ValueRef(const EngineRef& engine, Var var, T* object) : engine_(engine), var_(var), object_(object) {}
  ValueRef(ValueRef&& other) noexcept
      : engine_(other.engine_), var_(std::exchange(other.var_, Var())), object_(other.object_) {}
  ~ValueRef() = default;

  EngineRef engine_;
  Var var_;
  T* object_;
};

namespace typed {

/// Retires the variables of objects, which are destroyed when all ops that were pushed with these variables have run.
/// The objects are leaked if ops may still use them: there is no memory for a retire, or the engine could not end.
template <class Objects>
void end(const EngineRef& ref, Var var, const std::shared_ptr<Objects>& objects, const char* owner) noexcept {
  if (!var || ref.drained()) return;
  OpFunction last([objects] {});
  Engine* const engine = ref.get();
  try {
    if (engine != nullptr) EngineUse::retire(*engine, var, owner, std::move(last));
  } catch (...) {
  }
  last.abandon();  // empty if the retire was pushed
}

}  // namespace typed

/// Contiguous objects with a variable each. T is const if ops may only read them.
template <class T>
struct AllOf {
  std::span<const Var> vars;
  std::span<T> objects;

  template <AccessKind kind>
  RangeAccess<std::remove_const_t<T>, kind> access() const {
    static_assert(kind == AccessKind::read || !std::is_const_v<T>,
                  "all(values) of const Values may only be read; expected read(all(values))");
    if constexpr (kind == AccessKind::read || !std::is_const_v<T>) return {vars, objects};
  }
};

/// An owner of one object and its variable.
template <class T>
class Value : public ValueRef<T> {
 public:
  /// The object is T(args...). Throws as Engine::new_var does.
  template <class... Args>
  explicit Value(Engine& engine, VarName name = OpName("value"), Args&&... args)
      : Value(Owned(), engine, name, std::make_shared<T>(std::forward<Args>(args)...)) {}
  /// Leaves an empty value, which may only be assigned to and destroyed.
  Value(Value&& other) noexcept = default;
  Value& operator=(Value&& other) noexcept {
    Value moved(std::move(other));  // before the present object ends, which may own `other`
    std::destroy_at(this);
    std::construct_at(this, std::move(moved));
    return *this;
  }
  ~Value() { typed::end(this->engine_, this->var_, owned_, "the value"); }

  using ValueRef<T>::get;
  /// For a temporary value, as in engine.run(...).get(): waits for all ops that use it, and moves the object out.
  T get(std::source_location from = std::source_location::current()) && { return std::move(this->edit(from)); }
  /// For a temporary value, as in co_await engine.run(...): the object itself.
  using ValueRef<T>::operator co_await;
  ReadyValue<T, T> operator co_await() && {
    return {*this->engine_, windrow::mutate(this->var_), *this->object_, std::source_location::current()};
  }

 private:
  struct Owned {};  // so that no argument of T's constructors fits
  Value(Owned, Engine& engine, VarName name, std::shared_ptr<T> owned)
      : ValueRef<T>(engine, engine.new_var({name, VarName::whole_value}), owned.get()), owned_(std::move(owned)) {}

  std::shared_ptr<T> owned_;
};

/// An owner of `count` objects in contiguous memory, with a variable each: ops that use different ones run
/// concurrently. Objects smaller than a cache line share it; give T an alignment of 64 bytes if ops write
/// neighbours at the same time.
template <class T>
class Values {
  static_assert(!std::is_same_v<T, bool> && std::is_move_constructible_v<T>,
                "windrow::Values<T>: T must be movable, and not bool, of which std::vector makes no objects; expected "
                "char, or a struct");

 public:
  /// Each object is T(args...). Throws as Engine::new_var does.
  template <class... Args>
  explicit Values(Engine& engine, VarName name, std::size_t count, const Args&... args)
      : engine_(engine), name_(name), objects_(std::make_shared<std::vector<T>>()) {
    objects_->reserve(count);
    for (std::size_t i = 0; i < count; ++i) objects_->emplace_back(args...);
    vars_.reserve(count);
    elements_.reserve(count);
    try {
      for (std::size_t i = 0; i < count; ++i) {
        vars_.push_back(engine.new_var({name, static_cast<std::int32_t>(i)}));
        elements_.push_back(Element(engine_, vars_[i], objects_->data() + i));
      }
    } catch (...) {
      end();
      throw;
    }
  }
  Values(Values&&) noexcept = default;
  Values& operator=(Values&& other) noexcept {
    Values moved(std::move(other));  // before the present object ends, which may own `other`
    std::destroy_at(this);
    std::construct_at(this, std::move(moved));
    return *this;
  }
  ~Values() { end(); }

  std::size_t size() const { return vars_.size(); }
  /// Throws MisuseError if `i` is out of range.
  ValueRef<T>& operator[](std::size_t i) { return elements_[checked(i)]; }
  const ValueRef<T>& operator[](std::size_t i) const { return elements_[checked(i)]; }

  /// See all(), below.
  AllOf<T> range(std::size_t first, std::size_t count) {
    require(first, count);
    return {std::span(vars_).subspan(first, count), {data() + first, count}};
  }
  AllOf<const T> range(std::size_t first, std::size_t count) const {
    require(first, count);
    return {std::span(vars_).subspan(first, count), {data() + first, count}};
  }

 private:
  struct Element : ValueRef<T> {
    Element(const EngineRef& engine, Var var, T* object) : ValueRef<T>(engine, var, object) {}
    Element(Element&&) noexcept = default;
  };

  T* data() const { return objects_ == nullptr ? nullptr : objects_->data(); }
  void require(std::size_t first, std::size_t count) const {
    if (first <= size() && count <= size() - first) return;
    refuse(": all(values, " + std::to_string(first) + ", " + std::to_string(count) + ")");
  }
  std::size_t checked(std::size_t i) const {
    if (i >= size()) refuse(i);
    return i;
  }
  [[noreturn, gnu::cold, gnu::noinline]] void refuse(std::size_t i) const { refuse("[" + std::to_string(i) + "]"); }
  [[noreturn, gnu::cold, gnu::noinline]] void refuse(const std::string& what) const {
    throw MisuseError("values '" + std::string(name_.text()) + "'" + what + " of " + std::to_string(size()) +
                      " values; expected elements that exist");
  }
  void end() noexcept {
    for (const Var var : vars_) typed::end(engine_, var, objects_, "the values");
  }

  EngineRef engine_;
  OpName name_;
  std::shared_ptr<std::vector<T>> objects_;
  std::vector<Var> vars_;
  std::vector<Element> elements_;
};

/// All elements, or `count` of them from `first` on, as an argument of accesses: read(all(values)) gives an op
/// std::span<const T>, the other accesses give std::span<T>. Throws MisuseError if there are fewer elements.
template <class T>
auto all(Values<T>& values, std::size_t first, std::size_t count) {
  return values.range(first, count);
}
template <class T>
auto all(const Values<T>& values, std::size_t first, std::size_t count) {
  return values.range(first, count);
}
template <class T>
auto all(Values<T>& values) {
  return values.range(0, values.size());
}
template <class T>
auto all(const Values<T>& values) {
  return values.range(0, values.size());
}

template <class Function, class... A>
auto TypedPushes::run_typed(Function&& function, const PushOptions& options, const A&... accesses) {
  if (typed::is_empty(function)) static_cast<Engine&>(*this).push(OpFunction(), AccessList(), options);  // throws
  auto call = typed::call_of(std::forward<Function>(function), accesses...);
  using Result = std::remove_cvref_t<decltype(call(std::declval<OpContext&>()))>;
  constexpr bool is_void = std::is_void_v<Result>;
  constexpr bool is_stored = std::is_default_constructible_v<Result> && std::is_move_assignable_v<Result>;
  static_assert(!is_void, "the function of run() returns nothing; expected a result, or push()");
  static_assert(is_void || is_stored,
                "the result of run() is stored in a Value: expected a type with a default constructor and an "
                "assignment, such as std::optional of it");
  if constexpr (is_stored) {
    Engine& engine = static_cast<Engine&>(*this);
    Value<Result> result(engine, options.name.text().empty() ? OpName("result") : options.name);
    typed::with_list(
        [&](AccessList list) {
          engine.push([call = std::move(call), into = windrow::overwrite(result).kept()](
                          OpContext& context) mutable { into(context) = call(context); },
                      list, options);
        },
        windrow::overwrite(result), accesses...);
    return result;
  }
}

}  // namespace windrow
