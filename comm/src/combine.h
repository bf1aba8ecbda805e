// The arithmetic of collectives in the host's memory.
#pragma once

#include <span>

#include "windrow/comm/internal/member.h"

namespace windrow::comm {

/// Writes the combination of equally shaped pieces, at least one, to each of `to`, which may be some of them. Elements
/// are combined in a fixed tree: the left half of the pieces, the right half, then both. Idle workers of the engine
/// help.
void combine(Combine how, Elements elements, std::span<const Piece> from, std::span<const Piece> to);

/// Copies a piece to one of equal shape, with the help of idle workers.
void copy(const Piece& from, const Piece& to);

/// Rows [begin, end) of a piece.
inline Piece rows(const Piece& piece, Index begin, Index end) {
  return {piece.data + begin * piece.stride, end - begin, piece.width, piece.stride};
}

}  // namespace windrow::comm
