// The sets of parameters that a runner or a lazy graph computes with.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "parameters/parameter_store.h"
#include "windrow/batching/internal/ir.h"
#include "windrow/batching/internal/layout.h"

namespace windrow {

/// Shared by a lazy graph and its runners. Here the parameters of all sets have common numbers, which do not change
/// when parameters are added. With one set these are the set's numbers.
class ParameterStores {
 public:
  explicit ParameterStores(std::vector<std::shared_ptr<ParameterStore>> sets) : sets_(std::move(sets)) {}

  /// Throw MisuseError for a parameter of another set.
  std::int32_t number_of(const Parameter& parameter) const {
    const auto number = find(ParameterStore::set_of(parameter), ParameterStore::place_of(parameter));
    if (number < 0) refuse(ParameterStore::name_of(parameter));
    return number;
  }
  std::int32_t number_of(const ir::ParameterName& parameter) const {
    const auto number = find(parameter.set, parameter.number);
    if (number < 0) refuse(parameter);
    return number;
  }
  Parameter operator[](std::size_t number) const { return (*sets_[number % sets_.size()])[number / sets_.size()]; }
  ParameterStore::Entry& entry(std::size_t number) const {
    return sets_[number % sets_.size()]->entry(number / sets_.size());
  }
  /// The name of a parameter for errors: after that of its set, if the set has one.
  const std::string& name(std::size_t number) const { return *entry(number).full_name; }

  const std::vector<std::shared_ptr<ParameterStore>>& sets() const { return sets_; }
  // Of dropout: the first set decides.
  std::uint64_t seed() const { return sets_.front()->seed(); }
  std::uint64_t minibatches() const { return sets_.front()->minibatches(); }
  std::uint64_t next_minibatch();
  std::uint64_t draw(std::uint64_t minibatch) const { return sets_.front()->draw(minibatch); }
  /// The dropout options of the next minibatch of a runner; counts it. Throws MisuseError if the samples were numbered,
  /// but there are more or fewer numbers.
  LayoutOptions::Dropout next_dropout(std::size_t samples);
  /// The same of a later minibatch, behind `before` others, if its samples have no numbers; counts nothing.
  LayoutOptions::Dropout later_dropout(std::uint64_t before) const {
    return {.seed = seed(), .minibatch = draw(minibatches() + before)};
  }
  bool skips_non_finite() const { return sets_.front()->skips_non_finite(); }
  bool of_a_group() const { return std::ranges::any_of(sets_, &ParameterStore::of_a_group); }
  /// Reads of the gradients to which the next minibatch adds.
  std::vector<Access> kept_gradients() const;
  void begin_gradients();
  void add_source(const std::shared_ptr<const MinibatchEnd>& minibatch);

 private:
  /// -1 for a parameter of another set.
  std::int32_t find(std::uint64_t set, std::size_t place) const {
    for (std::size_t s = 0; s < sets_.size(); ++s) {
      if (sets_[s]->id() == set && place < sets_[s]->size()) return static_cast<std::int32_t>(place * sets_.size() + s);
    }
    return -1;
  }
  [[noreturn]] void refuse(const ir::ParameterName& parameter) const;

  const std::vector<std::shared_ptr<ParameterStore>> sets_;
};

}  // namespace windrow
