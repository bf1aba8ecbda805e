// Tapes and recorded programs of tensors.
#include "ops/tape.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "ops/arrays.h"
#include "windrow/ops/static.h"

namespace windrow::python {
namespace {

using nb::literals::operator""_a;
using Gradients = std::vector<std::optional<Tensor>>;

/// The tapes of the open with blocks of this thread. Owns them, too, since a program may drop a tape within its block.
thread_local std::vector<std::shared_ptr<Tape>> active;

/// The tape of the with block around that of `inner`; if that of `inner` is not open, the tape of the innermost block.
/// Null if there is none.
Tape* tape_around(const Tape* inner) {
  auto found = std::ranges::find(active, inner, &std::shared_ptr<Tape>::get);
  return found == active.begin() ? nullptr : std::prev(found)->get();
}

class TapeObject {
 public:
  explicit TapeObject(const Device* device) {
    // Outer tapes note the operators of this with block, too, but not those of the backward pass.
    auto apply = [device = InUse(device).device(), noting = noting_](const Operator& op, const Operands& operands,
                                                                     const Tensor* out, std::source_location from) {
      if (Tape* const outer = *noting == nullptr ? nullptr : tape_around(*noting))
        return outer->apply(op, operands, from);
      if (out == nullptr) return windrow::apply(device, op, operands, from);
      windrow::apply(device, op, operands, *out, from);
      return *out;
    };
    tape_ = std::make_shared<Tape>(InUse(device).device(), std::move(apply));
    *noting_ = tape_.get();
  }

  Tape& tape() { return *tape_; }
  void watch(const Tensor& tensor) {
    tape_->watch(tensor);
    watched_.push_back(tensor);
  }
  /// Calls `pass`, a backward pass from `results`. An outer tape does not note the ops of `pass`, so its own backward
  /// pass must not go through these gradients: it throws MisuseError.
  void backward(const std::vector<Tensor>& results, const std::function<void()>& pass) const {
    *noting_ = nullptr;
    pass();
    Tape* const outer = tape_around(tape_.get());
    if (outer == nullptr) return;
    std::vector<Tensor> gradients;
    for (const Tensor& tensor : watched_) {
      const std::optional<Tensor> gradient = tape_->gradient(tensor);
      const auto same = [&](const Tensor& other) { return other.buffer() == gradient->buffer(); };
      if (gradient && std::ranges::none_of(gradients, same)) gradients.push_back(*gradient);
    }
    outer->note(results, gradients, [](const auto&, const auto&, auto) -> Tape::Gradients {
      throw MisuseError("Tape: a result depends on gradients of another tape; gradients are not differentiated again");
    });
  }
  void enter() { active.push_back(tape_); }
  void exit() {
    const auto found = std::find(active.rbegin(), active.rend(), tape_);
    if (found == active.rend()) throw MisuseError("the end of a tape's with block on a thread that did not begin it");
    active.erase(std::next(found).base());
  }

 private:
  std::shared_ptr<const Tape*> noting_ = std::make_shared<const Tape*>();  // the tape, until its backward pass
  std::shared_ptr<Tape> tape_;
  std::vector<Tensor> watched_;
};

void bind_tape(nb::module_& m) {
  nb::class_<TapeObject>(
      m, "Tape",
      "Records operators and computes the gradients of watched tensors: `with windrow.Tape() as tape:`. The tape "
      "records the operators of this thread in the with block; backward() computes the gradients, once. With blocks "
      "may be nested: a tape also records the operators of the blocks inside its own. Gradients cannot be "
      "differentiated again.")
      .def(nb::init<const Device*>(), "device"_a = nb::none())
      .def(
          "__enter__",
          [](nb::object self) {
            nb::cast<TapeObject&>(self).enter();
            return self;
          },
          nb::sig("def __enter__(self) -> Self"))
      .def(
          "__exit__", [](TapeObject& tape, const nb::args&) { tape.exit(); }, nb::sig(signature_of_exit))
      .def(
          "watch",
          [](TapeObject& tape, const nb::args& tensors) {
            for (const nb::handle each : tensors) {
              if (!nb::isinstance<Tensor>(each)) throw nb::type_error("watch() expects tensors of floats");
            }
            for (const nb::handle tensor : tensors) tape.watch(nb::cast<const Tensor&>(tensor));
          },
          nb::sig("def watch(self, *tensors: Tensor) -> None"),
          "Asks for the gradients of tensors. They must not be views of a part, and not yet used in the with block.")
      .def(
          "backward",
          [](TapeObject& tape, const Tensor& loss) {
            const std::source_location from = calling_line();
            tape.backward({loss}, [&] { tape.tape().backward(loss, from); });
          },
          "loss"_a,
          "Pushes the ops that compute the gradients of the sum of the loss's elements. Results of argmax, arg_top_k, "
          "argmax_matmul and sample are constants. Raises MisuseError if the loss depends on no watched tensor or on "
          "another operator without gradient, and in a second call.")
      .def(
          "backward_from",
          [](TapeObject& tape, const std::vector<Tensor>& results, const Gradients& gradients) {
            const std::source_location from = calling_line();
            tape.backward(results, [&] { tape.tape().backward_from(results, gradients, from); });
          },
          "results"_a, "gradients"_a,
          "As backward(), for a part of a larger program: starts from given gradients of `results`, with None for a "
          "result without one.")
      .def(
          "gradient", [](TapeObject& tape, const Tensor& of) { return tape.tape().gradient(of); }, "tensor"_a,
          "The gradient of a watched tensor, of its shape; None if the loss does not depend on it. Only read it.");
}

StaticOptions::Order order_of(const std::string& name) {
  if (name == "parallel") return StaticOptions::Order::parallel;
  if (name == "serial") return StaticOptions::Order::serial;
  if (name == "breadth_first") return StaticOptions::Order::breadth_first;
  throw MisuseError("order '" + name + "'; expected 'parallel', 'serial' or 'breadth_first'");
}

/// A Python function of tensors as the body of a Static.
class StaticObject {
 public:
  StaticObject(const Device* device, nb::object function, const StaticOptions& options)
      : function_(std::move(function)),
        program_(
            InUse(device).device(), [this](const StaticInputs& inputs) { return record(inputs); }, options) {}

  nb::object operator()(const nb::tuple& arguments, std::uint64_t key) {
    StaticInputs inputs{.key = key};
    arguments_ = "";
    for (const nb::handle argument : arguments) {
      if (const Tensor* floats = nullptr; nb::try_cast(argument, floats) && floats != nullptr) {
        inputs.in.push_back(*floats);
        arguments_ += 'f';
      } else if (const IntTensor* integers = nullptr; nb::try_cast(argument, integers) && integers != nullptr) {
        inputs.indices.push_back(*integers);
        arguments_ += 'i';
      } else {
        throw nb::type_error(("a static function of a " + std::string(nb::type_name(argument.type()).c_str()) +
                              "; expected tensors. Numbers are constants of a recording: put changing ones in tensors, "
                              "or pass key=")
                                 .c_str());
      }
    }
    inputs.key ^= std::hash<std::string>()(arguments_);
    const std::vector<Tensor>& results = program_(inputs, calling_line());
    switch (returns_) {
      case Returns::nothing:
        return nb::none();
      case Returns::one:
        return nb::cast(results.front());
      default:
        break;
    }
    nb::list all;
    for (const Tensor& result : results) all.append(result);
    return nb::tuple(all);
  }

  StaticStats stats() const { return program_.stats(); }
  /// For the garbage collector.
  const Kept& function() const { return function_; }
  void forget() { function_ = Kept(nb::none()); }

 private:
  enum class Returns { unknown, nothing, one, several };

  std::vector<Tensor> record(const StaticInputs& inputs) {
    auto floats = inputs.in.begin();
    auto integers = inputs.indices.begin();
    nb::list arguments;
    for (const char kind : arguments_) {
      if (kind == 'f') {
        arguments.append(*floats++);
      } else {
        arguments.append(*integers++);
      }
    }
    const nb::object result = function_.get()(*nb::tuple(arguments));
    std::vector<Tensor> results;
    Returns returns = Returns::one;
    if (result.is_none()) {
      returns = Returns::nothing;
    } else if (const Tensor* one = nullptr; nb::try_cast(result, one) && one != nullptr) {
      results.push_back(*one);
    } else if (nb::try_cast(result, results)) {
      returns = Returns::several;
    } else {
      throw nb::type_error("a static function returns tensors of floats, a tuple of them, or None; not something else");
    }
    if (returns_ != Returns::unknown && returns != returns_) {
      throw MisuseError("a static function that returns a tensor in one recording and a tuple or None in another");
    }
    returns_ = returns;
    return results;
  }

  Kept function_;
  std::string arguments_;  // of the present call: f for each Tensor, i for each IntTensor
  Returns returns_ = Returns::unknown;
  Static program_;
};

int traverse_static(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<StaticObject>(self)->function().ptr());
  return 0;
}
int clear_static(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<StaticObject>(self)->forget();
  return 0;
}
PyType_Slot static_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_static)},
                              {Py_tp_clear, reinterpret_cast<void*>(clear_static)},
                              {0, nullptr}};

void bind_static(nb::module_& m) {
  nb::class_<StaticStats>(m, "StaticStats", "Counters of a static function.")
      .def_ro("recorded", &StaticStats::recorded, "Calls that ran the function.")
      .def_ro("replayed", &StaticStats::replayed, "Calls that replayed a recording.")
      .def_ro("dropped", &StaticStats::dropped, "Recordings that were dropped for newer ones.")
      .def_ro("kept", &StaticStats::kept, "Recordings that are kept now.")
      .def_ro("ops", &StaticStats::ops, "Operators of the recording that was used last.")
      .def_ro("planned_bytes", &StaticStats::planned_bytes, "Bytes of memory that its tensors share.");
  nb::class_<StaticObject>(m, "_Static", nb::type_slots(static_slots))
      .def(
          "__init__",
          [](StaticObject* self, const Device* device, nb::object function, const std::string& order,
             std::size_t most_recordings, const std::string& name) {
            new (self)
                StaticObject(device, std::move(function),
                             {.order = order_of(order), .most_recordings = most_recordings, .name = OpName(name)});
          },
          "device"_a.none(), "function"_a, "order"_a, "most_recordings"_a, "name"_a,
          nb::sig(
              "def __init__(self, device: Device | None, function: Callable[..., Tensor | Sequence[Tensor] | None], "
              "order: str, most_recordings: int, name: str) -> None"))
      .def("__call__", &StaticObject::operator(), "arguments"_a, "key"_a,
           nb::sig("def __call__(self, arguments: tuple[Tensor | IntTensor, ...], key: int) "
                   "-> Tensor | tuple[Tensor, ...] | None"))
      .def("stats", &StaticObject::stats);
}

}  // namespace

Tape* active_tape() { return active.empty() ? nullptr : active.back().get(); }

void bind_tapes(nb::module_& m) {
  bind_tape(m);
  bind_static(m);
}

}  // namespace windrow::python
