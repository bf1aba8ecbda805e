// The nodes of a record: one for each expression in the order of recording, each after its operands.
#pragma once

#include <algorithm>
#include <memory>
#include <source_location>
#include <span>
#include <type_traits>
#include <vector>

#include "lazy/keys.h"

namespace windrow::lazy {

using NodeId = std::int32_t;
inline std::size_t at(std::int32_t number) { return static_cast<std::size_t>(number); }

/// Reserves memory for `more` elements, so that adding them cannot throw. Growing is rare, so it is not inlined.
template <class T>
[[gnu::noinline]] void grow(std::vector<T>& list, std::size_t more) {
  list.reserve(std::max(2 * list.size(), list.size() + more));
}
template <class T>
void make_room(std::vector<T>& list, std::size_t more) {
  if (list.capacity() - list.size() < more) [[unlikely]]
    grow(list, more);
}

/// A list whose first elements can be forgotten; the others keep their numbers. Memory is reserved before elements are
/// added, so adding them cannot throw.
template <class T>
class Tail {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  std::int32_t first() const { return first_; }
  std::int32_t end() const { return first_ + size_; }
  bool has(std::int32_t number) const { return number >= first_; }
  T& operator[](std::int32_t number) { return kept_[at(number - first_)]; }
  const T& operator[](std::int32_t number) const { return kept_[at(number - first_)]; }
  T& back() { return kept_[at(size_ - 1)]; }
  const T& back() const { return kept_[at(size_ - 1)]; }
  /// Elements from `number` on, up to the end.
  const T* from(std::int32_t number) const { return kept_.get() + (number - first_); }
  void make_room(std::size_t more) {
    if (capacity_ - at(size_) < more) [[unlikely]]
      grow(more);
  }
  void push_back(const T& element) { kept_[at(size_++)] = element; }
  /// The memory for the next elements, which was reserved; and the call that adds them.
  T* room() { return kept_.get() + size_; }
  void add_from_room(std::size_t more) { size_ += static_cast<std::int32_t>(more); }
  template <class Iterator>
  void append(Iterator begin, Iterator end) {
    for (; begin != end; ++begin) push_back(*begin);
  }
  void clear() { first_ = size_ = 0; }
  void forget_from(std::int32_t number) { size_ = number - first_; }
  void forget_before(std::int32_t number) {
    std::copy(from(number), from(end()), kept_.get());
    size_ = end() - number;
    first_ = number;
  }

 private:
  [[gnu::noinline]] void grow(std::size_t more) {
    const std::size_t capacity = std::max(2 * at(size_), at(size_) + more);
    auto larger = std::make_unique_for_overwrite<T[]>(capacity);
    std::copy_n(kept_.get(), size_, larger.get());
    kept_ = std::move(larger);
    capacity_ = capacity;
  }

  std::unique_ptr<T[]> kept_;
  std::size_t capacity_ = 0;
  std::int32_t size_ = 0, first_ = 0;
};

class Nodes {
 public:
  struct Node {
    std::uint32_t key;
    std::int32_t operands;  ///< position of its operands in operands_
    std::int32_t data;      ///< position of its indices in all_indices, or of its values or factor in all_values
    /// Stays set after a flush, so later nodes are cut into runs in the same way whether this one is computed or not.
    std::int32_t run = 0;
    std::int32_t handles = 0;        ///< the number of handles
    std::source_location from = {};  ///< the line that recorded it
  };
  NodeId size() const { return nodes_.end(); }
  const Node& operator[](NodeId id) const {
    if (!nodes_.has(id)) [[unlikely]]
      return early(id);
    return nodes_[id];
  }
  std::span<const Node> between(NodeId begin, NodeId end) const { return {nodes_.from(begin), at(end - begin)}; }
  const Key& key(NodeId id) const { return keys[(*this)[id].key]; }
  bool same_key(NodeId a, NodeId b) const { return (*this)[a].key == (*this)[b].key; }
  Index width(NodeId id) const { return keys.width((*this)[id].key); }
  /// The operands of a node that are expressions. For a cell's first result, the elements of the list follow.
  std::span<const NodeId> operands(NodeId id) const {
    const std::int32_t begin = (*this)[id].operands, end = id + 1 < size() ? (*this)[id + 1].operands : operands_.end();
    return {operands_.from(begin), at(end - begin)};
  }
  /// Results of one call are nodes that follow each other.
  NodeId first_result(NodeId id) const {
    return key(id).cell == nullptr ? id : id - static_cast<NodeId>(key(id).attributes.sizes[0]);
  }
  const std::int32_t* indices(NodeId id) const { return all_indices.from((*this)[id].data); }
  const float* values(NodeId id) const { return all_values.from((*this)[id].data); }
  /// Whether the node has a handle.
  bool named(NodeId id) const {
    const Node* const known = nodes_.has(id) ? &nodes_[id] : find_early(id);
    return known != nullptr && known->handles > 0;
  }
  std::int32_t& handles(NodeId id) { return const_cast<Node&>((*this)[id]).handles; }
  /// The operands of the nodes from `first` on that come before it, ascending; they may have no handle any more.
  std::vector<NodeId> operands_before(NodeId first) const;
  /// From time to time, forgets nodes without a handle that the nodes from `last_epoch` on do not use. So a graph for
  /// inference that is never cleared takes bounded memory. Operands, indices and values of the nodes before
  /// `last_epoch` are forgotten in any case. Returns whether it forgot. Precondition: no node is pending.
  bool forget_unnamed(NodeId last_epoch);
  NodeId remembered() const { return nodes_.end() - nodes_.first() + static_cast<NodeId>(early_.size()); }
  /// Forgets all but the keys.
  void clear();

  /// Makes room, so that append() cannot throw: nodes are added completely or not at all.
  void reserve(std::size_t nodes, std::size_t operands) {
    const auto full = [](std::int32_t end, std::size_t more) { return at(end) + more >= INT32_MAX; };
    if (full(nodes_.end(), nodes) || full(operands_.end(), operands)) [[unlikely]]
      refuse_more();
    nodes_.make_room(nodes);
    operands_.make_room(operands);
  }
  /// Appends a node for each of these keys. The first one has all operands.
  void append(std::span<const std::uint32_t> of, Node node, std::span<const NodeId> operands) {
    Node* to = nodes_.room();
    node.operands = operands_.end();
    for (const std::uint32_t key : of) {
      node.key = key;
      *to++ = node;
      node.operands = operands_.end() + static_cast<std::int32_t>(operands.size());
    }
    nodes_.add_from_room(of.size());
    std::copy(operands.begin(), operands.end(), operands_.room());
    operands_.add_from_room(operands.size());
  }
  Node& last() { return nodes_.back(); }

  Keys keys;
  NodeId first_pending = 0;  ///< the nodes before it were flushed
  Tail<std::int32_t> all_indices;
  Tail<float> all_values;

 private:
  [[noreturn]] static void refuse_more();
  /// A node before those in nodes_; null if it is forgotten.
  const Node* find_early(NodeId id) const;
  [[gnu::cold]] const Node& early(NodeId id) const;

  Tail<Node> nodes_;
  struct Early {
    NodeId id;
    Node node;
  };
  std::vector<Early> early_;  // kept facts about nodes before nodes_, ascending
  Tail<NodeId> operands_;
};

}  // namespace windrow::lazy
