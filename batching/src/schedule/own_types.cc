#include "schedule/own_types.h"

#include <algorithm>
#include <utility>

namespace windrow {

using ir::VertexType;

namespace {

bool holds(const std::vector<VertexType>& types, VertexType type) {
  return std::binary_search(types.begin(), types.end(), type);
}

/// Inserts the type; returns whether it was new.
bool insert(std::vector<VertexType>& types, VertexType type) {
  const auto place = std::lower_bound(types.begin(), types.end(), type);
  if (place != types.end() && *place == type) return false;
  types.insert(place, type);
  return true;
}

}  // namespace

OwnTypes::OwnTypes(std::shared_ptr<const ir::Function> function, ir::Specialise how, std::size_t most)
    : function_(std::move(function)), how_(how), most_(most), kinds_(function_->kinds.size()) {}

bool OwnTypes::settled(VertexType type) const {
  return !kinds_[ir::kind_of(type)].crowded && holds(types_.own, known_as(type));
}

void OwnTypes::count(VertexType type, std::int64_t vertices) {
  OfKind& kind = kinds_[ir::kind_of(type)];
  const VertexType known = known_as(type);
  kind.vertices[known] += vertices;
  kind.counted += vertices;
  const auto add_general = [&](VertexType of) {
    if (insert(kind.general, ir::general(*function_, of))) kind.decide_at = 0;
  };
  if (!kind.crowded && kind.vertices.size() > most_) {
    kind.crowded = true;
    for (const auto& [earlier, unused] : kind.vertices) add_general(earlier);  // they may not be frequent
  }
  if (kind.crowded) add_general(known);
  forget_rare(kind);
}

/// Bounds the counts by halving them, which drops rare types (after Manku and Motwani 2002).
void OwnTypes::forget_rare(OfKind& kind) const {
  constexpr std::size_t enough = 32;
  while (kind.vertices.size() > enough * (most_ + 1)) {
    for (auto& [type, vertices] : kind.vertices) vertices /= 2;
    std::erase_if(kind.vertices, [](const auto& type) { return type.second == 0; });
  }
}

/// Compares the current types with the last returned ones, so no change is lost if an earlier call threw midway.
bool OwnTypes::decide() {
  for (OfKind& kind : kinds_) decide(kind);
  ir::ProgramTypes now = types_of(kinds_);
  if (now == types_) return false;
  types_ = std::move(now);
  return true;
}

ir::ProgramTypes OwnTypes::types_of(const std::vector<OfKind>& kinds) {
  ir::ProgramTypes types;
  for (const OfKind& kind : kinds) {  // types ascend with the number of their kind, so the lists stay sorted
    types.own.insert(types.own.end(), kind.own.begin(), kind.own.end());
    types.general.insert(types.general.end(), kind.general.begin(), kind.general.end());
  }
  return types;
}

void OwnTypes::decide(OfKind& kind) const {
  if (!kind.crowded) {
    for (const auto& [type, vertices] : kind.vertices) insert(kind.own, type);
  } else if (kind.counted >= kind.decide_at) {
    kind.own = frequent(kind);
    kind.decide_at = 2 * kind.counted;
  }
}

std::vector<VertexType> OwnTypes::frequent(const OfKind& kind) const {
  std::int64_t all = 0;
  std::vector<std::pair<std::int64_t, VertexType>> types;
  for (const auto& [type, vertices] : kind.vertices) {
    all += vertices;
    if (!holds(kind.general, type)) types.emplace_back(-vertices, type);
  }
  std::sort(types.begin(), types.end());
  std::vector<VertexType> own;
  for (const auto& [less, type] : types) {
    const bool rare = -less * 2 * static_cast<std::int64_t>(most_) < all;
    if (rare || own.size() == most_) break;
    own.push_back(type);
  }
  std::sort(own.begin(), own.end());
  return own;
}

}  // namespace windrow
