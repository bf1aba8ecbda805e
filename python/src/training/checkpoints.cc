// Checkpoints, in the file format of C++ programs.
#include "training/checkpoints.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "batching/graphs.h"
#include "ops/arrays.h"
#include "training/optimisers.h"
#include "windrow/training/checkpoint.h"

namespace windrow::python {
namespace {

nb::object object_of(const RecordValue& value);

nb::dict dict_of(const Record& record) {
  nb::dict all;
  for (const auto& [name, value] : record.values()) all[name.c_str()] = object_of(value);
  return all;
}

/// What `get` returns, or an invalid object if the value is of another type.
template <class Get>
nb::object if_is(const Get& get) {
  try {
    return nb::cast(get());
  } catch (const FileError&) {
    return {};
  }
}

/// Whether files store a number that is not finite as this text.
bool is_number(std::string_view text) { return text == "Infinity" || text == "-Infinity" || text == "NaN"; }

nb::object object_of(const RecordValue& value) {
  nb::object made = if_is([&] { return value.text(); });
  if (made.is_valid() && is_number(value.text())) return nb::cast(value.number());
  if (!made.is_valid()) made = if_is([&] { return value.count(); });
  if (!made.is_valid()) made = if_is([&] { return value.integer(); });
  if (!made.is_valid()) made = if_is([&] { return value.number(); });
  if (!made.is_valid()) {
    try {
      nb::list all;
      for (const RecordValue& one : value.list()) all.append(object_of(one));
      made = std::move(all);
    } catch (const FileError&) {
      made = dict_of(value.record());
    }
  }
  return made;
}

RecordValue value_of(nb::handle object, int depth);

Record record_of(const nb::dict& values, int depth) {
  Record record;
  for (const auto& [name, value] : values) {
    if (!nb::isinstance<nb::str>(name)) throw nb::type_error("a record has a name that is no text; expected a str");
    if (!value.is_none()) record.set(nb::cast<std::string>(name), value_of(value, depth));
  }
  return record;
}

RecordValue value_of(nb::handle object, int depth) {
  if (depth > 64) throw MisuseError("a record of more than 64 levels; expected fewer");
  if (nb::isinstance<nb::str>(object)) {
    std::string text = nb::cast<std::string>(object);
    if (is_number(text)) throw MisuseError("a record has the text '" + text + "'; expected a text that is no number");
    return text;
  }
  if (nb::isinstance<nb::dict>(object)) return record_of(nb::borrow<nb::dict>(object), depth + 1);
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) {
    RecordValue::List list;
    for (const nb::handle one : nb::iter(object)) list.push_back(value_of(one, depth + 1));
    return list;
  }
  if (!nb::isinstance<nb::bool_>(object)) {
    if (nb::isinstance<nb::float_>(object)) return nb::cast<double>(object);
    if (std::uint64_t count = 0; nb::isinstance<nb::int_>(object) && nb::try_cast(object, count)) return count;
    if (std::int64_t integer = 0; nb::isinstance<nb::int_>(object) && nb::try_cast(object, integer)) return integer;
    // Numbers and arrays of NumPy.
    if (nb::hasattr(object, "dtype") && nb::hasattr(object, "tolist")) {
      if (const nb::object made = object.attr("tolist")(); !made.type().is(object.type()))
        return value_of(made, depth + 1);
    }
  }
  throw nb::type_error(("a record has " + kind_of(object) + "; expected str, int, float, list or dict" +
                        (nb::isinstance<nb::bool_>(object) ? ", such as 0 and 1 for a bool" : ""))
                           .c_str());
}

TrainingParts parts_of(const ParametersHandle& parameters, OptimiserObject* optimiser, AveragesObject* averages,
                       const std::string& name) {
  return {.parameters = parameters.shared->parameters,
          .optimiser = optimiser == nullptr ? nullptr : optimiser->optimiser.get(),
          .averages = averages == nullptr ? nullptr : averages->averages.get(),
          .name = name};
}

/// Calls `call` with the parts, in this thread's turn, with the engine in use, and without the GIL.
template <class Call>
auto with_parts(const ParametersHandle& parameters, OptimiserObject* optimiser, AveragesObject* averages,
                const std::string& name, const Call& call) {
  if ((optimiser != nullptr && optimiser->set != parameters.shared) ||
      (averages != nullptr && averages->set != parameters.shared)) {
    throw MisuseError("an optimiser or averages of other parameters; expected those of the set");
  }
  const InUse use(&parameters.shared->parameters.device());
  const Turn turn(*parameters.shared);
  const WithoutGil without_gil;
  return call(parts_of(parameters, optimiser, averages, name));
}

void write(WriterObject& to, std::uint64_t step, const Snapshot& snapshot, const nb::dict& record) {
  const Record more = record_of(record, 0);
  const WithoutGil without_gil;
  CheckpointContents contents = snapshot.contents(step);
  for (const auto& [name, value] : more.values()) {
    if (contents.document.contains(name)) {
      throw MisuseError("record '" + name + "' is that of the optimiser; expected another name");
    }
    contents.document.set(name, value);
  }
  const std::lock_guard lock(to.mutex);
  to.writer.write(contents);
}

nb::object tensor(const SavedCheckpoint& of, const std::string& name) {
  const StoredTensor& stored = of.tensors.at(name);
  std::vector<std::size_t> shape(stored.shape.begin(), stored.shape.end());
  const auto read = [&]<class T>(T) {
    std::size_t elements = 1;
    for (const std::uint64_t size : stored.shape) elements *= size;
    auto* const kept = new std::vector<T>(elements);
    const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    {
      const WithoutGil without_gil;
      of.tensors.read(name, stored.shape, std::span<T>(*kept));
    }
    return nb::cast(nb::ndarray<nb::numpy, T>(kept->data(), shape.size(), shape.data(), owner));
  };
  switch (stored.type) {
    case ElementType::f32:
      return read(float());
    case ElementType::i32:
      return read(std::int32_t());
    case ElementType::i64:
      return read(std::int64_t());
    case ElementType::u64:
      return read(std::uint64_t());
  }
  return nb::none();
}

/// Checks that a folder to read exists: throws FileError if not.
const CheckpointFolder& existing(const CheckpointFolder& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder.path(), error)) {
    throw FileError(folder.path().string() + ": no such folder; expected one that a CheckpointWriter has made");
  }
  return folder;
}

using Names = std::vector<std::string>;

void bind_saved(nb::module_& m) {
  using nb::literals::operator""_a;
  nb::class_<SavedCheckpoint>(m, "SavedCheckpoint",
                              "A checkpoint that is open for reading; its checksums were verified.")
      .def_ro("step", &SavedCheckpoint::step)
      .def("__repr__",
           [](const SavedCheckpoint& of) {
             return "<windrow.SavedCheckpoint of step " + std::to_string(of.step) + ", " +
                    counted(of.tensors.tensors().size(), "tensor", "tensors") + ">";
           })
      .def_prop_ro(
          "record", [](const SavedCheckpoint& of) { return dict_of(of.document); },
          nb::for_getter(nb::sig("def record(self) -> dict[str, Any]")), "The records of the checkpoint, as a dict.")
      .def_prop_ro(
          "names",
          [](const SavedCheckpoint& of) {
            Names names;
            for (const StoredTensor& one : of.tensors.tensors()) names.push_back(one.name);
            return names;
          },
          "The names of its tensors.")
      .def("tensor", &tensor, "name"_a, nb::sig("def tensor(self, name: str) -> NDArray[Any]"),
           "Reads a tensor. Raises FileError if there is none of that name.")
      .def(
          "restore",
          [](const SavedCheckpoint& of, const ParametersHandle& parameters, OptimiserObject* optimiser,
             AveragesObject* averages, const std::string& name) {
            with_parts(parameters, optimiser, averages, name, [&](const TrainingParts& parts) { restore(of, parts); });
          },
          "parameters"_a, "optimiser"_a = nb::none(), "averages"_a = nb::none(), nb::kw_only(), "name"_a = "",
          "Restores all of these, and freezes the parameters that were frozen. Call it before the first step. `name` "
          "is that of the set in the checkpoint. Raises FileError if a parameter is missing or has another shape, if "
          "the checkpoint has more parameters, and for another optimiser.")
      .def(
          "restore_for_use",
          [](const SavedCheckpoint& of, const ParametersHandle& parameters, const std::string& name) {
            with_parts(parameters, nullptr, nullptr, name,
                       [&](const TrainingParts& parts) { restore_for_use(of, parts.parameters, name); });
          },
          "parameters"_a, nb::kw_only(), "name"_a = "",
          "Sets the parameters for inference: to the averages if the checkpoint has some.");
}

}  // namespace

void bind_checkpoints(nb::module_& m) {
  using nb::literals::operator""_a;
  bind_saved(m);
  nb::class_<Snapshot>(m, "Snapshot",
                       "A copy of parameters, and of their optimiser and averages, in the host's memory. Waits for the "
                       "steps pushed so far; raises OpError if one failed.")
      .def(
          "__init__",
          [](Snapshot* self, const ParametersHandle& parameters, OptimiserObject* optimiser, AveragesObject* averages,
             const std::string& name) {
            with_parts(parameters, optimiser, averages, name,
                       [&](const TrainingParts& parts) { new (self) Snapshot(parts); });
          },
          "parameters"_a, "optimiser"_a = nb::none(), "averages"_a = nb::none(), nb::kw_only(), "name"_a = "")
      .def(
          "add",
          [](Snapshot& self, const ParametersHandle& parameters, OptimiserObject* optimiser, AveragesObject* averages,
             const std::string& name) {
            with_parts(parameters, optimiser, averages, name, [&](const TrainingParts& parts) { self.add(parts); });
          },
          "parameters"_a, "optimiser"_a = nb::none(), "averages"_a = nb::none(), nb::kw_only(), "name"_a,
          "Adds another set. Each set of a checkpoint of several has a name.")
      .def("__repr__", [](const Snapshot& of) {
        return "<windrow.Snapshot, " + counted(of.contents(0).tensors.size(), "tensor", "tensors") + ">";
      });
  nb::class_<WriterObject>(
      m, "CheckpointWriter",
      "Writes checkpoints into a folder, which it creates, and locks against other writers. `keep`: "
      "the number of checkpoints to keep. A folder that has checkpoints is refused, unless "
      "`resume`. Raises FileError if the folder cannot be used.")
      .def(
          "__init__",
          [](WriterObject* self, const std::string& path, std::size_t keep, bool resume) {
            const WithoutGil without_gil;
            new (self) WriterObject{CheckpointWriter(path, {.keep = keep, .resume = resume}), {}, path};
          },
          "path"_a, nb::kw_only(), "keep"_a = 3, "resume"_a = false)
      .def("__repr__", [](const WriterObject& of) { return "<windrow.CheckpointWriter '" + of.path + "'>"; })
      .def("_write", &write, "step"_a, "snapshot"_a, "record"_a,
           nb::sig("def _write(self, step: int, snapshot: Snapshot, record: dict[str, Any]) -> None"));
  nb::class_<CheckpointFolder>(m, "CheckpointFolder", "The checkpoints in a folder, for reading.")
      .def(
          "__init__", [](CheckpointFolder* self, const std::string& path) { new (self) CheckpointFolder(path); },
          "path"_a)
      .def(
          "steps", [](const CheckpointFolder& of) { return existing(of).steps(); },
          "The steps that have a checkpoint, in ascending order.")
      .def(
          "load",
          [](const CheckpointFolder& of, std::uint64_t step) {
            const WithoutGil without_gil;
            return existing(of).load(step);
          },
          "step"_a, "Opens a checkpoint and verifies it. Raises FileError if it is missing or damaged.")
      .def(
          "newest",
          [](const CheckpointFolder& of) {
            std::optional<NewestCheckpoint> newest;
            {
              const WithoutGil without_gil;
              newest = existing(of).newest();
            }
            return nb::make_tuple(std::move(newest->checkpoint), newest->skipped);
          },
          nb::sig("def newest(self) -> tuple[SavedCheckpoint | None, list[str]]"),
          "The checkpoint with the highest step that is not damaged, or None, and a line for each newer one that "
          "cannot be loaded.");
}

}  // namespace windrow::python
