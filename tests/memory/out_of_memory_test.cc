// The memory that everything on the host comes from.
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>

#include "counting_allocator.h"
#include "tests/engine/support.h"
#include "windrow/memory/allocator.h"
#include "windrow/memory/buffer.h"
#include "windrow/memory/pool.h"

namespace windrow::testing {
namespace {

std::size_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  std::size_t all = 0, resident = 0;
  pages >> all >> resident;
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) * resident;
}

TEST(HostAllocator, GivesAlignedPiecesOfAllSizesThatDoNotOverlap) {
  const auto host = host_allocator();
  std::vector<std::span<std::byte>> pieces;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100}, mib - 1, mib, mib + 1, 4 * mib - 1,
                                  4 * mib, 4 * mib + 1, 11 * mib + 5}) {
    for (int i = 0; i < 3; ++i) {
      pieces.emplace_back(host->allocate(bytes), bytes);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces.back().data()) % memory_alignment, 0u) << bytes;
      std::ranges::fill(pieces.back(), std::byte(pieces.size()));
    }
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(std::ranges::count(pieces[i], std::byte(i + 1)), std::ssize(pieces[i])) << pieces[i].size();
  }
  for (const auto piece : pieces) host->deallocate(piece.data(), piece.size());
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
  const std::string text = error_of<OutOfMemory>([&] { host->allocate(std::size_t{1} << 62); });
  EXPECT_EQ(text, "host: 4611686018427387904 bytes are not to be had");
  EXPECT_THROW(host->allocate(~std::size_t{0}), OutOfMemory);
  EXPECT_THROW(aligned_size(~std::size_t{0}), OutOfMemory);
}

// Each allocation of a program is refused in turn.

/// Refuses one allocation, by number from 0.
class RefusingAllocator final : public DividingAllocator {
 public:
  explicit RefusingAllocator(std::shared_ptr<Allocator> below) : DividingAllocator(std::move(below), "refusing") {}

  std::byte* allocate(std::size_t bytes) override {
    if (count++ == refused) throw OutOfMemory("refused");
    return below_->allocate(bytes);
  }
  void deallocate(std::byte* start, std::size_t bytes) noexcept override { below_->deallocate(start, bytes); }

  std::atomic<int> count = 0, refused = -1;
};

constexpr int links = 8;

/// A chain in which each op adds one to the bytes of the buffer before, with an arena on the way. Returns the last
/// byte, or -1 if an op on the way had no memory.
int run_chain(Engine& engine, const std::shared_ptr<Allocator>& memory) {
  Arena arena(engine, memory, links * 512);
  std::vector<Buffer> buffers;
  for (int i = 0; i < links; ++i) {
    const std::size_t size = 300 + 40 * static_cast<std::size_t>(i);
    buffers.push_back(i % 3 == 2 ? arena.cut(256, "cut") : Buffer(engine, memory, size, "link"));
    if (i == 0) {
      engine.push([to = buffers[0].bytes()] { *to.write() = std::byte{0}; }, {overwrite(buffers[0].var())});
      continue;
    }
    const Buffer &from = buffers[static_cast<std::size_t>(i) - 1], &to = buffers[static_cast<std::size_t>(i)];
    engine.push(
        [from = from.bytes(), to = to.bytes()] {
          const int before = std::to_integer<int>(*from.read());
          *to.write() = static_cast<std::byte>(before + 1);
        },
        {read(from.var()), overwrite(to.var())});
  }
  try {
    engine.wait(buffers.back().var());
  } catch (const OpError& error) {
    EXPECT_THROW(error.rethrow_root(), OutOfMemory);
    return -1;
  }
  return std::to_integer<int>(*buffers.back().bytes().read());
}

class OutOfMemoryOnEveryPolicy : public EveryPolicy {};
WINDROW_EVERY_POLICY(OutOfMemoryOnEveryPolicy);

TEST_P(OutOfMemoryOnEveryPolicy, LeavesEverythingUsable) {
  int refusals = 0;
  for (int refused = 0;; ++refused) {
    auto below = std::make_shared<CountingAllocator>();
    const auto refusing = std::make_shared<RefusingAllocator>(below);
    Engine engine(options());
    refusing->refused = refused;
    const int result = run_chain(engine, refusing);
    engine.wait_all();
    EXPECT_EQ(below->held, 0u) << refused;
    if (refusing->count <= refused) {
      EXPECT_EQ(result, links - 1);
      break;
    }
    EXPECT_EQ(result, -1) << refused;
    ++refusals;
    refusing->refused = -1;
    EXPECT_EQ(run_chain(engine, refusing), links - 1) << refused;
    engine.wait_all();
    EXPECT_EQ(below->held, 0u) << refused;
  }
  EXPECT_GE(refusals, 6);
}

/// A pool returns what it keeps and tries again, so that one refusal does not show.
TEST_P(OutOfMemoryOnEveryPolicy, IsTriedAgainByAPool) {
  for (int refused = 0; refused < 8; ++refused) {
    auto below = std::make_shared<CountingAllocator>();
    const auto refusing = std::make_shared<RefusingAllocator>(below);
    {
      Engine engine(options());
      const auto memory = std::make_shared<Pool>(refusing);
      refusing->refused = refused;
      EXPECT_EQ(run_chain(engine, memory), links - 1) << refused;
      engine.wait_all();
      EXPECT_EQ(memory->use().live, 0u);
      memory->trim();
      EXPECT_EQ(below->held, 0u);
    }
  }
}

}  // namespace
}  // namespace windrow::testing
