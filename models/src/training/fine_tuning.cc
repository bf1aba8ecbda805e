#include "windrow/models/fine_tuning.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace windrow {
namespace {

constexpr std::size_t nowhere = static_cast<std::size_t>(-1);
/// Of each row or column, its number in the other model, or `nowhere`.
using Origins = std::vector<std::size_t>;

/// By name, or in order without a name.
Origins origins_of(const std::vector<std::string>& names, const std::vector<std::string>& others) {
  std::unordered_map<std::string_view, std::size_t> numbers;
  std::vector<std::size_t> unnamed;
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (others[i].empty()) {
      unnamed.push_back(i);
    } else {
      numbers.emplace(others[i], i);
    }
  }
  Origins origins;
  std::size_t next = 0;
  for (const std::string& name : names) {
    if (name.empty()) {
      origins.push_back(next < unnamed.size() ? unnamed[next] : nowhere);
      ++next;
    } else {
      const auto found = numbers.find(name);
      origins.push_back(found == numbers.end() ? nowhere : found->second);
    }
  }
  return origins;
}

const NamedAxis* find_axis(const Workload& workload, const std::string& parameter, NamedAxis::Of of) {
  const auto& axes = workload.named_axes;
  const auto found = std::ranges::find_if(axes, [&](const NamedAxis& axis) {
    return axis.of == of && workload.parameters->name(axis.parameter) == parameter;
  });
  return found == axes.end() ? nullptr : &*found;
}

/// What a parameter takes from that of the same name.
class Taking {
 public:
  Taking(const Workload& to, const Workload& from, const std::string& name)
      : name_(name),
        from_(from.parameters->value(from.parameters->find(name))),
        to_(to.parameters->value(to.parameters->find(name))) {
    rows_ = origins(to, from, NamedAxis::Of::rows);
    columns_ = origins(to, from, NamedAxis::Of::columns);
  }

  void take() {
    const std::vector<float> taken = from_.get();
    std::vector<float> values = to_.get();
    const auto from_width = static_cast<std::size_t>(from_.width());
    auto value = values.begin();
    for (const std::size_t row : rows_) {
      for (const std::size_t column : columns_) {
        if (row != nowhere && column != nowhere) *value = taken[row * from_width + column];
        ++value;
      }
    }
    to_.set(values);
  }

 private:
  Origins origins(const Workload& to, const Workload& from, NamedAxis::Of of) const {
    const bool rows = of == NamedAxis::Of::rows;
    const NamedAxis *const axis = find_axis(to, name_, of), *const other = find_axis(from, name_, of);
    if (axis != nullptr && other != nullptr) return origins_of(axis->names, other->names);
    const Index size = rows ? to_.rows() : to_.width(), other_size = rows ? from_.rows() : from_.width();
    if (size != other_size) {
      throw MisuseError("parameter '" + name_ + "' has " + std::to_string(other_size) + (rows ? " rows" : " columns") +
                        "; expected " + std::to_string(size));
    }
    Origins all(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }

  const std::string name_;
  const Tensor from_;
  Tensor to_;
  Origins rows_, columns_;
};

std::vector<std::string> parameter_names(const Workload& workload) {
  const Parameters& parameters = *workload.parameters;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < parameters.size(); ++i) names.push_back(parameters.name(parameters[i]));
  return names;
}

void require_same_parameters(const Workload& to, const Workload& from) {
  if (to.kind != from.kind) throw MisuseError("a model " + from.kind->name + "; expected " + to.kind->name);
  const std::vector<std::string> names = parameter_names(to), others = parameter_names(from);
  for (const std::string& name : names) {
    if (std::ranges::find(others, name) == others.end()) throw MisuseError("no parameter '" + name + "'; expected one");
  }
  for (const std::string& name : others) {
    if (std::ranges::find(names, name) == names.end()) throw MisuseError("a parameter '" + name + "'; expected none");
  }
}

std::vector<TakenWeights::Names> found_names(const Workload& to, const Workload& from) {
  std::vector<TakenWeights::Names> all;
  for (const NamedAxis& axis : to.named_axes) {
    if (std::ranges::find(all, axis.what, &TakenWeights::Names::what) != all.end()) continue;
    const NamedAxis* const other = find_axis(from, to.parameters->name(axis.parameter), axis.of);
    const Origins origins = origins_of(axis.names, other == nullptr ? std::vector<std::string>() : other->names);
    TakenWeights::Names& names = all.emplace_back();
    names.what = axis.what;
    for (std::size_t i = 0; i < origins.size(); ++i) {
      if (axis.names[i].empty()) continue;
      ++names.of;
      names.found += origins[i] != nowhere;
    }
  }
  std::ranges::stable_partition(all, [](const TakenWeights::Names& names) { return names.what == "words"; });
  return all;
}

}  // namespace

TakenWeights take_weights(Workload& to, const Workload& from) {
  require_same_parameters(to, from);
  std::vector<Taking> all;
  for (const std::string& name : parameter_names(to)) all.emplace_back(to, from, name);
  for (Taking& one : all) one.take();
  return {.parameters = all.size(), .names = found_names(to, from)};
}

}  // namespace windrow
