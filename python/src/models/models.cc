// Models and their data by name, in memory and in checkpoints.
#include "models/models.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/vector.h>

#include "batching/graphs.h"
#include "windrow/models/language_model.h"
#include "windrow/models/saved_model.h"
#include "windrow/training/checkpoint.h"

namespace windrow::python {
namespace {

ModelObject object_of(Workload made, const Device& device) {
  const auto workload = std::make_shared<Workload>(std::move(made));
  // This pointer to the set keeps alive the model that the set is a part of.
  std::shared_ptr<Parameters> parameters(workload, workload->parameters.get());
  return {workload, device, std::make_shared<ParametersObject>(std::move(parameters))};
}

/// Makes a model without the GIL.
template <class Make>
ModelObject made_on(const Device* device, const Make& make) {
  const InUse use(device);
  std::optional<Workload> made;
  {
    const WithoutGil without_gil;
    made = make(use.device());
  }
  return object_of(*std::move(made), use.device());
}

nb::list predict(const ModelObject& of, const std::vector<std::string>& texts, std::size_t beam, bool parts) {
  std::vector<std::string> labels;
  std::vector<Prediction> all = in_turn(of, [&](Workload& workload) {
    labels = workload.network->labels();
    return workload.network->predict(texts, {.beam = beam, .parts = parts});
  });
  return predictions_of(std::move(all), std::move(labels));
}

void save(const ModelObject& of, const std::string& path) {
  in_turn(of, [&](Workload& workload) {
    CheckpointWriter writer(path);
    const Snapshot snapshot({.parameters = *workload.parameters});
    CheckpointContents contents = snapshot.contents(workload.parameters->minibatches());
    contents.document.set_format(training_format).set("model", model_record(workload));
    writer.write(contents);
  });
}

nb::dict take_weights_from(const ModelObject& to, const ModelObject& from) {
  const InUse use(&to.device), also(&from.device);
  const std::vector<SharedParameters> sets = {to.set, from.set};
  if (to.set == from.set) throw MisuseError("take_weights: the weights of the same model; expected another one");
  TakenWeights taken;
  {
    const Turn turn{std::span<const SharedParameters>(sets)};
    const WithoutGil without_gil;
    taken = take_weights(*to.workload, *from.workload);
  }
  nb::dict found;
  for (const TakenWeights::Names& names : taken.names) {
    found[names.what.c_str()] = nb::make_tuple(names.found, names.of);
  }
  return found;
}

nb::dict sizes_of(const WorkloadKind& of) {
  nb::dict sizes;
  for (const WorkloadSize& size : of.sizes) sizes[size.name.c_str()] = size.preset;
  return sizes;
}

void bind_kinds(nb::module_& m) {
  nb::class_<WorkloadKind>(m, "ModelKind", "Describes a model before it is made. See model_kinds().")
      .def_ro("name", &WorkloadKind::name)
      .def_ro("about", &WorkloadKind::about, "A description in one line.")
      .def_ro("sample", &WorkloadKind::sample, "What a sample is.")
      .def_ro(
          "files", &WorkloadKind::files,
          "The names of the training file and the validation file in a folder of data; empty if its data are always "
          "generated.")
      .def_prop_ro("sizes", &sizes_of, nb::sig("def sizes(self, /) -> dict[str, int]"),
                   "The sizes that can be chosen, with their defaults.")
      .def_ro("cells", &WorkloadKind::cells, "The cells that can be chosen; empty if there is only one.")
      .def_prop_ro(
          "switches",
          [](const WorkloadKind& of) {
            std::map<std::string, std::string> all;
            for (const WorkloadSwitch& one : of.switches) all[one.name] = one.about;
            return all;
          },
          "What can be switched on: the name and a description of each switch.")
      .def_ro("input", &WorkloadKind::input,
              "The text that Model.predict() reads, and what it predicts; empty if it cannot predict for texts.")
      .def("__repr__",
           [](const WorkloadKind& of) { return "<windrow.ModelKind '" + of.name + "': " + of.about + ">"; });
  m.def(
      "model_kinds",
      [] {
        nb::dict all;
        for (const WorkloadKind& kind : workload_kinds()) {
          all[kind.name.c_str()] = nb::cast(&kind, nb::rv_policy::reference);  // the list is constant
        }
        return all;
      },
      nb::sig("def model_kinds() -> dict[str, ModelKind]"), "The models of make_model(), by name.");
}

}  // namespace

void bind_models(nb::module_& m) {
  using nb::literals::operator""_a;
  bind_kinds(m);
  nb::class_<ModelObject>(m, "Model", nb::is_weak_referenceable())
      .def(
          "__init__",
          [](ModelObject* self, const std::string& name, const Device* device, std::string data, std::uint64_t seed,
             std::size_t samples, std::string cell, std::map<std::string, Index> sizes, std::set<std::string> switches,
             double dropout, double word_dropout, std::string training_file, std::string validation_file,
             std::string source_language, std::string target_language) {
            const WorkloadOptions options{.data = std::move(data),
                                          .seed = seed,
                                          .samples = samples,
                                          .cell = std::move(cell),
                                          .sizes = std::move(sizes),
                                          .switches = std::move(switches),
                                          .source_language = std::move(source_language),
                                          .target_language = std::move(target_language),
                                          .dropout = {.element = dropout, .word = word_dropout},
                                          .training_file = std::move(training_file),
                                          .validation_file = std::move(validation_file)};
            new (self) ModelObject(made_on(device, [&](const Device& on) { return make_workload(name, on, options); }));
          },
          "name"_a, "device"_a.none(), "data"_a, "seed"_a, "samples"_a, "cell"_a, "sizes"_a, "switches"_a, "dropout"_a,
          "word_dropout"_a, "training_file"_a, "validation_file"_a, "source_language"_a, "target_language"_a)
      .def(
          "__init__",
          [](ModelObject* self, const std::string& folder, const Device* device) {
            new (self) ModelObject(
                made_on(device, [&](const Device& on) { return load_model(on, std::filesystem::path(folder)); }));
          },
          "folder"_a, "device"_a.none())
      .def_prop_ro(
          "kind", [](const ModelObject& of) { return of.workload->kind; }, nb::rv_policy::reference)
      .def(
          "_parameters",
          [](const ModelObject& of, nb::handle type) { return new_object<ParametersHandle>(type, {of.set}); }, "type"_a,
          nb::sig("def _parameters(self, type: type[T]) -> T"))
      .def_prop_ro(
          "labels", [](const ModelObject& of) { return in_turn(of, [](auto& all) { return all.network->labels(); }); },
          "The names of the labels that predict() chooses from.")
      .def_prop_ro(
          "vocabularies", [](const ModelObject& of) { return of.workload->vocabularies; },
          "For each vocabulary, by name, its words in the order of their numbers.")
      .def_prop_ro(
          "training_samples", [](const ModelObject& of) { return of.workload->training.size(); },
          "The size of the training set.")
      .def_prop_ro(
          "validation_samples", [](const ModelObject& of) { return of.workload->validation.size(); },
          "The size of the validation set.")
      .def("_predict", &predict, "texts"_a, "beam"_a, "parts"_a,
           nb::sig("def _predict(self, texts: collections.abc.Sequence[str], beam: int, parts: bool) -> "
                   "list[Prediction]"))
      .def(
          "_sample_texts",
          [](const ModelObject& of, const std::string& start, std::size_t texts, std::uint64_t seed, double temperature,
             std::size_t longest) {
            const SamplingOptions options{.texts = texts, .seed = seed, .temperature = temperature, .longest = longest};
            return in_turn(of, [&](Workload& all) { return all.network->sample_texts(start, options); });
          },
          "start"_a, "texts"_a, "seed"_a, "temperature"_a, "longest"_a)
      .def("_save", &save, "path"_a)
      .def("_take_weights", &take_weights_from, "of"_a,
           nb::sig("def _take_weights(self, of: Model) -> dict[str, tuple[int, int]]"))
      .def(
          "_set_word_vectors",
          [](const ModelObject& of, const std::string& file) {
            const WordVectors found =
                in_turn(of, [&](Workload& all) { return set_word_vectors(all, std::filesystem::path(file)); });
            return nb::make_tuple(found.rows, found.of);
          },
          "file"_a, nb::sig("def _set_word_vectors(self, file: str) -> tuple[int, int]"));
  m.def("_generate_treebank", &generate_treebank, "trees"_a, "seed"_a);
  m.def("_generate_conllu", &generate_conllu, "sentences"_a, "seed"_a);
}

}  // namespace windrow::python
