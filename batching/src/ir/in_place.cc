// Attention without copies. These read the states of children where they were computed: dot products, weighted sums,
// and in inference sums of a state and a row of the vertex.
#include <algorithm>
#include <bit>
#include <optional>

#include "ir/builder.h"
#include "ir/passes.h"

namespace windrow::ir {
namespace {

class InPlace {
 public:
  InPlace(const Program& program, Use use) : program_(program), use_(use), users_(program.nodes.size()) {
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      for (Value in : program.nodes[i].in) users_[at(in)].push_back(static_cast<Value>(i));
    }
  }

  Program run() {
    std::vector<char> stays(program_.nodes.size(), 0);  // whether a gathered state stays where it was computed
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const Node& node = program_.nodes[i];
      stays[i] = node.code == Code::gather && node.of_edges() && all_users_fit(static_cast<Value>(i)) ? 1 : 0;
    }
    if (std::ranges::find(stays, 1) == stays.end()) return program_;
    Builder builder(*program_.function);
    std::vector<Value> moved;
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      const Node& node = program_.nodes[i];
      if (is_gathered(static_cast<Value>(i)) && stays[at(slice_of(static_cast<Value>(i)).gathered)] != 0 &&
          is_added(static_cast<Value>(i))) {
        const Value ones = builder.fill(node.vertex_type, {Rows::vertices(), 1}, 1);
        moved.push_back(builder.add(copied_in_place(static_cast<Value>(i), ones)));
        continue;
      }
      Node copy = node;
      const Value state = state_operand(node);
      if (state != no_value && stays[at(slice_of(state).gathered)] != 0) copy = in_place(node, state);
      for (Value& in : copy.in) in = moved[at(in)];
      moved.push_back(copy.code == Code::scatter ? builder.append(std::move(copy)) : builder.add(std::move(copy)));
    }
    Program result = program_;
    result.nodes = builder.take();
    const auto move = [&](Value& value) { value = value == no_value ? no_value : moved[at(value)]; };
    for (auto& values : result.losses) std::ranges::for_each(values, move);
    for (auto& values : result.pushes) std::ranges::for_each(values, move);
    drop_unneeded(result);
    return result;
  }

 private:
  const Node& node(Value value) const { return program_.at(value); }
  IndexField::Holds holds(const Node& n) const { return program_.function->index_pulls[n.indices[0]].holds; }

  /// Some columns of a gathered value.
  struct GatherSlice {
    Value gathered;
    Index begin;
  };
  GatherSlice slice_of(Value value) const {
    GatherSlice slice{value, 0};
    for (; node(slice.gathered).is(op::slice); slice.gathered = node(slice.gathered).in[0]) {
      slice.begin += node(slice.gathered).attributes.sizes[0];
    }
    return slice;
  }
  bool is_gathered(Value value) const {
    const Node& n = node(slice_of(value).gathered);
    return n.code == Code::gather && n.of_edges();
  }

  /// The child whose state contains the columns, and the first column there; none for columns of several children.
  struct Columns {
    Index child, begin;
  };
  std::optional<Columns> columns_of(Value value) const {
    const auto [gathered, begin] = slice_of(value);
    const Node& n = node(gathered);
    const Index width = program_.function->states[n.number].width, count = node(value).type.width;
    if (width == 0 || count == 0 || begin / width != (begin + count - 1) / width) return std::nullopt;
    const VertexType type = program_.types[static_cast<std::size_t>(n.vertex_type)];
    const VertexKind& kind = kind_of(*program_.function, type);
    std::uint32_t from = children(*program_.function, type) & kind.gathered[n.number];
    from &= ~((1u << kind.arity) - 1);
    for (Index k = begin / width; k > 0; --k) from &= from - 1;
    return Columns{std::countr_zero(from), begin % width};
  }

  /// The row of the vertex with which a dot product multiplies a gathered state; no_value for other nodes.
  Value row_of_dot(const Node& n, Value state) const {
    if (!n.is(op::row_dot) || n.in[0] == n.in[1]) return no_value;
    const Value row = n.in[n.in[0] == state ? 1 : 0];
    return is_handed_on(row) ? node(row).in[0] : no_value;
  }

  /// Whether the value is a row of the vertex, copied to each edge.
  bool is_handed_on(Value value) const {
    const Node& n = node(value);
    return n.is(op::gather_rows) && holds(n) == IndexField::Holds::consumer;
  }

  /// Whether the node adds a gathered state to a row of the vertex. A gradient would have a row for each edge anyway.
  bool adds(const Node& n, Value state) const {
    return use_ == Use::inference && n.code == Code::sum && n.type == node(state).type &&
           std::ranges::count(n.in, state) == 1 &&
           std::ranges::any_of(n.in, [&](Value in) { return is_handed_on(in); });
  }
  bool is_added(Value state) const {
    return std::ranges::any_of(users_[at(state)], [&](Value user) { return adds(node(user), state); });
  }

  bool is_sum_over_edges(const Node& n) const { return n.is(op::segment_sum) && holds(n) == IndexField::Holds::edges; }

  bool all_users_fit(Value state) const {
    const bool of_one_child = columns_of(state).has_value();
    return std::ranges::all_of(users_[at(state)], [&](Value user) {
      const Node& n = node(user);
      if (n.is(op::slice)) return all_users_fit(user);
      if (!of_one_child) return false;
      if (row_of_dot(n, state) != no_value || adds(n, state)) return true;
      if (!n.is(op::mul_columns) || n.in[0] != state || !node(n.in[1]).of_edges()) return false;
      return std::ranges::all_of(users_[at(user)], [&](Value sum) { return is_sum_over_edges(node(sum)); });
    });
  }

  /// The gathered state that a dot product or a weighted sum takes; no_value for other nodes.
  Value state_operand(const Node& n) const {
    if (n.is(op::row_dot)) {
      const auto found = std::ranges::find_if(n.in, [&](Value in) { return is_gathered(in); });
      return found == n.in.end() ? no_value : *found;
    }
    if (!n.is(op::segment_sum)) return no_value;
    const Node& product = node(n.in[0]);
    return product.is(op::mul_columns) && is_gathered(product.in[0]) ? product.in[0] : no_value;
  }

  Node in_place(const Node& n, Value state) const {
    const Columns columns = *columns_of(state);
    const bool dot = n.is(op::row_dot);
    return {.code = dot ? Code::gather_dot : Code::gather_weighted_sum,
            .type = n.type,
            .vertex_type = n.vertex_type,
            .number = node(slice_of(state).gathered).number,
            .child = columns.child,
            .in = {dot ? row_of_dot(n, state) : node(n.in[0]).in[1]},
            .at = {columns.begin}};
  }

  /// The state times a number of the vertex.
  Node copied_in_place(Value state, Value number) const {
    const Columns columns = *columns_of(state);
    const Node& n = node(state);
    return {.code = Code::gather_weighted_sum,
            .type = n.type,
            .vertex_type = n.vertex_type,
            .number = node(slice_of(state).gathered).number,
            .child = columns.child,
            .in = {number},
            .at = {columns.begin}};
  }

  const Program& program_;
  const Use use_;
  std::vector<std::vector<Value>> users_;  // by node
};

}  // namespace

Program read_in_place(const Program& program, Use use) { return InPlace(program, use).run(); }

}  // namespace windrow::ir
