// The elements of several tensors, or of one that is not dense, as one series of bytes: one piece after the other, each
// by rows.
#pragma once

#include <cstddef>

#include "windrow/comm/internal/member.h"

namespace windrow::comm {

/// Bytes of a series.
struct ByteRange {
  std::size_t begin, bytes;
};

/// Of all pieces.
std::size_t elements(const Pieces& pieces);
inline ByteRange whole(const Pieces& pieces) { return {0, 4 * elements(pieces)}; }
/// Where the range lies, if it lies within one piece that is dense; otherwise null.
std::byte* within(const Pieces& pieces, ByteRange range);
/// Copies the range from the pieces.
void pack(const Pieces& pieces, ByteRange range, std::byte* to);
/// Copies the range to the pieces.
void unpack(const std::byte* from, const Pieces& pieces, ByteRange range);
/// Multiplies all elements, which are floats.
void scale(const Pieces& pieces, float factor);

}  // namespace windrow::comm
