// Keys: operations of several instances can be computed in one batch if their keys are equal.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "windrow/ops/operator.h"
#include "windrow/ops/operators.h"

namespace windrow::lazy {

struct Cell;

/// The key of an operation. Operations of several instances with the same key can be batched. The factor of a scale and
/// the seed of a dropout are inputs of the node and not part of the key. So programs may scale by values that they
/// compute at run time, and use another seed in each step. The seed follows the node's indices, as two further indices.
struct Key {
  const Operator* op = nullptr;  ///< null for an input
  Attributes attributes = {};
  /// By operand: the number of a parameter or of a function of parameters (Weights), or `expression`, or `missing` for
  /// a cell. Parameters of a cell follow.
  std::vector<std::int32_t> operands = {};
  static constexpr std::int32_t expression = -1, missing = -2;
  std::vector<Index> widths = {};        ///< of the operands that are expressions
  std::vector<Index> index_widths = {};  ///< of index operands
  const Cell* cell = nullptr;            ///< of a result of a cell; the elements of its list are not part of the key
  bool has_factor() const { return op == &op::scale; }
  /// The number of a result of a cell among those of its call; -1 for other operations.
  std::int32_t result() const { return cell == nullptr ? -1 : static_cast<std::int32_t>(attributes.sizes[0]); }
  bool has_seed() const { return op == &op::dropout && index_widths.front() == 5; }
  friend bool operator==(const Key& a, const Key& b) {
    return a.op == b.op && a.cell == b.cell && same(a.operands, b.operands) && same(a.widths, b.widths) &&
           same(a.index_widths, b.index_widths) && same(a.attributes, b.attributes);
  }
  enum class But { nothing, values };
  /// Compares addresses first, since equal literals usually have the same address.
  static bool same(const Attributes& a, const Attributes& b, But but = But::nothing) {
    const bool made_alike = a.made_by.data() == b.made_by.data() && a.made_by.size() == b.made_by.size();
    return (made_alike || a.made_by == b.made_by) && a.rows == b.rows && a.sizes == b.sizes &&
           (but == But::values || Attributes::same_bits(a.values, b.values));
  }

 private:
  /// For short lists, for which a call of memcmp takes longer.
  template <class T>
  static bool same(const std::vector<T>& a, const std::vector<T>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i] != b[i]) return false;
    }
    return true;
  }
};

/// The sum of two or more expressions of one shape. Only recorded: the vertex function adds the operands by op::add,
/// which its program merges into one sum.
extern const Operator sum_of_many;

/// Properties that follow from a key.
struct Inferred {
  Index width;
  /// By index operand; empty if there is none, or if only the kernels know the ranges.
  std::vector<IndexRange> ranges = {};
};

/// Numbered keys. Programs usually record the same sequences again, so a key is first searched among those that
/// followed the previous key before, then among those with its operator.
class Keys {
 public:
  /// The number of the key for which `is` returns true, if that key followed the last key at an earlier time; null
  /// otherwise.
  template <class Is>
  const std::uint32_t* following(Is is) {
    if (last_ >= all_.size()) return nullptr;
    auto& [latest, earlier] = all_[last_].next;
    if (!is(all_[latest].key)) {
      if (!is(all_[earlier].key)) return nullptr;
      std::swap(latest, earlier);
    }
    last_ = latest;
    return &last_;
  }
  /// The number of the key. Adds a new key with the properties that `infer` returns.
  template <class Infer>
  std::uint32_t number(const Key& key, Infer infer) {
    const std::uint32_t before = last_;
    last_ = find_or_add(key, infer);
    if (before < all_.size()) all_[before].next = {last_, all_[before].next[0]};
    return last_;
  }
  const Key& operator[](std::uint32_t number) const { return all_[number].key; }
  Index width(std::uint32_t number) const { return all_[number].inferred.width; }
  const std::vector<IndexRange>& ranges(std::uint32_t number) const { return all_[number].inferred.ranges; }
  std::size_t size() const { return all_.size(); }

 private:
  template <class Infer>
  std::uint32_t find_or_add(const Key& key, Infer infer) {
    std::vector<std::uint32_t>& alike = by_operator_[key.op];
    for (const std::uint32_t known : alike) {
      if (all_[known].key == key) return known;
    }
    all_.push_back({key, infer()});
    alike.push_back(static_cast<std::uint32_t>(all_.size() - 1));
    return alike.back();
  }

  struct Entry {
    Key key;
    Inferred inferred;
    std::array<std::uint32_t, 2> next = {};  // the key that followed it last, and an earlier one
  };
  std::vector<Entry> all_;
  std::uint32_t last_ = UINT32_MAX;  // the number returned last
  std::unordered_map<const Operator*, std::vector<std::uint32_t>> by_operator_;
};

}  // namespace windrow::lazy
