#include "lazy/versions.h"

#include <algorithm>

#include "run/owned_var.h"

namespace windrow::lazy {

Versions::Versions(const Device& device, const ParameterStores& parameters)
    : device_(device), parameters_(parameters), notes_(owned_var(device.engine, "versions")) {}

/// The op runs even if parameters are poisoned: that failure is reported when a value is requested.
std::shared_ptr<const Versions::Note> Versions::note(std::vector<std::int32_t> parameters, std::source_location from) {
  auto note = std::make_shared<Note>(Note{std::move(parameters), from});
  std::vector<Access> accesses = {mutate(notes_.var())};
  std::vector<Tensor> values;  // kept, so that their variables are not retired before the op has run
  for (std::int32_t number : note->parameters) {
    const ParameterStore::Entry& entry = parameters_.entry(static_cast<std::size_t>(number));
    values.push_back(entry.value);
    note->frozen.push_back(entry.frozen ? 1 : 0);
    accesses.push_back(read(values.back().var()));
  }
  device_.engine->push(
      [engine = device_.engine, note, values = std::move(values)] {
        for (std::size_t i = 0; i < values.size(); ++i) note->counts[i] = engine->version(values[i].var());
      },
      accesses, {.name = "versions", .run_always = true, .pushed_at = from});
  return note;
}

void Versions::wait(std::source_location from) { device_.engine->wait(notes_.var(), from); }

std::vector<Versions::Change> Versions::changes(const Note& earlier, const Note& later) {
  std::vector<Change> changes;
  for (std::size_t i = 0; i < earlier.parameters.size(); ++i) {
    const auto found = std::ranges::lower_bound(later.parameters, earlier.parameters[i]);
    const auto place = static_cast<std::size_t>(found - later.parameters.begin());
    const bool of_value = later.counts.at(place) != earlier.counts[i];
    if (of_value || later.frozen.at(place) != earlier.frozen[i]) changes.push_back({earlier.parameters[i], of_value});
  }
  return changes;
}

}  // namespace windrow::lazy
