// Gradients that are combined with those of other minibatches, and put back.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "parameters/gradient.h"
#include "parameters/parameter_store.h"
#include "windrow/ops/static.h"

namespace windrow {
namespace {

std::string text(Index rows, Index width) { return std::to_string(rows) + " x " + std::to_string(width); }

/// Whether the tensor is the parameter's own memory for its gradient.
bool owns(const ParameterStore::Entry& entry, const Tensor& gradient) {
  return entry.dense && entry.dense->same_view(gradient);
}

/// Copies the gradient into the parameter's own memory.
void take_over(ParameterStore::Entry& entry, const Device& device, std::source_location from) {
  if (!entry.dense) entry.dense = Tensor(device, entry.value.rows(), entry.value.width(), OpName("gradient"));
  apply(device, op::stop_gradient, {.in = {*entry.gradient.all}}, *entry.dense, from);
  entry.gradient.all = *entry.dense;
}

}  // namespace

NonFinite Parameters::non_finite() const { return store_->skips_non_finite() ? NonFinite::skip : NonFinite::fail; }

bool Parameters::has_dense_gradient(const Parameter& parameter) const {
  return store_->entry(parameter).gradient.all.has_value();
}

std::vector<std::int32_t> Parameters::looked_up_rows(const Parameter& parameter) const {
  std::vector<std::int32_t> rows;
  for (const LookedUp& lookup : store_->entry(parameter).lookups) {
    std::ranges::copy_if(lookup.row_of, std::back_inserter(rows), [](std::int32_t row) { return row >= 0; });
  }
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

Tensor Parameters::gradient_of_rows(const Parameter& parameter, const std::vector<std::int32_t>& rows,
                                    std::source_location from) const {
  const ParameterStore::Entry& entry = store_->entry(parameter);
  const auto refuse = [&](const std::string& why) {
    throw MisuseError("gradient_of_rows: parameter '" + entry.name + "' " + why);
  };
  if (entry.gradient.all) refuse("has a dense gradient; expected one of lookups");
  if (std::ranges::adjacent_find(rows, std::greater_equal<>()) != rows.end()) refuse("got rows that do not ascend");
  std::vector<LookedUp> lookups = entry.lookups;
  for (LookedUp& lookup : lookups) {
    lookup.segments.clear();
    for (std::int32_t& row : lookup.row_of) {
      if (row < 0) continue;
      const auto place = std::ranges::lower_bound(rows, row);
      if (place == rows.end() || *place != row)
        refuse("looked up row " + std::to_string(row) + ", which is not listed");
      row = static_cast<std::int32_t>(place - rows.begin());
    }
  }
  const Type shape{Rows::count(static_cast<Index>(rows.size())), entry.value.width()};
  return dense(store_->device(), std::nullopt, lookups, shape, from);
}

void Parameters::set_gradient(const Parameter& parameter, Tensor all) {
  ParameterStore::Entry& entry = store_->own(parameter);
  if (all.rows() != entry.value.rows() || all.width() != entry.value.width()) {
    throw MisuseError("set_gradient: " + text(all.rows(), all.width()) + " for parameter '" + entry.name +
                      "'; expected " + text(entry.value.rows(), entry.value.width()));
  }
  entry.lookups.clear();
  entry.gradient = {.all = std::move(all)};
}

std::uint64_t Parameters::begin_minibatch(std::source_location from) {
  refuse_in_recording("Parameters::begin_minibatch()");
  store_->begin_gradients();
  for (std::size_t k = 0; k < size(); ++k) {
    ParameterStore::Entry& entry = store_->entry(k);
    if (entry.gradient.all && !owns(entry, *entry.gradient.all)) take_over(entry, store_->device(), from);
  }
  return store_->next_minibatch();
}

void Parameters::add_gradient(const Parameter& parameter, const Tensor& all, std::source_location from) {
  ParameterStore::Entry& entry = store_->own(parameter);
  if (all.rows() != entry.value.rows() || all.width() != entry.value.width()) {
    throw MisuseError("add_gradient: " + text(all.rows(), all.width()) + " for parameter '" + entry.name +
                      "'; expected " + text(entry.value.rows(), entry.value.width()));
  }
  if (!entry.gradient.all) {
    entry.gradient.all = all;
    return;
  }
  if (!owns(entry, *entry.gradient.all)) take_over(entry, store_->device(), from);
  apply(store_->device(), op::stop_gradient, {.in = {all}, .write = Write::add}, *entry.gradient.all, from);
}

void Parameters::set_gradient(const Parameter& parameter, std::vector<std::int32_t> rows, Tensor of_rows,
                              std::source_location from) {
  ParameterStore::Entry& entry = store_->own(parameter);
  if (of_rows.rows() != static_cast<Index>(rows.size()) || of_rows.width() != entry.value.width()) {
    throw MisuseError("set_gradient: " + text(of_rows.rows(), of_rows.width()) + " for " + std::to_string(rows.size()) +
                      " rows of parameter '" + entry.name + "'; expected " +
                      text(static_cast<Index>(rows.size()), entry.value.width()));
  }
  for (const std::int32_t row : rows) {
    if (row < 0 || row >= entry.value.rows()) {
      throw MisuseError("set_gradient: row " + std::to_string(row) + " of parameter '" + entry.name + "', which has " +
                        std::to_string(entry.value.rows()) + " rows");
    }
  }
  entry.gradient = {};
  entry.depends = true;
  entry.lookups = {{std::move(rows), std::move(of_rows), from}};
}

}  // namespace windrow
