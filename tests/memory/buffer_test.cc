#include "windrow/memory/buffer.h"

#include <cmath>
#include <cstring>

#include "tests/engine/support.h"
#include "tests/memory/counting_allocator.h"
#include "windrow/engine/value.h"
#include "windrow/memory/pool.h"

namespace windrow::testing {
namespace {

/// Pushes an op that writes to the buffer.
void push_write(Engine& engine, const Buffer& buffer, int value = 1) {
  engine.push([bytes = buffer.bytes(), size = buffer.size(), value] { std::memset(bytes.write(), value, size); },
              {overwrite(buffer.var())});
}
/// Where the buffer lies, when an op has written to it.
const std::byte* place_of(Engine& engine, const Buffer& buffer) {
  push_write(engine, buffer);
  engine.wait(buffer.var());
  return buffer.bytes().read();
}

class BufferOnEveryPolicy : public EngineOnEveryPolicy {
 protected:
  const std::shared_ptr<CountingAllocator> memory = std::make_shared<CountingAllocator>();
};
WINDROW_EVERY_POLICY(BufferOnEveryPolicy);

/// Each push runs its op.
class BufferTest : public ::testing::Test {
 protected:
  const std::shared_ptr<CountingAllocator> memory = std::make_shared<CountingAllocator>();
  Engine engine{{.policy = Policy::serial}};
};
using ArenaTest = BufferTest;

TEST_P(BufferOnEveryPolicy, LivesUntilItsLastReaderIsDone) {
  int sum = 0;
  {
    Buffer buffer(engine, memory, 100, "hundred");
    push_write(engine, buffer);
    engine.push(
        [bytes = buffer.bytes(), &sum] {
          for (int i = 0; i < 100; ++i) sum += static_cast<int>(bytes.read()[i]);
        },
        {read(buffer.var()), mutate(a)});
  }
  engine.wait_all();
  EXPECT_EQ(sum, 100);
  EXPECT_EQ(memory->held, 0u);
  EXPECT_EQ(memory->allocations, 1);
}

TEST_P(BufferOnEveryPolicy, GivesOpsItsBytes) {
  Value<int> sum(engine, "sum");
  {
    Buffer buffer(engine, memory, 10, "ten");
    engine.push([](std::span<int> all) { all[0] = 5, all[1] = 7; }, overwrite(buffer.as<int>()));
    engine.push([](std::span<std::byte> all) { all[9] = all[0]; }, mutate(buffer));
    engine.push([](std::span<int> all) { all[1] += 1; }, commute(buffer.as<int>()));
    const auto add = [](std::span<const int> numbers, std::span<const std::byte> all, int& s) {
      s = numbers[0] + numbers[1] + static_cast<int>(all[9]) + 1000 * static_cast<int>(numbers.size());
    };
    engine.push(add, read(buffer.as<int>()), read(buffer), overwrite(sum));
  }
  EXPECT_EQ(sum.get(), 5 + 8 + 5 + 2000);
  Buffer empty(engine, memory, 10, "empty");
  engine.push([](std::span<const int> all, int& s) { s = all[0]; }, read(empty.as<int>()), overwrite(sum));
  expect_error<OpError>([&] { sum.get(); }, "'empty'");
  sum.set(0);
}

TEST_P(BufferOnEveryPolicy, EndsAfterShutdownToo) {
  Buffer buffer(engine, memory, 100);
  push_write(engine, buffer);
  engine.shutdown();
  EXPECT_EQ(memory->held, 100u);
  { Buffer end = std::move(buffer); }
  EXPECT_EQ(memory->held, 0u);
}

TEST_P(BufferOnEveryPolicy, FreesWhatAFailedOpWrote) {
  {
    Buffer buffer(engine, memory, 100);
    engine.push([bytes = buffer.bytes()] { bytes.write(), throw std::runtime_error("after the write"); },
                {overwrite(buffer.var())});
  }
  EXPECT_THROW(engine.wait_all(), OpError);
  EXPECT_EQ(memory->held, 0u);
}

TEST_F(BufferTest, TakesMemoryWithTheFirstWriteAndNotBefore) {
  Buffer written(engine, memory, 100), never(engine, memory, 1 << 20);
  EXPECT_EQ(memory->held, 0u);
  push_write(engine, written);
  engine.wait(written.var());
  EXPECT_EQ(memory->held, 100u);
}

TEST_F(BufferTest, ReadBeforeAnyWriteFailsTheOpThatReads) {
  Buffer buffer(engine, host_allocator(), 100, "blank");
  Var out = engine.new_var("out");
  engine.push([bytes = buffer.bytes()] { bytes.read(); }, {read(buffer.var()), overwrite(out)}, {.name = "look"});
  expect_error<OpError>([&] { engine.wait(out); },
                        {"op 'look'", "buffer 'blank' is read before anything was written to it"});
}

TEST_F(BufferTest, MovesAndFreesWhatItReplaces) {
  Buffer a(engine, memory, 100), b(engine, memory, 10);
  for (Buffer* buffer : {&a, &b}) push_write(engine, *buffer);
  const Var kept = b.var();
  a = std::move(b);
  EXPECT_EQ(memory->held, 10u);
  EXPECT_EQ(a.var(), kept);
  EXPECT_EQ(a.size(), 10u);
}

TEST_F(BufferTest, MovedFromNamesNothing) {
  Buffer a(engine, host_allocator(), 8);
  const Buffer b = std::move(a);
  EXPECT_FALSE(a.var());
  EXPECT_EQ(error_of<MisuseError>([&] { a.bytes(); }), "buffer: bytes() of one that was moved from");
  EXPECT_EQ(error_of<MisuseError>([&] { Buffer(engine, nullptr, 8); }), "buffer: no allocator; expected one");
}

TEST(Buffer, OutlivesThePoolHandleItCameFrom) {
  auto below = std::make_shared<CountingAllocator>();
  Engine engine({.workers = 2});
  {
    auto pool = std::make_shared<Pool>(below);
    Buffer buffer(engine, pool, 100);
    pool.reset();
    push_write(engine, buffer);
  }
  engine.wait_all();
  EXPECT_EQ(below->held, 0u);
}

TEST_F(ArenaTest, GivesItsBlockBackWithTheLastOfItsBuffers) {
  std::optional<Arena> arena(std::in_place, engine, memory, 256);
  std::optional<Buffer> a = arena->cut(100, "a"), b = arena->cut(100, "b");
  EXPECT_EQ(arena->left(), 0u);
  EXPECT_EQ(memory->held, 0u);
  EXPECT_EQ(place_of(engine, *b) - place_of(engine, *a), 128);
  EXPECT_EQ(memory->allocations, 1);
  arena.reset();
  a.reset();
  EXPECT_EQ(memory->held, 256u);
  b.reset();
  EXPECT_EQ(memory->held, 0u);
}

TEST_F(ArenaTest, RefusesMoreThanItHas) {
  Arena arena(engine, host_allocator(), 192);
  Buffer first = arena.cut(65);
  EXPECT_EQ(error_of<MisuseError>([&] { arena.cut(65, "second"); }),
            "arena: buffer 'second' of 128 bytes does not fit into the 64 that are left");
  EXPECT_EQ(arena.left(), 64u);
}

TEST(Checking, FindsAnOpThatTouchesABufferItDidNotDeclare) {
  Engine engine({.check = true});
  Arena arena(engine, host_allocator(), 128);
  Buffer a = arena.cut(64, "a"), b = arena.cut(64, "b");
  push_write(engine, a);
  push_write(engine, b);
  engine.push([bytes = a.bytes()] { *bytes.update() = std::byte{2}; }, {mutate(a.var())});
  engine.wait_all();
  engine.push([bytes = a.bytes()] { *bytes.update() = std::byte{3}; }, {read(a.var()), mutate(b.var())});
  expect_error<OpError>([&] { engine.wait_all(); }, "changed variable 'a', which it declared only to read");
}

TEST(Checking, FindsUndeclaredReadsOfBuffersInWholePages) {
  Engine engine({.check = true});
  const auto pool = std::make_shared<Pool>(page_allocator());
  for (const std::shared_ptr<Allocator>& memory : {page_allocator(), std::shared_ptr<Allocator>(pool)}) {
    Buffer a(engine, memory, 100, "a"), b(engine, memory, 5000, "b");
    const std::string told = stderr_of([&] { push_write(engine, a), push_write(engine, b), engine.wait_all(); });
    EXPECT_EQ(told, "");
    engine.push([from = a.bytes(), to = b.bytes()] { *to.update() = *from.read(); }, {mutate(b.var())});
    expect_error<OpError>([&] { engine.wait(b.var()); }, "read variable 'a', which it did not declare: add read(a)");
    engine.heal(b.var());
    engine.push([from = a.bytes(), to = b.bytes()] { *to.update() = *from.read(); }, {read(a.var()), mutate(b.var())});
    engine.wait(b.var());
  }
}

TEST(Buffers, PassThroughForwardingFunctions) {
  Engine engine({.policy = Policy::serial});
  const auto memory = host_allocator();
  std::vector<Buffer> buffers;
  buffers.emplace_back(engine, memory, 64, "first");
  std::optional<Buffer> second;
  second.emplace(engine, memory, 64, "second", host_lane);
  const auto third = std::make_unique<Buffer>(engine, memory, 64, "third");
  const std::pair<const Buffer*, const char*> all[] = {
      {&buffers.front(), "first"}, {&*second, "second"}, {third.get(), "third"}};
  for (const auto& [buffer, name] : all) {
    expect_error<MisuseError>([&] { buffer->bytes().read(); }, "buffer '" + std::string(name) + "'");
  }
}

TEST(PageAllocator, GivesWholePages) {
  const auto pages = page_allocator();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, pages->alignment(), pages->alignment() + 1}) {
    std::byte* const start = pages->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(start) % pages->alignment(), 0u);
    std::memset(start, 1, aligned_size(bytes, pages->alignment()));
    pages->deallocate(start, bytes);
  }
  EXPECT_THROW(pages->allocate(std::size_t{1} << 60), OutOfMemory);
}

TEST(Buffers, AreWrittenFirstByOpsThatOutliveTheirEnginesOwner) {
  auto engine = std::make_shared<Engine>(EngineOptions{.policy = Policy::pool, .workers = 1});
  auto memory = std::make_shared<CountingAllocator>();
  const Var turn = engine->new_var("turn");
  Gate go, written;
  {
    Buffer buffer(*engine, memory, 64);
    engine->push([&, keeps = engine] { go.await(); }, {mutate(turn)});
    engine->push([&, bytes = buffer.bytes()] { *bytes.write() = std::byte{1}, written.open(); },
                 {read(turn), overwrite(buffer.var())});
  }
  engine.reset();
  go.open();
  written.await();
}

TEST(Checking, LeavesBytesAloneThatOpsShareOut) {
  Engine engine({.check = true});
  Buffer all(engine, host_allocator(), 64);
  const Var part = engine.new_var("part");
  engine.push([bytes = all.bytes()] { bytes.write_unwatched(); }, {overwrite(all.var())});
  engine.push([bytes = all.bytes()] { *bytes.write() = std::byte{1}; }, {read(all.var()), mutate(part)});
  engine.wait_all();
}

TEST(Checking, FillsFreedBytesWithNotANumber) {
  const auto pool = std::make_shared<Pool>(std::make_shared<CountingAllocator>());
  Engine engine({.check = true});
  {
    Buffer freed(engine, pool, 8 * sizeof(float), "freed");
    engine.push([bytes = freed.bytes()] { std::fill_n(reinterpret_cast<float*>(bytes.write()), 8, 1.0f); },
                {overwrite(freed.var())});
  }
  engine.wait_all();
  std::byte* const again = pool->allocate(8 * sizeof(float));  // the same piece
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(std::isnan(reinterpret_cast<const float*>(again)[i])) << i;
  pool->deallocate(again, 8 * sizeof(float));
}

TEST(Checking, LetsOpsWriteFirstToWhatHasEndedMeanwhile) {
  Engine engine({.policy = Policy::pool, .workers = 2, .check = true});
  auto memory = std::make_shared<CountingAllocator>();
  std::optional<Buffer> buffer(std::in_place, engine, memory, 64), other(std::in_place, engine, memory, 64);
  const Var held = engine.new_var("held");
  std::jthread thread;
  HeldOp go(engine, {mutate(held)});
  engine.push([bytes = buffer->bytes()] { *bytes.write() = std::byte{1}; }, {read(held), overwrite(buffer->var())});
  engine.push_async(
      [&, bytes = other->bytes()](OnComplete done) {
        thread = std::jthread([bytes, done = std::move(done)]() mutable { *bytes.write() = std::byte{1}, done(); });
      },
      {overwrite(other->var())});
  buffer.reset();
  other.reset();
  go.complete();
  engine.wait_all();
  EXPECT_EQ(memory->allocations, 2);
  EXPECT_EQ(memory->held, 0u);
}

TEST_F(ArenaTest, LaysBuffersWhereTheCallerSays) {
  {
    Buffer first(engine, memory, 64, "first"), second(engine, memory, 32, "second"), third(engine, memory, 32, "third");
    {
      Arena arena(engine, memory, 128);
      arena.lay(first, 0);
      arena.lay(second, 64);
      arena.lay(third, 96);
      arena.lay(third, 64);  // and again: in the bytes of the second
      for (const auto& [buffer, offset] :
           {std::pair{&first, 65UL}, std::pair{&first, 129UL}, std::pair{&second, ~0UL}}) {
        expect_error<MisuseError>([&] { arena.lay(*buffer, offset); }, "expected");
      }
      Buffer elsewhere(engine, host_allocator(), 32, "elsewhere");
      expect_error<MisuseError>([&] { arena.lay(elsewhere, 0); }, "memory");
    }
    EXPECT_EQ(memory->allocations, 0);
    const std::byte* const start = place_of(engine, first);
    for (Buffer* const buffer : {&second, &third}) EXPECT_EQ(place_of(engine, *buffer) - start, 64);
    EXPECT_EQ(memory->allocations, 1);
  }
  engine.wait_all();
  EXPECT_EQ(memory->held, 0U);
}

TEST_F(ArenaTest, NeverGivesOnePlaceTwice) {
  Arena arena(engine, memory, 100);
  Buffer empty = arena.cut(0), full = arena.cut(64);
  EXPECT_EQ(place_of(engine, full) - place_of(engine, empty), 64);
}

TEST(Arena, TakesItsBlockOnceThoughManyWriteFirst) {
  auto memory = std::make_shared<CountingAllocator>();
  memory->pause = 2ms;
  Engine engine({.policy = Policy::pool, .workers = 4});
  for (int repetition = 0; repetition < 10; ++repetition) {
    Arena arena(engine, memory, 4 * 64);
    std::vector<Buffer> buffers;
    for (int i = 0; i < 4; ++i) buffers.push_back(arena.cut(64));
    for (Buffer& buffer : buffers) push_write(engine, buffer);
  }
  engine.wait_all();
  EXPECT_EQ(memory->allocations, 10);
  EXPECT_EQ(memory->held, 0u);
}

/// As after a message that cannot be called off.
TEST(Buffer, MayLeaveItsMemoryToSomebodyElse) {
  const auto memory = std::make_shared<CountingAllocator>(1000);
  Engine engine({.workers = 1});
  std::optional<Buffer> written = Buffer(engine, memory, 100, "written"),
                        read_only = Buffer(engine, memory, 200, "read only");
  std::byte *old = nullptr, *now = nullptr;
  engine.push([bytes = written->bytes(), &old] { std::memset(old = bytes.write(), 1, 100); },
              {overwrite(written->var())});
  engine.push([bytes = written->bytes()] { bytes.move_away(); }, {mutate(written->var())});
  engine.push([bytes = written->bytes(), &now] { EXPECT_EQ((now = bytes.update())[99], std::byte{1}); },
              {mutate(written->var())});
  push_write(engine, *read_only);
  engine.push(
      [bytes = read_only->bytes()] {
        const std::byte* const before = bytes.read();
        bytes.never_free();
        EXPECT_EQ(bytes.read(), before);
      },
      {read(read_only->var())});
  engine.wait_all();
  EXPECT_NE(old, now);
  std::memset(old, 3, 100);
  EXPECT_EQ(now[0], std::byte{1});
  EXPECT_EQ(memory->held, 400u);
  written.reset(), read_only.reset();
  engine.wait_all();
  EXPECT_EQ(memory->held, 300u);
  std::memset(old, 4, 100);  // still there
  Buffer large(engine, memory, 600, "large");
  push_write(engine, large, 5);
  engine.push(
      [bytes = large.bytes()] {
        EXPECT_THROW(bytes.move_away(), OutOfMemory);
        EXPECT_EQ(bytes.read()[599], std::byte{5});
      },
      {mutate(large.var())});
  engine.wait_all();
}

TEST(Arena, ItsBuffersAreIndependentForTheEngine) {
  Engine engine({.policy = Policy::pool, .workers = 2});
  Arena arena(engine, host_allocator(), 128);
  Buffer a = arena.cut(64), b = arena.cut(64);
  Crowd crowd;
  for (Buffer* const buffer : {&a, &b}) {
    engine.push([&, bytes = buffer->bytes()] { bytes.write(), crowd.meet(2); }, {overwrite(buffer->var())});
  }
  engine.wait_all();
}

TEST(BufferNames, MayPassThroughForwardingFunctions) {
  Engine engine({.workers = 1});
  const auto one = std::make_unique<Buffer>(engine, host_allocator(), 100, "literal");
  std::vector<Buffer> several;
  several.emplace_back(engine, host_allocator(), 100, "another");
  EXPECT_EQ(one->size() + several.front().size(), 200u);
}

}  // namespace
}  // namespace windrow::testing
