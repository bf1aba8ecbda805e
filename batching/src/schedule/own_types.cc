#include "schedule/own_types.h"

#include <algorithm>
#include <utility>

namespace windrow {

using ir::VertexType;

namespace {

bool holds(const std::vector<VertexType>& types, VertexType type) {
  return std::binary_search(types.begin(), types.end(), type);
}

/// True if it was not there.
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
  kind.crowded |= kind.vertices.size() > most_;
  if (kind.crowded && insert(kind.general, ir::general(*function_, known))) kind.decide_at = 0;
  forget_rare(kind);
}

/// Halves all numbers, so that what is rare goes (Manku and Motwani 2002 count so, too).
void OwnTypes::forget_rare(OfKind& kind) const {
  constexpr std::size_t enough = 32;
  while (kind.vertices.size() > enough * (most_ + 1)) {
    for (auto& [type, vertices] : kind.vertices) vertices /= 2;
    std::erase_if(kind.vertices, [](const auto& type) { return type.second == 0; });
  }
}

/// Compares the types as they are now with those told last, so that a call that throws halfway loses no change.
bool OwnTypes::decide() {
  for (OfKind& kind : kinds_) decide(kind);
  ir::ProgramTypes now;
  for (const OfKind& kind : kinds_) {  // whose types ascend with their numbers
    now.own.insert(now.own.end(), kind.own.begin(), kind.own.end());
    now.general.insert(now.general.end(), kind.general.begin(), kind.general.end());
  }
  if (now == types_) return false;
  types_ = std::move(now);
  return true;
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
