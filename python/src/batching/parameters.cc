// Parameters, their initial values, and turns.
#include "batching/parameters.h"

#include <nanobind/stl/vector.h>

#include <algorithm>

#include "batching/graphs.h"
#include "ops/arrays.h"
#include "ops/elements.h"

namespace windrow::python {

Turn::Turn(std::span<const SharedParameters> sets, ParametersObject* alone) : Turn() {
  std::vector<Turns*> all;
  if (alone != nullptr) all.push_back(&alone->turns);
  for (const SharedParameters& set : sets) all.push_back(&set->turns);
  std::ranges::sort(all);
  for (Turns* const turns : all) {
    if (turns->owner == std::this_thread::get_id()) {
      throw MisuseError("a call on parameters while another call of this thread uses them; expected one at a time");
    }
    if (!turns->mutex.try_lock()) {
      if (inside_op()) {
        throw MisuseError("an op uses parameters while another thread does; expected one thread at a time");
      }
      waiting(no_limit, [&](auto patience) { return turns->mutex.try_lock_for(patience); });
    }
    turns->owner = std::this_thread::get_id();
    taken_.push_back(turns);
  }
}

Turn::~Turn() {
  for (Turns* const turns : taken_) {
    turns->owner = std::thread::id();
    turns->mutex.unlock();
  }
}

void require_gradients(const Parameters& set, const char* call) {
  if (set.minibatches() != 0 || set.size() == 0) return;
  for (std::size_t p = 0; p < set.size(); ++p) {
    if (const Gradient& gradient = set.gradient(set[p]); gradient.all || !gradient.rows.empty()) return;
  }
  throw MisuseError(std::string(call) +
                    ": a step before any gradients; expected Runner.differentiate(), LazyGraph.backward() or "
                    "add_gradient() first");
}

namespace {

using Handle = ParametersHandle;

/// Chooses the initial values for a shape. A value.
struct Initialiser {
  std::string name;
  std::function<Initial(Index rows, Index width)> of;
};

Initialiser always(std::string name, Initial initial) {
  return {std::move(name), [initial](Index, Index) { return initial; }};
}

/// The initialisers that need no numbers, by name.
const std::vector<Initialiser>& named_initialisers() {
  static const std::vector<Initialiser> all = {
      {"glorot", [](Index rows, Index width) { return Initial::glorot(rows, width); }},
      {"he_normal", [](Index rows, Index) { return Initial::he_normal(rows); }},
      {"he_uniform", [](Index rows, Index) { return Initial::he_uniform(rows); }},
      always("orthogonal", Initial::orthogonal()),
      always("identity", Initial::identity()),
      always("zeros", Initial::zeros()),
  };
  return all;
}

Initialiser initialiser_of(const nb::object& from) {
  if (nb::isinstance<Initialiser>(from)) return nb::cast<Initialiser>(from);
  if (double number = 0; nb::try_cast(from, number)) return always("constant", Initial::constant(number));
  std::string name, names;
  if (nb::try_cast(from, name)) {
    for (const Initialiser& known : named_initialisers()) {
      if (known.name == name) return known;
      names += ", '" + known.name + "'";
    }
    throw MisuseError("initial = '" + name + "'; expected a number, an initialiser" + names);
  }
  throw nb::type_error(("initial is a " + std::string(nb::type_name(from.type()).c_str()) +
                        "; expected a name, a number, or an initialiser of windrow.init")
                           .c_str());
}

NonFinite non_finite_of(const std::string& name) {
  if (name == "fail") return NonFinite::fail;
  if (name == "skip") return NonFinite::skip;
  throw MisuseError("non_finite = '" + name + "'; expected 'fail' or 'skip'");
}

/// Calls `call` with the parameters, in this thread's turn and with the engine in use.
template <class Call>
auto in_turn(const SharedParameters& set, const Call& call) {
  const InUse use(&set->parameters.device());
  const Turn turn(*set);
  return call(set->parameters);
}

ParameterObject add(const Handle& to, const std::string& name, Index rows, Index width, const nb::object& initial) {
  const Initialiser how = initialiser_of(initial);
  if (rows < 0 || width < 0) {
    throw MisuseError("add: parameter '" + name + "' of " + std::to_string(rows) + " x " + std::to_string(width) +
                      "; expected no negative size");
  }
  return in_turn(to.shared, [&](Parameters& set) {
    return ParameterObject{to.shared, set.add(name, rows, width, how.of(rows, width))};
  });
}

/// Adds a parameter of the shape that a tuple of integers gives. A tuple of other elements is a value, for which
/// nanobind tries the next overload.
ParameterObject add_shaped(const Handle& to, const std::string& name, const nb::tuple& shape,
                           const nb::object& initial) {
  std::vector<Index> sizes;
  for (const nb::handle size : shape) {
    if (const std::optional<std::int64_t> number = integer_of(size)) sizes.push_back(*number);
  }
  if (sizes.size() != shape.size()) throw nb::next_overload();  // a value
  if (sizes.size() != 2) {
    throw MisuseError("add: parameter '" + name + "' of a shape of " + counted(sizes.size(), "size", "sizes") +
                      "; expected (rows, width), and (1, width) for a row");
  }
  return add(to, name, sizes[0], sizes[1], initial);
}

ParameterObject add_value(const Handle& to, const std::string& name, const nb::object& value) {
  const auto refuse = [&](const char* what) { throw MisuseError("add: parameter '" + name + "' of " + what); };
  if (integer_of(value)) refuse("one integer; expected rows and width, (1, width) for a row, or a value, [[5.0]]");
  if (nb::isinstance<nb::list>(value)) {
    const nb::list list = nb::borrow<nb::list>(value);
    if (list.size() == 2 && integer_of(list[0]) && integer_of(list[1])) {
      refuse("a list of two integers; expected a tuple for a shape, (rows, width), or a list of rows, [[a, b]]");
    }
  }
  const Device device = to.shared->parameters.device();
  const nb::object tensor = nb::isinstance<Tensor>(value) ? value : tensor_of(value, &device, name, "float32");
  const Tensor& shared = nb::cast<const Tensor&>(tensor);
  return in_turn(to.shared, [&](Parameters& set) { return ParameterObject{to.shared, set.add(name, shared)}; });
}

void set_value(const ParameterObject& of, const nb::object& value) {
  Elements elements = elements_of(value, "float32");
  const std::source_location from = calling_line();
  in_turn(of.of, [&](Parameters& set) {
    const Tensor& tensor = set.value(of.parameter);
    if (elements.rows != tensor.rows() || elements.width != tensor.width()) {
      throw MisuseError("parameter '" + set.name(of.parameter) + "': a value of " + std::to_string(elements.rows) +
                        " x " + std::to_string(elements.width) + "; expected " + to_string(of.parameter.type()));
    }
    tensor.set(std::get<std::vector<float>>(std::move(elements.values)), from);
  });
}

nb::object numpy_of(const ParameterObject& of) {
  const Tensor value = in_turn(of.of, [&](Parameters& set) { return Tensor(set.value(of.parameter)); });
  return nb::cast(value).attr("numpy")();
}

nb::object gradient_rows(const ParameterObject& of) {
  const std::source_location from = calling_line();
  const Gradient gradient = in_turn(of.of, [&](Parameters& set) { return set.summed_gradient(of.parameter, from); });
  if (gradient.all || gradient.rows.empty()) return nb::none();
  return nb::make_tuple(gradient.rows.front().of, gradient.rows.front().rows);
}

bool frozen(const ParameterObject& of) {
  return in_turn(of.of, [&](Parameters& set) { return set.frozen(of.parameter); });
}
void set_frozen(const ParameterObject& of, bool frozen) {
  in_turn(of.of, [&](Parameters& set) { frozen ? set.freeze(of.parameter) : set.unfreeze(of.parameter); });
}

std::string name_of(const ParameterObject& of) { return of.of->parameters.name(of.parameter); }

nb::list all_of(const Handle& of) {
  nb::list list;
  const Parameters& set = of.shared->parameters;
  for (std::size_t p = 0; p < set.size(); ++p) list.append(ParameterObject{of.shared, set[p]});
  return list;
}

nb::object replica(nb::handle self, const Device& device) {
  const SharedParameters of = nb::cast<const Handle&>(self).shared;
  const InUse use(&of->parameters.device()), at_replica(&device);
  const Turn turn(*of);
  std::shared_ptr<Parameters> made;
  {
    const WithoutGil without_gil;
    made = std::make_shared<Parameters>(device, of->parameters);
  }
  return new_object<Handle>(self.type(), Handle{std::make_shared<ParametersObject>(std::move(made))});
}

nb::dict skipped_steps(const Handle& of) {
  const SkippedSteps skipped = of.shared->parameters.skipped_steps();
  nb::list last;
  for (const SkippedStep& step : skipped.last) last.append(nb::make_tuple(step.step, step.why));
  nb::dict all;
  all["count"] = skipped.count;
  all["last"] = last;
  return all;
}

void wait_for_values(const Handle& of) {
  const Parameters& set = of.shared->parameters;
  const InUse use(&set.device());
  std::vector<Access> accesses;
  for (std::size_t p = 0; p < set.size(); ++p) accesses.push_back({set.value(set[p]).var(), AccessKind::mutate});
  wait_for(use.engine(), accesses);
}

std::vector<std::uint64_t> versions_of_values(const Handle& of) {
  const std::source_location from = calling_line();
  const Parameters& set = of.shared->parameters;
  const InUse use(&set.device());
  std::vector<std::uint64_t> versions;
  for (std::size_t p = 0; p < set.size(); ++p) {
    versions.push_back(use.engine().version(set.value(set[p]).var(), from));
  }
  return versions;
}

void bind_initialisers(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<Initialiser>(m, "Initialiser", "How the initial values of a parameter are drawn. See windrow.init.")
      .def("__repr__", [](const Initialiser& of) { return "<windrow.Initialiser " + of.name + ">"; });
  for (const Initialiser& known : named_initialisers()) {
    if (known.name == "orthogonal" || known.name == "identity") continue;
    m.def(("_" + known.name).c_str(), [known] { return known; });
  }
  m.def("_constant", [](double value) { return always("constant", Initial::constant(static_cast<float>(value))); });
  m.def("_uniform", [](double low, double high) {
    return always("uniform", Initial::uniform(static_cast<float>(low), static_cast<float>(high)));
  });
  m.def("_normal", [](double mean, double deviation) {
    return always("normal", Initial::normal(static_cast<float>(mean), static_cast<float>(deviation)));
  });
  m.def("_orthogonal", [](double gain) { return always("orthogonal", Initial::orthogonal(static_cast<float>(gain))); });
  m.def("_identity", [](double factor) { return always("identity", Initial::identity(static_cast<float>(factor))); });
}

void bind_parameter(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<ParameterObject>(m, "Parameter",
                              "A parameter of a set. An operand of expressions, such as `x @ w` and `x + bias`.")
      .def_prop_ro("name", &name_of)
      .def_prop_ro(
          "shape",
          [](const ParameterObject& of) {
            return nb::make_tuple(of.parameter.type().rows.number(), of.parameter.type().width);
          },
          nb::for_getter(nb::sig("def shape(self) -> tuple[int, int]")), "(rows, width).")
      .def_prop_rw(
          "value",
          [](const ParameterObject& of) {
            return in_turn(of.of, [&](Parameters& set) { return Tensor(set.value(of.parameter)); });
          },
          &set_value, nb::for_setter(nb::arg("value")),
          nb::for_setter(nb::sig("def value(self, value: ArrayLike) -> None")),
          "The value, a Tensor that steps change in place. Setting it copies an array of the same shape.")
      .def("numpy", &numpy_of, nb::sig("def numpy(self) -> NDArray[float32]"),
           "The value as Tensor.numpy() gives it. Waits for the steps pushed so far.")
      .def_prop_ro(
          "gradient",
          [](const ParameterObject& of) {
            const std::source_location from = calling_line();
            return in_turn(of.of, [&](Parameters& set) { return set.dense_gradient(of.parameter, from); });
          },
          "The gradient of the last minibatch that was differentiated, as a new Tensor of the parameter's shape; zero "
          "where the loss does not depend on the parameter.")
      .def_prop_ro("gradient_rows", &gradient_rows,
                   nb::for_getter(nb::sig("def gradient_rows(self) -> tuple[IntTensor, Tensor] | None")),
                   "The gradient of a table that was used only by lookups: the ascending numbers of the rows looked "
                   "up (IntTensor), and their gradients (Tensor). None for other gradients.")
      .def_prop_rw("frozen", &frozen, &set_frozen, nb::for_setter(nb::arg("frozen")),
                   "Whether the parameter is a constant: from the next minibatch on, no gradient is computed for it, "
                   "and no step changes it.")
      .def("__repr__", [](const ParameterObject& of) {
        return "<windrow.Parameter '" + name_of(of) + "', " + to_string(of.parameter.type()) + ">";
      });
}

}  // namespace

void bind_parameters(nb::module_& m) {
  using nb::literals::operator""_a;
  bind_initialisers(m);
  bind_parameter(m);
  nb::class_<Handle>(m, "Parameters", nb::is_weak_referenceable())
      .def(
          "__init__",
          [](Handle* self, const Device* device, std::uint64_t seed, std::string name, const std::string& non_finite) {
            const InUse use(device);
            ParametersOptions options{.non_finite = non_finite_of(non_finite), .name = std::move(name)};
            new (self) Handle{std::make_shared<ParametersObject>(
                std::make_shared<Parameters>(use.device(), seed, std::move(options)))};
          },
          "device"_a = nb::none(), "seed"_a = 0, "name"_a = "", nb::kw_only(), "non_finite"_a = "fail",
          nb::sig("def __init__(self, device: Device | None = None, seed: int = 0, name: str = '', *, "
                  "non_finite: Literal['fail', 'skip'] = 'fail') -> None"))
      .def(
          "replica", &replica, "device"_a, nb::sig("def replica(self, device: Device) -> Self"),
          "A copy: has the same parameters, with copies of their values, and draws the same dropout. Vertex functions "
          "that use this set also work with the copy. Use it for members of a group (see Replicas), or to keep values. "
          "Waits for the values.")
      .def("add", &add, "name"_a, "rows"_a, "width"_a, "initial"_a = "glorot",
           nb::sig("def add(self, name: str, rows: int, width: int, initial: Initial = 'glorot') -> Parameter"),
           "Adds a parameter of this shape, with initial values: a number, an initialiser of windrow.init, or the name "
           "of one. Raises MisuseError for a name that the set has.")
      .def("add", &add_shaped, "name"_a, "shape"_a, "initial"_a = "glorot",
           nb::sig("def add(self, name: str, shape: tuple[int, int], initial: Initial = 'glorot') -> Parameter"),
           "The same, for a shape (rows, width).")
      .def("add", &add_value, "name"_a, "value"_a, nb::sig("def add(self, name: str, value: ArrayLike) -> Parameter"),
           "Adds a parameter with this value: an array or a list of rows, which is copied, or a Tensor, which is "
           "shared.")
      .def_prop_ro("name", [](const Handle& of) { return of.shared->parameters.name(); })
      .def_prop_ro("device", [](const Handle& of) { return Device(of.shared->parameters.device()); })
      .def("__len__", [](const Handle& of) { return of.shared->parameters.size(); })
      .def(
          "__getitem__",
          [](const Handle& of, const std::string& name) {
            return in_turn(of.shared, [&](Parameters& set) { return ParameterObject{of.shared, set.find(name)}; });
          },
          "name"_a)
      .def("_all", &all_of, nb::sig("def _all(self) -> list[Parameter]"))
      .def("_wait", &wait_for_values, "Waits for all ops that use the values, so that the program may write them.")
      .def("_versions", &versions_of_values, "For each parameter, how many ops that change its value have run.")
      .def(
          "sgd",
          [](const Handle& of, double rate, double decay) {
            const std::source_location from = calling_line();
            return in_turn(of.shared, [&](Parameters& set) {
              require_gradients(set, "sgd");
              return set.sgd(rate, decay, from);
            });
          },
          "rate"_a, "decay"_a = 0.0,
          "Pushes a step of gradient descent for each parameter that has a gradient: value -= rate * (gradient + decay "
          "* value). Returns the number of the step, from 0.")
      .def(
          "keep_gradients",
          [](const Handle& of) {
            const std::source_location from = calling_line();
            in_turn(of.shared, [&](Parameters& set) { set.keep_gradients(from); });
          },
          "Makes the next minibatch that is differentiated add its gradients to the existing ones.")
      .def(
          "forget_gradients",
          [](const Handle& of) { in_turn(of.shared, [](Parameters& set) { set.forget_gradients(); }); },
          "Drops all gradients, and the memory that they keep.")
      .def(
          "begin_minibatch",
          [](const Handle& of) {
            const std::source_location from = calling_line();
            return in_turn(of.shared, [&](Parameters& set) { return set.begin_minibatch(from); });
          },
          "Begins a minibatch whose gradients the program adds itself, such as those of a Tape. Returns its number.")
      .def(
          "add_gradient",
          [](const Handle& of, const ParameterObject& parameter, const Tensor& gradient) {
            const std::source_location from = calling_line();
            in_turn(of.shared, [&](Parameters& set) { set.add_gradient(parameter.parameter, gradient, from); });
          },
          "parameter"_a, "gradient"_a, "Adds to the gradient of the present minibatch.")
      .def(
          "set_gradient",
          [](const Handle& of, const ParameterObject& parameter, const Tensor& gradient) {
            in_turn(of.shared, [&](Parameters& set) { set.set_gradient(parameter.parameter, gradient); });
          },
          "parameter"_a, "gradient"_a, "Replaces a gradient until the next minibatch is differentiated.")
      .def(
          "number_samples",
          [](const Handle& of, std::vector<std::int32_t> numbers) {
            in_turn(of.shared, [&](Parameters& set) { set.number_samples(std::move(numbers)); });
          },
          "numbers"_a,
          "For a member of a group: the place of each sample of its next minibatch among the samples of all members. "
          "Then a runner draws the dropout that one member with all samples would draw.")
      .def_prop_rw(
          "minibatches", [](const Handle& of) { return of.shared->parameters.minibatches(); },
          [](const Handle& of, std::uint64_t number) {
            in_turn(of.shared, [&](Parameters& set) { set.set_minibatches(number); });
          },
          nb::for_setter(nb::arg("number")),
          "The number of minibatches that were computed for training; dropout depends on it.")
      .def("skipped_steps", &skipped_steps, nb::sig("def skipped_steps(self) -> SkippedSteps"),
           "The steps that were skipped because a loss or gradient was not finite (non_finite='skip'): their 'count', "
           "and the numbers and reasons of the 'last' ones.");
}

}  // namespace windrow::python
