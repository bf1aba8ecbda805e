// Which results of cells are read in place by the lists of cells.
//
// The elements of a list are gathered along edges, so what one place in the elements reads is one state of vertices.
// What two places read makes one state of what both read. Two results of one cell cannot be one state: if a place would
// make them so, it reads a copy instead. A value that is copied once is always copied there.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace windrow::lazy {

class ListPlaces {
 public:
  /// A place in the elements of the lists of a cell, by its number.
  struct Place {
    std::int32_t cell;
    std::int32_t number;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  /// A result of a cell, by the cell's number; inputs count as a result of cell 0.
  struct Result {
    std::int32_t cell;
    std::int32_t number;
    friend auto operator<=>(const Result&, const Result&) = default;
  };

  /// Whether the place reads the result in place: decided at the first call.
  bool reads(const Place& place, const Result& result);
  /// The group of the result, which is named by the first result in it; nothing if no list reads the result in place.
  std::optional<Result> group_of(const Result& result) const;

 private:
  using Group = std::map<std::int32_t, std::int32_t>;  // by cell: its result

  bool unite(std::size_t keep, std::size_t drop);

  // Invariant: what one place reads in place, and all places that read one result, are in one group.
  std::map<std::pair<Place, Result>, bool> decided_;
  std::map<Place, std::size_t> of_place_;    // groups
  std::map<Result, std::size_t> of_result_;  // groups
  std::vector<Group> groups_;
};

}  // namespace windrow::lazy
