#include "parameters/parameter_stores.h"

namespace windrow {

void ParameterStores::refuse(const ir::ParameterName& parameter) const {
  std::string expected;
  for (const auto& set : sets_) expected += (expected.empty() ? "'" : ", '") + set->name() + "'";
  const bool named = sets_.size() > 1 || !sets_.front()->name().empty();
  throw MisuseError("parameter '" + *parameter.name + "' of another set; expected one of " +
                    (named ? "set " + expected : "this"));
}

std::uint64_t ParameterStores::next_minibatch() {
  for (std::size_t s = 1; s < sets_.size(); ++s) sets_[s]->next_minibatch();
  return sets_.front()->next_minibatch();
}

LayoutOptions::Dropout ParameterStores::next_dropout(std::size_t samples) {
  std::vector<std::int32_t> numbers = sets_.front()->samples();
  if (!numbers.empty() && numbers.size() != samples) {
    throw MisuseError("a minibatch of " + std::to_string(samples) + " graphs; expected " +
                      std::to_string(numbers.size()) + ", as many as Parameters::number_samples() got numbers");
  }
  const std::uint64_t minibatch = next_minibatch();
  const bool numbered = !numbers.empty();
  return {sets_.front()->seed(), numbered ? minibatch : draw(minibatch), std::move(numbers)};
}

std::vector<Access> ParameterStores::kept_gradients() const {
  std::vector<Access> reads;
  for (const auto& set : sets_) set->add_kept_gradients(reads);
  return reads;
}

void ParameterStores::begin_gradients() {
  for (const auto& set : sets_) set->begin_gradients();
}

void ParameterStores::add_source(const std::shared_ptr<const MinibatchEnd>& minibatch) {
  for (const auto& set : sets_) set->add_source(minibatch);
}

namespace {

/// Throws unless two sets can be used together.
void check_together(const ParameterStore& one, const ParameterStore& other) {
  const auto refuse = [](const std::string& what) { throw MisuseError("ParameterSets: " + what); };
  if (one.id() == other.id()) refuse("set '" + one.name() + "' is given twice; expected once");
  if (one.name() == other.name()) {
    refuse("two sets are named '" + one.name() + "'; expected different names, see ParametersOptions::name");
  }
  if (one.skips_non_finite() != other.skips_non_finite()) {
    refuse("sets '" + one.name() + "' and '" + other.name() + "' differ in non_finite; expected the same");
  }
}

}  // namespace

ParameterSets::ParameterSets(Parameters& set) : sets_({set.store_}) {}

ParameterSets::ParameterSets(std::span<const std::reference_wrapper<Parameters>> sets) {
  if (sets.empty()) throw MisuseError("ParameterSets: no sets; expected one or more");
  for (const Parameters& set : sets) {
    for (const auto& before : sets_) check_together(*before, *set.store_);
    sets_.push_back(set.store_);
  }
}

}  // namespace windrow
