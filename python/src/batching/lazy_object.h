// Lazy expressions as Python objects, and their operators.
//
// The reference counts of a lazy graph's handles are not atomic. Python may drop a handle on any thread, also while
// another thread computes without the GIL. Then LazyUse keeps the handle until that computation has ended.
#pragma once
#include <unordered_map>

#include "batching/parameters.h"
#include "batching/weights.h"
#include "python.h"
#include "windrow/batching/lazy.h"
#include "windrow/batching/lazy_cell.h"

namespace windrow::python {

struct LazyGraphObject;

/// Lets one thread at a time use a graph and its handles. All members need the GIL.
class LazyUse {
 public:
  explicit LazyUse(SharedParameters parameters) : parameters_(std::move(parameters)) {}
  const SharedParameters& parameters() const { return parameters_; }

  LazyGraphObject* graph = nullptr;  ///< null once it has ended

  /// Throws MisuseError while another thread computes, and inside the body of a cell.
  void require_free() const {
    if (computing_) {
      throw MisuseError(
          "a lazy graph that another thread computes, or that runs the body of a cell; expected one thread at a time, "
          "and no lazy expressions in a body");
    }
  }
  /// Keeps a handle until the present computation has ended. Without one, leaves it to the caller to destroy.
  template <class Handle>
  void drop(Handle&& handle) {
    if (computing_) dropped_.emplace_back(std::make_shared<std::decay_t<Handle>>(std::move(handle)));
  }

  /// Held by a thread that computes without the GIL.
  class Turn {
   public:
    explicit Turn(LazyUse& use) : use_(use) {
      use.require_free();
      use.computing_ = true;
    }
    ~Turn() {
      use_.computing_ = false;
      use_.dropped_.clear();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    LazyUse& use_;
  };

 private:
  const SharedParameters parameters_;
  bool computing_ = false;
  std::vector<std::shared_ptr<void>> dropped_;
};

/// A handle, which is a LazyExpr or a LazyIndex, with the LazyUse of its graph.
template <class Handle>
class LazyHandle {
 public:
  /// `use` must not be null.
  LazyHandle(Handle handle, std::shared_ptr<LazyUse> use) : handle_(std::move(handle)), use_(std::move(use)) {}
  LazyHandle(LazyHandle&&) noexcept = default;
  LazyHandle& operator=(LazyHandle&&) = delete;
  ~LazyHandle() {
    if (use_ != nullptr) use_->drop(std::move(*handle_));
  }

  /// Throws MisuseError while another thread computes.
  const Handle& get() const {
    use_->require_free();
    return *handle_;
  }
  const std::shared_ptr<LazyUse>& use() const { return use_; }

 private:
  std::optional<Handle> handle_;
  std::shared_ptr<LazyUse> use_;
};
using LazyObject = LazyHandle<LazyExpr>;
using LazyIndexObject = LazyHandle<LazyIndex>;

class LazyArgument;
class LazyValue;

/// A cell in one graph, and the Python function of its body, which is empty once the graph has ended.
struct CellOfGraph {
  LazyCell cell;
  std::shared_ptr<std::optional<Kept>> body;
};

/// A graph, its parameters, and its LazyUse, which all its handles share.
struct LazyGraphObject {
  LazyGraphObject(const SharedParameters& of, const LazyOptions& options);
  ~LazyGraphObject();
  LazyGraphObject(const LazyGraphObject&) = delete;
  LazyGraphObject& operator=(const LazyGraphObject&) = delete;

  LazyObject value(LazyExpr expr) const { return {std::move(expr), use}; }
  /// Ends the references to Python functions.
  void drop_bodies();

  SharedParameters parameters;
  std::shared_ptr<LazyUse> use;
  std::unique_ptr<LazyGraph> graph;
  std::unordered_map<std::uint64_t, CellOfGraph> cells;  // that were called in it, by LazyCellObject::number
};

/// For the operators of expression_operators.h: as LazyExprTypes, but with the lines of the Python program.
struct LazyTypes {
  using Result = LazyObject;
  using Value = LazyValue;
  using Input = LazyArgument;
  using Indices = LazyIndexObject;
  using IndexRef = std::reference_wrapper<const LazyIndexObject>;
  static LazyObject apply(const Operator& op, const LazyArgument& x, std::initializer_list<LazyArgument> in,
                          std::initializer_list<IndexRef> indices = {}, const Attributes& attributes = {});
  static LazyObject elementwise(const Operator& op, const LazyArgument& x, const LazyArgument& y);
  static LazyObject dropout(const LazyArgument& x, const Dropout& how);
  static Index width(const LazyArgument& x);

 private:
  static std::shared_ptr<LazyUse> use_of(std::initializer_list<LazyArgument> in);
};

/// An operand of a call: an expression, None (an empty expression), a parameter, or a function of parameters. It points
/// into the Python object, which the call keeps alive.
class LazyArgument : ExpressionOperators<LazyTypes> {
 public:
  /// Returns whether the object is one of these.
  bool set(nb::handle from) {
    if (nb::isinstance<LazyObject>(from)) {
      value_ = nb::inst_ptr<LazyObject>(from);
    } else if (nb::isinstance<ParameterObject>(from)) {
      parameter_ = &nb::inst_ptr<ParameterObject>(from)->parameter;
    } else if (nb::isinstance<LazyWeight>(from)) {
      weight_ = nb::inst_ptr<LazyWeight>(from);
    } else {
      return from.is_none();
    }
    return true;
  }
  lazy::OperandRef at(std::source_location line) const {
    if (parameter_ != nullptr) return {*parameter_, line};
    if (weight_ != nullptr) return {*weight_, line};
    return {value_ != nullptr ? value_->get() : empty(), line};
  }
  /// Null unless it is an expression.
  const LazyObject* value() const { return value_; }

 private:
  static const LazyExpr& empty() {
    static const LazyExpr none;
    return none;
  }
  const LazyObject* value_ = nullptr;
  const Parameter* parameter_ = nullptr;
  const LazyWeight* weight_ = nullptr;
};

/// A LazyArgument that must be an expression.
class LazyValue : public LazyArgument {
 public:
  bool set(nb::handle from) { return LazyArgument::set(from) && value() != nullptr; }
};

/// The LazyUse of the first expression among the operands. If there is none, lets nanobind try the overloads for
/// functions of parameters.
inline std::shared_ptr<LazyUse> LazyTypes::use_of(std::initializer_list<LazyArgument> in) {
  for (const LazyArgument& operand : in) {
    if (operand.value() != nullptr) return operand.value()->use();
  }
  throw nb::next_overload();
}

inline LazyObject LazyTypes::apply(const Operator& op, const LazyArgument& x, std::initializer_list<LazyArgument> in,
                                   std::initializer_list<IndexRef> indices, const Attributes& attributes) {
  std::shared_ptr<LazyUse> use = use_of(in);
  const std::source_location line = calling_line();
  const LazyArgument* const first = in.begin();
  const auto with_indices = [&](std::initializer_list<LazyIndex> list) {
    if (in.size() == 1) return LazyExprTypes::apply(op, x.at(line), {first[0].at(line)}, list, attributes);
    return LazyExprTypes::apply(op, x.at(line), {first[0].at(line), first[1].at(line)}, list, attributes);
  };
  LazyExpr result = indices.size() == 0 ? with_indices({}) : with_indices({indices.begin()->get().get()});
  return {std::move(result), std::move(use)};
}

inline LazyObject LazyTypes::elementwise(const Operator& op, const LazyArgument& x, const LazyArgument& y) {
  std::shared_ptr<LazyUse> use = use_of({x, y});
  const std::source_location line = calling_line();
  return {LazyExprTypes::elementwise(op, x.at(line), y.at(line)), std::move(use)};
}

inline LazyObject LazyTypes::dropout(const LazyArgument& x, const Dropout& how) {
  std::shared_ptr<LazyUse> use = use_of({x});
  return {LazyExprTypes::dropout(x.at(calling_line()), how), std::move(use)};
}

inline Index LazyTypes::width(const LazyArgument& x) { return LazyExprTypes::width(x.at(calling_line())); }

}  // namespace windrow::python

template <>
struct nanobind::detail::type_caster<windrow::python::LazyArgument> {
  NB_TYPE_CASTER(windrow::python::LazyArgument, const_name("windrow.LazyExpr | windrow.LazyWeight | windrow.Parameter"))
  bool from_python(handle from, std::uint32_t, cleanup_list*) noexcept { return value.set(from); }
};
template <>
struct nanobind::detail::type_caster<windrow::python::LazyValue> {
  NB_TYPE_CASTER(windrow::python::LazyValue, const_name("windrow.LazyExpr"))
  bool from_python(handle from, std::uint32_t, cleanup_list*) noexcept { return value.set(from); }
};
