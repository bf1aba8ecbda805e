// Calls of cells, as a record takes them.
#pragma once

#include <compare>
#include <map>

#include "lazy/cells.h"
#include "lazy/record.h"

namespace windrow::lazy {

/// Which results of cells are read in place by the lists of cells.
///
/// The elements of a list are gathered along edges, so what one place in the elements reads is one state of vertices.
/// What two places read makes one state of what both read. Two results of one cell cannot be one state: if a place
/// would make them so, it reads a copy instead. A value that is copied once is always copied there.
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

/// The cells of a record, and the copies of values that their lists hold.
class Record::Calls {
 public:
  explicit Calls(Record& record) : record_(record) {}

  /// The cell that a function of lists calls, for elements of these widths.
  Cell& own_cell(OwnCell which, const std::vector<Index>& each);
  LazyCell make_cell(std::string name, std::function<void(CellBody&)> body);
  /// Records a call of a cell.
  void call(Cell& cell, std::span<const OperandRef> operands, std::span<const LazyIndex> indices,
            std::span<const LazyExpr> list, std::span<LazyExpr> results, std::source_location from);
  /// The result that a list of the same flush could read in place; nothing for a value that lists copy.
  std::optional<ListPlaces::Result> listed(NodeId id) const;
  const ListPlaces& list_places() const { return list_places_; }
  void forget_copies() { copies_.clear(); }
  void forget_keys() {
    ++keys_version_;
    list_places_ = {};
  }
  void forget_cells() {
    cells_.clear();
    own_cells_.clear();
  }

 private:
  const std::vector<std::uint32_t>& keys_of(Cell& cell, std::uint32_t missing);
  const std::vector<std::uint32_t>& add_keys_of(Cell& cell, std::uint32_t missing);
  NodeId checked_operand(const Cell& cell, const LazyExpr& operand, Index expected) const;
  void check_index(const Cell& cell, const Cell::IndexOperand& expected, const LazyIndex& index) const;
  [[noreturn]] void refuse_index(const Cell& cell, const Cell::IndexOperand& expected, const LazyIndex& index) const;
  std::span<const NodeId> with_list(const Cell& cell, std::span<const NodeId> operands, std::span<const LazyExpr> list,
                                    std::source_location from);
  bool is_copied(const Cell& cell, NodeId id, std::size_t place);
  NodeId copy(const Cell& cell, NodeId id, std::size_t place, std::source_location from);

  Record& record_;
  std::uint32_t keys_version_ = 0;
  std::vector<std::shared_ptr<Cell>> cells_;
  std::vector<std::unique_ptr<Cell>> own_cells_;
  ListPlaces list_places_;
  std::map<std::pair<NodeId, std::uint32_t>, NodeId> copies_;  // by value and key of the copy, which is pending
  std::vector<NodeId> scratch_list_;
};

}  // namespace windrow::lazy
