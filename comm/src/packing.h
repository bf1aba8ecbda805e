// The elements of several tensors, or of one that is not dense, as one series of bytes: piece by piece, and row by row.
#pragma once

#include <cstddef>
#include <span>

#include "windrow/comm/internal/member.h"

namespace windrow::comm {

/// Bytes of a series.
struct ByteRange {
  std::size_t begin, bytes;
};

using PieceSpan = std::span<const Piece>;

/// The number of elements of all pieces.
std::size_t elements(PieceSpan pieces);
inline ByteRange whole(PieceSpan pieces) { return {0, 4 * elements(pieces)}; }
/// Where the range lies, if it lies within one piece that is dense; otherwise null.
std::byte* within(PieceSpan pieces, ByteRange range);
/// Copies the range from the pieces.
void pack(PieceSpan pieces, ByteRange range, std::byte* to);
/// Copies the range to the pieces.
void unpack(const std::byte* from, PieceSpan pieces, ByteRange range);
/// Multiplies all elements, which are floats.
void scale(PieceSpan pieces, float factor);

}  // namespace windrow::comm
