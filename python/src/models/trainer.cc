// Trainers of models.
#include "windrow/models/trainer.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <limits>

#include "comm/communicators.h"
#include "models/models.h"
#include "training/checkpoints.h"
#include "windrow/models/saved_model.h"

namespace windrow::python {
namespace {

/// A trainer, with the objects that it refers to, which must end after it.
struct TrainerObject {
  ModelObject model;
  SharedMember group;
  std::unique_ptr<Trainer> trainer;
};

Method method_of(const std::string& name) {
  using Form = Method::Momentum::Form;
  if (name == "sgd") return Method::sgd();
  if (name == "momentum") return Method::momentum();
  if (name == "nesterov") return Method::momentum({.form = Form::nesterov});
  if (name == "adagrad") return Method::adagrad();
  if (name == "rmsprop") return Method::rmsprop();
  if (name == "adam") return Method::adam();
  throw MisuseError("optimiser = '" + name +
                    "'; expected 'sgd', 'momentum', 'nesterov', 'adagrad', 'rmsprop' or 'adam'");
}

template <class Call>
auto in_turn(const TrainerObject& of, const Call& call) {
  const InUse use(&of.model.device);
  const Turn turn(*of.model.set);
  std::optional<MemberTurn> of_member;
  if (of.group != nullptr) of_member.emplace(*of.group);
  WithoutGil without_gil;
  if constexpr (std::is_invocable_v<Call, Trainer&, WithoutGil&>) {
    return call(*of.trainer, without_gil);
  } else {
    return call(*of.trainer);
  }
}

/// An interrupt takes effect after the present step; if the step takes longer than this, within the step.
constexpr std::chrono::seconds patience_for_step{2};

/// Calls back between steps: handles signals, and asks the function whether to go on.
class Between {
 public:
  explicit Between(nb::object function) : function_(std::move(function)) {}

  /// Call it without the GIL.
  Trainer::Then operator()(const Trainer::Pass& so_far) {
    const InPython python;
    release_dropped();
    if (PyErr_CheckSignals() != 0) return keep_error();
    if (function_.is_none()) return Trainer::Then::go_on;
    const nb::object pass = nb::cast(so_far);
    const nb::object result = nb::steal(PyObject_CallFunctionObjArgs(function_.ptr(), pass.ptr(), nullptr));
    if (!result.is_valid()) return keep_error();
    return result.ptr() == Py_False ? Trainer::Then::stop : Trainer::Then::go_on;
  }
  /// With the GIL: raises what the function or a signal handler has raised.
  void rethrow() {
    if (error_) throw nb::python_error(*error_);
  }

 private:
  Trainer::Then keep_error() {
    error_.emplace();
    return Trainer::Then::stop;
  }

  nb::object function_;
  std::optional<nb::python_error> error_;
};

Trainer::Pass train_epoch(const TrainerObject& of, nb::object function) {
  Between between(std::move(function));
  Trainer::Pass pass = in_turn(of, [&](Trainer& trainer, WithoutGil& without_gil) {
    auto begun = std::chrono::steady_clock::now();
    const LookWhileWaiting looks([&] {
      if (std::chrono::steady_clock::now() - begun > patience_for_step) without_gil.handle_signals();
    });
    return trainer.train_epoch([&](const Trainer::Pass& so_far) {
      const Trainer::Then then = between(so_far);
      begun = std::chrono::steady_clock::now();
      return then;
    });
  });
  between.rethrow();
  return pass;
}

nb::dict evaluate(const TrainerObject& of) {
  nb::dict all;
  for (const Metric& metric : in_turn(of, [](Trainer& trainer) { return trainer.evaluate(); })) {
    all[metric.name.c_str()] = metric.value;
  }
  return all;
}

void save_training(const TrainerObject& of, WriterObject& writer) {
  in_turn(of, [&](Trainer& trainer) {
    if (of.group != nullptr && of.group->communicator.rank() != 0) return trainer.help_save();
    Record document;
    document.set_format(training_format).set("model", model_record(*of.model.workload));
    const std::lock_guard lock(writer.mutex);
    trainer.save(writer.writer, std::move(document));
  });
}

void bind_pass(nb::module_& m) {
  nb::class_<Trainer::Pass>(m, "Pass", "How much a trainer has trained, and with which loss.")
      .def_ro("samples", &Trainer::Pass::samples)
      .def_ro("vertices", &Trainer::Pass::vertices)
      .def_ro("labels", &Trainer::Pass::labels)
      .def_ro("loss", &Trainer::Pass::loss, "The mean loss per label; that of a minibatch is computed before its step.")
      .def_ro("seconds", &Trainer::Pass::seconds)
      .def("__repr__", [](const Trainer::Pass& of) {
        return "<windrow.Pass: " + std::to_string(of.samples) + " samples in " + std::to_string(of.seconds) +
               " s, loss " + std::to_string(of.loss) + ">";
      });
}

}  // namespace

void bind_trainer(nb::module_& m) {
  using nb::literals::operator""_a;
  bind_pass(m);
  nb::class_<TrainerObject>(m, "Trainer")
      .def(
          "__init__",
          [](TrainerObject* self, const ModelObject& model, const std::string& optimiser,
             std::optional<LearningRate> rate, std::size_t minibatch, std::size_t micro_batches, double penalty,
             double decay, std::optional<double> clip_norm, std::optional<double> averages, std::uint64_t seed,
             const CommunicatorObject* group, bool sharded) {
            const Method method = method_of(optimiser);
            if (!rate && optimiser == "sgd") rate = model.workload->kind->learning_rate;
            TrainerOptions options{
                .minibatch = minibatch,
                .micro_batches = micro_batches,
                .method = method,
                .optimiser = {.rate = std::move(rate),
                              .penalty = penalty,
                              .decay = decay,
                              .clip_norm = clip_norm.value_or(std::numeric_limits<double>::infinity())},
                .seed = seed,
                .sharded = sharded};
            if (averages) options.averages = AveragesOptions{.decay = *averages};
            if (group != nullptr) options.group = group->member->communicator;
            auto made = in_turn(model, [&](Workload& workload) {
              return std::make_unique<Trainer>(model.device, workload, std::move(options));
            });
            new (self) TrainerObject{model, group == nullptr ? nullptr : group->member, std::move(made)};
          },
          "model"_a, "optimiser"_a = "sgd", "rate"_a = nb::none(), nb::kw_only(), "minibatch"_a = 64,
          "micro_batches"_a = 1, "penalty"_a = 0.0, "decay"_a = 0.0, "clip_norm"_a = nb::none(),
          "averages"_a = nb::none(), "seed"_a = 1, "group"_a = nb::none(), "sharded"_a = false)
      .def(
          "train",
          [](const TrainerObject& of, std::size_t samples) {
            return in_turn(of, [&](Trainer& trainer) { return trainer.train(samples); });
          },
          "samples"_a,
          "Trains on the next samples, in an order that is drawn anew for each epoch. Returns when all ops have "
          "finished. Raises OpError if a loss is not finite.")
      .def("train_epoch", &train_epoch, "between"_a = nb::none(),
           nb::sig("def train_epoch(self, between: Callable[[Pass], object] | None = None) -> Pass"),
           "Trains to the end of an epoch: continues one that was stopped, or else begins a new one. Calls "
           "between(so_far) after each step but the last, and stops if it returns False or raises. An interrupt stops "
           "it after a step, too, or within a step that takes long. Returns the results of the whole epoch.")
      .def("evaluate", &evaluate, nb::sig("def evaluate(self) -> dict[str, float]"),
           "The metrics of the validation set, by name.")
      .def_prop_ro(
          "validation_loss", [](const TrainerObject& of) { return of.trainer->validation_loss(); },
          "The mean loss per label in the last evaluate(), or None.")
      .def_prop_ro(
          "epochs", [](const TrainerObject& of) { return of.trainer->epochs(); }, "How many epochs have ended.")
      .def_prop_ro(
          "minibatches", [](const TrainerObject& of) { return of.trainer->minibatches(); },
          "How many minibatches were trained on.")
      .def_prop_ro(
          "rate",
          [](const TrainerObject& of) {
            return in_turn(of, [](Trainer& trainer) { return trainer.optimiser().rate(); });
          },
          "The learning rate of the next step. Waits for the steps pushed so far.")
      .def(
          "scale_rate",
          [](const TrainerObject& of, double factor) {
            in_turn(of, [&](Trainer& trainer) { trainer.optimiser().scale_rate(factor); });
          },
          "factor"_a, "From the next step on, multiplies the schedule's rate by `factor`; see Plateau.")
      .def("save", &save_training, "writer"_a,
           "Writes a checkpoint of the model and of all state on which later steps depend, as `windrow train --save` "
           "does. In a group, all members call it, and rank 0 writes. Waits.")
      .def(
          "resume",
          [](const TrainerObject& of, const SavedCheckpoint& checkpoint) {
            in_turn(of, [&](Trainer& trainer) { trainer.resume(checkpoint); });
          },
          "checkpoint"_a,
          "Resumes from a checkpoint of a trainer with the same options, model and data: later steps give the same "
          "bits. Call it before any training. Raises FileError for a checkpoint of something else.");
}

}  // namespace windrow::python
