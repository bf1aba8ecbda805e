// The memory that everything on the host comes from.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "tests/engine/support.h"
#include "tests/memory/counting_allocator.h"
#include "windrow/memory/allocator.h"

namespace windrow {
namespace {

using testing::mib;

std::size_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  pages >> all >> resident;
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) * resident;
}

TEST(HostAllocator, GivesAlignedPiecesOfAllSizesThatDoNotOverlap) {
  const auto host = host_allocator();
  struct Piece {
    std::byte* start;
    std::size_t bytes;
  };
  std::vector<Piece> pieces;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100}, mib - 1, mib, mib + 1, 4 * mib - 1,
                                  4 * mib, 4 * mib + 1, 11 * mib + 5}) {
    for (int i = 0; i < 3; ++i) {
      pieces.push_back({host->allocate(bytes), bytes});
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces.back().start) % memory_alignment, 0u) << bytes;
      std::fill_n(pieces.back().start, bytes, std::byte(pieces.size()));
    }
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto [start, bytes] = pieces[i];
    EXPECT_EQ(std::count(start, start + bytes, std::byte(i + 1)), static_cast<std::ptrdiff_t>(bytes)) << bytes;
  }
  for (const auto [start, bytes] : pieces) host->deallocate(start, bytes);
}

/// Also those between others, which the heap would keep.
TEST(HostAllocator, GivesLargePiecesBackToTheSystem) {
  const auto host = host_allocator();
  delete[] new std::byte[30 * mib];  // from now on, the heap of glibc keeps what is smaller
  constexpr std::size_t count = 16, bytes = 3 * mib;
  std::byte* pieces[count];
  for (std::byte*& piece : pieces) {
    piece = host->allocate(bytes);
    std::fill_n(piece, bytes, std::byte{1});
  }
  const std::size_t before = resident_bytes();
  for (std::size_t i = 0; i < count; i += 2) host->deallocate(pieces[i], bytes);
  EXPECT_LT(resident_bytes() + count / 2 * bytes * 9 / 10, before);
  for (std::size_t i = 1; i < count; i += 2) host->deallocate(pieces[i], bytes);
}

TEST(HostAllocator, SaysWhatItCouldNotGive) {
  const auto host = host_allocator();
  const std::string text = testing::error_of<OutOfMemory>([&] { host->allocate(std::size_t{1} << 62); });
  EXPECT_EQ(text, "host: 4611686018427387904 bytes are not to be had");
  EXPECT_THROW(host->allocate(~std::size_t{0}), OutOfMemory);
  EXPECT_THROW(aligned_size(~std::size_t{0}), OutOfMemory);
}

}  // namespace
}  // namespace windrow
