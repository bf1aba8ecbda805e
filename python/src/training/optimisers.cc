// Optimisers, learning rates and averages.
#include "training/optimisers.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "ops/arrays.h"

namespace windrow::python {
namespace {

/// Calls `call` in this thread's turn and with the engine in use.
template <class Object, class Call>
auto in_turn_of_set(Object& of, const Call& call) {
  const InUse use(&of.set->parameters.device());
  const Turn turn(*of.set);
  return call();
}

/// The same for a call that waits: without the GIL.
template <class Object, class Call>
auto waiting_in_turn_of_set(Object& of, const Call& call) {
  const InUse use(&of.set->parameters.device());
  const Turn turn(*of.set);
  const WithoutGil without_gil;
  return call();
}

/// The functions of learning rates. The garbage collector cannot see them, so a function that refers to its optimiser
/// lives until the end of the program. Guarded by the GIL.
using RateFunction = std::optional<Kept>;
std::vector<std::weak_ptr<RateFunction>>& rate_functions() {
  static auto* const all = new std::vector<std::weak_ptr<RateFunction>>();
  return *all;
}
/// Called at the end of the program, after the engines have ended.
void end_rate_functions() {
  for (const std::weak_ptr<RateFunction>& one : std::exchange(rate_functions(), {})) {
    if (const std::shared_ptr<RateFunction> function = one.lock()) function->reset();
  }
}

/// A rate that a Python function computes, on any thread.
LearningRate rate_of(nb::object given) {
  if (PyCallable_Check(given.ptr()) == 0) {
    throw nb::type_error("a learning rate is computed by an object that is no function; expected f(step)");
  }
  const auto function = std::make_shared<RateFunction>(Kept(std::move(given)));
  std::erase_if(rate_functions(), [](const auto& one) { return one.expired(); });
  rate_functions().push_back(function);
  return LearningRate::from([function](std::uint64_t step) {
    const InPython python;
    if (!*function) throw MisuseError("a learning rate after the end of the program");
    const Kept kept = **function;
    const nb::object number = nb::steal(PyLong_FromUnsignedLongLong(step));
    const nb::object rate = nb::steal(PyObject_CallFunctionObjArgs(kept.ptr(), number.ptr(), nullptr));
    if (!rate.is_valid()) throw_python_error();
    const double value = PyFloat_AsDouble(rate.ptr());
    if (value == -1 && PyErr_Occurred() != nullptr) throw_python_error();
    return value;
  });
}

Method method_of(const std::string& name, double a, double b, double epsilon, bool nesterov) {
  using Form = Method::Momentum::Form;
  if (name == "sgd") return Method::sgd();
  if (name == "momentum") {
    return Method::momentum({.momentum = a, .form = nesterov ? Form::nesterov : Form::heavy_ball});
  }
  if (name == "adagrad") return Method::adagrad({.initial = a, .epsilon = epsilon});
  if (name == "rmsprop") return Method::rmsprop({.smoothing = a, .epsilon = epsilon});
  return Method::adam({.first = a, .second = b, .epsilon = epsilon});
}

OptimiserOptions::Tables tables_of(const std::string& name) {
  if (name == "lazy") return OptimiserOptions::Tables::lazy;
  if (name == "dense") return OptimiserOptions::Tables::dense;
  throw MisuseError("tables = '" + name + "'; expected 'lazy' or 'dense'");
}

void bind_rates(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<LearningRate> rate(
      m, "LearningRate",
      "The learning rate of each step; steps count from 0. Immutable. A number converts to a LearningRate.");
  define_copies_as_itself(rate);
  rate.def(nb::init<double>(), "rate"_a)
      .def("__repr__",
           [](const LearningRate& of) {
             std::ostringstream text;
             try {
               text << "<windrow.LearningRate, " << of(0) << " at step 0, " << of(1000) << " at step 1000>";
             } catch (const std::exception&) {
               return std::string("<windrow.LearningRate of a function that raises>");
             }
             return text.str();
           })
      .def_static("steps", &LearningRate::steps, "rate"_a, "every"_a, "factor"_a,
                  "Multiplies the rate by `factor` after each `every` steps.")
      .def_static("cosine", &LearningRate::cosine, "rate"_a, "steps"_a, "least"_a = 0.0,
                  "From `rate` along half a cosine to `least` at step `steps`, and `least` from then on.")
      .def_static("warm_up", &LearningRate::warm_up, "steps"_a, "then"_a,
                  nb::sig("def warm_up(steps: int, then: float | LearningRate) -> LearningRate"),
                  "Linear up to then(0) in the first `steps` steps; then(step - steps) afterwards.")
      .def_static("from_function", &rate_of, "function"_a,
                  nb::sig("def from_function(function: Callable[[int], float]) -> LearningRate"),
                  "Any pure function of the step. It is called when a step runs, on any thread; if it raises, the step "
                  "fails.")
      .def(
          "__call__", [](const LearningRate& of, std::uint64_t step) { return of(step); }, "step"_a);
  nb::implicitly_convertible<double, LearningRate>();
  nb::class_<Plateau>(m, "Plateau",
                      "Lowers the learning rate when a measure on the validation set no longer improves: "
                      "optimiser.scale_rate(plateau.report(loss)).")
      .def(
          "__init__",
          [](Plateau* self, double factor, std::uint64_t patience, double threshold, double least) {
            new (self) Plateau{.factor = factor, .patience = patience, .threshold = threshold, .least = least};
          },
          "factor"_a = 0.1, "patience"_a = 10, "threshold"_a = 1e-4, "least"_a = 0.0)
      .def_rw("best", &Plateau::best, "The best report so far.")
      .def_rw("reports", &Plateau::reports)
      .def_rw("without_improvement", &Plateau::without_improvement)
      .def_rw("lowered", &Plateau::lowered, "The product of all factors so far.")
      .def("report", &Plateau::report, "measure"_a,
           "Reports a measure that improves as it falls, such as a loss. Returns the factor for scale_rate().")
      .def("__repr__", [](const Plateau& of) {
        std::ostringstream text;
        text << "<windrow.Plateau, best " << of.best << " of " << counted(of.reports, "report", "reports")
             << ", factor " << of.lowered << " so far>";
        return text.str();
      });
}

void bind_averages(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<AveragesObject>(m, "Averages",
                             "Averages of parameters over steps, which often score better than the parameters of the "
                             "last step. With decay 0 all updates have the same weight.")
      .def(
          "__init__",
          [](AveragesObject* self, const ParametersHandle& parameters, double decay) {
            const InUse use(&parameters.shared->parameters.device());
            const Turn turn(*parameters.shared);
            new (self) AveragesObject{parameters.shared, std::make_unique<Averages>(parameters.shared->parameters,
                                                                                    AveragesOptions{.decay = decay})};
          },
          "parameters"_a, "decay"_a = 0.999)
      .def(
          "update",
          [](AveragesObject& of) {
            const std::source_location from = calling_line();
            in_turn_of_set(of, [&] { of.averages->update(from); });
          },
          "Pushes ops that update the averages with the current values. Call it after each step.")
      .def(
          "swap",
          [](AveragesObject& of) {
            const std::source_location from = calling_line();
            in_turn_of_set(of, [&] { of.averages->swap(from); });
          },
          "Exchanges the values of the parameters with the averages. Call it before an evaluation and again after it.")
      .def_prop_ro(
          "updates",
          [](AveragesObject& of) { return waiting_in_turn_of_set(of, [&] { return of.averages->updates(); }); })
      .def("__repr__", [](const AveragesObject& of) {
        return "<windrow.Averages of " + counted(of.set->parameters.size(), "parameter", "parameters") + ">";
      });
}

}  // namespace

void bind_optimisers(nb::module_& m) {
  using nb::literals::operator""_a;
  bind_rates(m);
  bind_averages(m);
  m.def("_end_rate_functions", &end_rate_functions);
  nb::class_<OptimiserObject>(m, "Optimiser")
      .def(
          "__init__",
          [](OptimiserObject* self, const ParametersHandle& parameters, const std::string& method, double a, double b,
             double epsilon, bool nesterov, std::optional<LearningRate> rate, double penalty, double decay,
             std::optional<double> clip_norm, std::optional<double> clip_value, std::uint64_t accumulate,
             const std::string& tables) {
            constexpr double infinity = std::numeric_limits<double>::infinity();
            const OptimiserOptions options{.rate = std::move(rate),
                                           .penalty = penalty,
                                           .decay = decay,
                                           .clip_norm = clip_norm.value_or(infinity),
                                           .clip_value = clip_value.value_or(infinity),
                                           .accumulate = accumulate,
                                           .tables = tables_of(tables)};
            const InUse use(&parameters.shared->parameters.device());
            const Turn turn(*parameters.shared);
            new (self) OptimiserObject{
                parameters.shared, std::make_unique<Optimiser>(parameters.shared->parameters,
                                                               method_of(method, a, b, epsilon, nesterov), options)};
          },
          "parameters"_a, "method"_a, "a"_a, "b"_a, "epsilon"_a, "nesterov"_a, "rate"_a.none(), "penalty"_a, "decay"_a,
          "clip_norm"_a.none(), "clip_value"_a.none(), "accumulate"_a, "tables"_a,
          nb::sig("def __init__(self, parameters: Parameters, method: str, a: float, b: float, epsilon: float, "
                  "nesterov: bool, rate: float | LearningRate | None, penalty: float, decay: float, "
                  "clip_norm: float | None, clip_value: float | None, accumulate: int, tables: str) -> None"))
      .def(
          "set",
          [](OptimiserObject& of, const ParameterObject& parameter, double rate_factor, double penalty_factor,
             double decay_factor) {
            in_turn_of_set(of, [&] {
              of.optimiser->set(
                  parameter.parameter,
                  {.rate_factor = rate_factor, .penalty_factor = penalty_factor, .decay_factor = decay_factor});
            });
          },
          "parameter"_a, nb::kw_only(), "rate_factor"_a = 1.0, "penalty_factor"_a = 1.0, "decay_factor"_a = 1.0,
          "Multiplies the learning rate, penalty and decay of one parameter.")
      .def(
          "scale_rate",
          [](OptimiserObject& of, double factor) { in_turn_of_set(of, [&] { of.optimiser->scale_rate(factor); }); },
          "factor"_a, "From the next step on, multiplies the schedule's rate by `factor`; see Plateau.")
      .def(
          "step",
          [](OptimiserObject& of, std::size_t samples) {
            const std::source_location from = calling_line();
            in_turn_of_set(of, [&] {
              require_gradients(of.set->parameters, "step");
              of.optimiser->step(samples, from);
            });
          },
          "samples"_a,
          "Pushes a step along the gradients of the last minibatch, whose loss is a sum over `samples` samples: the "
          "gradients are divided by `samples`. Does not wait.")
      .def(
          "finish",
          [](OptimiserObject& of) {
            const std::source_location from = calling_line();
            in_turn_of_set(of, [&] { of.optimiser->finish(from); });
          },
          "If calls of step() have only kept gradients so far, pushes a step along these; see `accumulate`.")
      .def_prop_ro(
          "takes_step", [](const OptimiserObject& of) { return of.optimiser->takes_step(); },
          "Whether the next call of step() takes a step instead of only keeping the gradients.")
      .def_prop_ro(
          "steps",
          [](OptimiserObject& of) {
            return waiting_in_turn_of_set(of, [&] { return of.optimiser->progress().steps; });
          },
          "How many steps have been taken and not skipped. Waits for those pushed so far.")
      .def_prop_ro(
          "rate", [](OptimiserObject& of) { return waiting_in_turn_of_set(of, [&] { return of.optimiser->rate(); }); },
          "The learning rate of the next step. Waits for the steps pushed so far.")
      .def(
          "last_norm",
          [](OptimiserObject& of) {
            const std::source_location from = calling_line();
            return waiting_in_turn_of_set(of, [&] { return of.optimiser->last_norm(from); });
          },
          "The norm of all gradients together in the last step, before clipping. Needs clip_norm. Waits.");
}

}  // namespace windrow::python
