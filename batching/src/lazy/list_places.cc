#include "lazy/list_places.h"

#include <algorithm>

namespace windrow::lazy {

bool ListPlaces::reads(const Place& place, const Result& result) {
  const auto [decided, is_new] = decided_.try_emplace({place, result}, false);
  if (!is_new) return decided->second;
  const auto [of_place, place_is_new] = of_place_.try_emplace(place, groups_.size());
  if (place_is_new) groups_.emplace_back();
  const auto of_result = of_result_.find(result);
  if (of_result != of_result_.end()) return decided->second = unite(of_place->second, of_result->second);
  Group& group = groups_[of_place->second];
  if (group.try_emplace(result.cell, result.number).first->second != result.number) return false;
  of_result_.emplace(result, of_place->second);
  return decided->second = true;
}

/// Returns false, and changes nothing, if both have different results of one cell.
bool ListPlaces::unite(std::size_t keep, std::size_t drop) {
  if (keep == drop) return true;
  for (const auto& [cell, result] : groups_[drop]) {
    const auto other = groups_[keep].find(cell);
    if (other != groups_[keep].end() && other->second != result) return false;
  }
  groups_[keep].merge(groups_[drop]);
  groups_[drop].clear();
  for (auto& [place, group] : of_place_) group = group == drop ? keep : group;
  for (auto& [result, group] : of_result_) group = group == drop ? keep : group;
  return true;
}

std::optional<ListPlaces::Result> ListPlaces::group_of(const Result& result) const {
  const auto known = of_result_.find(result);
  if (known == of_result_.end()) return std::nullopt;
  const auto& [cell, number] = *groups_[known->second].begin();
  return Result{cell, number};
}

}  // namespace windrow::lazy
