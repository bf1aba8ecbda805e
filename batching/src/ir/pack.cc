// Packing: products of one value with several parameters become one product, and sums of such products one sum.
#include <algorithm>
#include <map>
#include <optional>

#include "ir/builder.h"
#include "ir/passes.h"

namespace windrow::ir {
namespace {

/// Products of the same value, or sums that have one product of each of the same values.
struct Pack {
  std::vector<Value> of;       // the values that are multiplied
  std::vector<Value> members;  // in order
  Index width = 0;
  Value packed = no_value;  // in the new program
};

class Packing {
 public:
  explicit Packing(const Program& program) : program_(program), builder_(*program.function) {
    for (const Node& node : program.nodes) {
      for (Value in : node.in) ++uses_.emplace(in, 0).first->second;
    }
  }

  Program run() {
    find_packs();
    moved_.resize(program_.nodes.size(), no_value);
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {  // a pack may need parameters that come later
      if (program_.nodes[i].code == Code::parameter) moved_[i] = builder_.add(program_.nodes[i]);
    }
    for (std::size_t i = 0; i < program_.nodes.size(); ++i) {
      if (moved_[i] == no_value) moved_[i] = moved(static_cast<Value>(i));
    }
    Program result = program_;
    result.nodes = builder_.take();
    const auto move = [&](Value& value) { value = value == no_value ? no_value : moved_[at(value)]; };
    for (auto& values : result.losses) std::for_each(values.begin(), values.end(), move);
    for (auto& values : result.pushes) std::for_each(values.begin(), values.end(), move);
    drop_unneeded(result);
    return result;
  }

 private:
  const Node& node(Value value) const { return program_.at(value); }

  bool is_product(Value value) const {
    const Node& n = node(value);
    return n.is(op::matmul) && n.of_vertices() && node(n.in[1]).code == Code::parameter;
  }

  /// The multiplied values, if the value is a product or a sum with one product of each of them; none otherwise.
  std::optional<std::vector<Value>> multiplied(Value value) const {
    if (is_product(value)) return std::vector<Value>{node(value).in[0]};
    const Node& n = node(value);
    if (n.code != Code::sum || !n.of_vertices() || n.in.size() < 2) return std::nullopt;
    std::vector<Value> values;
    for (std::size_t k = 0; k < n.in.size(); ++k) {
      const bool whole = n.at[k] == 0 && node(n.in[k]).type == n.type;
      if (!whole || !is_product(n.in[k]) || uses_.at(n.in[k]) != 1) return std::nullopt;
      values.push_back(node(n.in[k]).in[0]);
    }
    return values;
  }

  void find_packs() {
    std::map<std::vector<Value>, Pack> packs;
    std::vector<char> in_sum(program_.nodes.size(), 0);
    for (std::size_t i = program_.nodes.size(); i-- > 0;) {
      const auto value = static_cast<Value>(i);
      const auto values = in_sum[i] ? std::nullopt : multiplied(value);
      if (!values) continue;
      if (values->size() > 1) {
        for (Value product : node(value).in) in_sum[at(product)] = 1;
      }
      Pack& pack = packs[*values];
      pack.of = *values;
      pack.members.insert(pack.members.begin(), value);
    }
    for (auto& [values, pack] : packs) {
      if (pack.members.size() < 2) continue;
      for (Value member : pack.members) {
        pack_of_[member] = packs_.size();
        offset_[member] = pack.width;
        pack.width += node(member).type.width;
      }
      packs_.push_back(pack);
    }
  }

  Value moved(Value value) {
    const auto packed = pack_of_.find(value);
    if (packed != pack_of_.end()) {
      Pack& pack = packs_[packed->second];
      if (pack.packed == no_value) pack.packed = compute(pack);
      const Index begin = offset_.at(value);
      return builder_.slice(pack.packed, begin, begin + node(value).type.width);
    }
    Node copy = node(value);
    for (Value& in : copy.in) {
      if (moved_[at(in)] == no_value) moved_[at(in)] = moved(in);
      in = moved_[at(in)];
    }
    return copy.code == Code::scatter ? builder_.append(std::move(copy)) : builder_.add(std::move(copy));
  }

  Value compute(const Pack& pack) {
    const Node& first = node(pack.members[0]);
    std::vector<Builder::Term> terms;
    for (std::size_t k = 0; k < pack.of.size(); ++k) {
      std::vector<Value> parameters;
      for (Value member : pack.members) {
        const Value product = pack.of.size() == 1 ? member : node(member).in[k];
        parameters.push_back(moved_[at(node(product).in[1])]);
      }
      const Value all = builder_.apply(op::concat, parameters);
      terms.push_back({builder_.apply(op::matmul, {moved_[at(pack.of[k])], all}), 0});
    }
    return builder_.sum(terms, {first.type.rows, pack.width}, first.vertex_type);
  }

  const Program& program_;
  Builder builder_;
  std::map<Value, int> uses_;
  std::vector<Pack> packs_;
  std::map<Value, std::size_t> pack_of_;  // of members
  std::map<Value, Index> offset_;         // columns of members
  std::vector<Value> moved_;              // by node: its value in the new program
};

}  // namespace

Program pack_products(const Program& program) { return Packing(program).run(); }

}  // namespace windrow::ir
