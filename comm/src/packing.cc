#include "packing.h"

#include <algorithm>
#include <cstring>

namespace windrow::comm {
namespace {

/// Calls visit(data, bytes) for each contiguous part of the range, one after the other.
template <class Visit>
void for_each_stretch(PieceSpan pieces, ByteRange range, Visit visit) {
  std::size_t first = 0;  // byte of the piece in the series
  for (const Piece& piece : pieces) {
    const std::size_t end = std::min(first + piece.bytes(), range.begin + range.bytes);
    const std::size_t row = piece.dense() ? piece.bytes() : static_cast<std::size_t>(4 * piece.width);
    for (std::size_t at = std::max(first, range.begin); at < end;) {
      const std::size_t number = (at - first) / row, inside = (at - first) % row;
      const std::size_t bytes = std::min(row - inside, end - at);
      visit(piece.data + static_cast<Index>(number) * piece.stride + inside, bytes);
      at += bytes;
    }
    first += piece.bytes();
  }
}

}  // namespace

std::size_t elements(PieceSpan pieces) {
  std::size_t count = 0;
  for (const Piece& piece : pieces) count += piece.bytes() / 4;
  return count;
}

std::byte* within(PieceSpan pieces, ByteRange range) {
  std::size_t first = 0;
  for (const Piece& piece : pieces) {
    const std::size_t behind = first + piece.bytes();
    if (piece.dense() && first <= range.begin && range.begin + range.bytes <= behind) {
      return piece.data + (range.begin - first);
    }
    first = behind;
  }
  return nullptr;
}

void pack(PieceSpan pieces, ByteRange range, std::byte* to) {
  for_each_stretch(pieces, range, [&](const std::byte* data, std::size_t bytes) {
    std::memcpy(to, data, bytes);
    to += bytes;
  });
}

void unpack(const std::byte* from, PieceSpan pieces, ByteRange range) {
  for_each_stretch(pieces, range, [&](std::byte* data, std::size_t bytes) {
    std::memcpy(data, from, bytes);
    from += bytes;
  });
}

void scale(PieceSpan pieces, float factor) {
  for_each_stretch(pieces, whole(pieces), [&](std::byte* data, std::size_t bytes) {
    auto* const numbers = reinterpret_cast<float*>(data);
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) numbers[i] *= factor;
  });
}

}  // namespace windrow::comm
