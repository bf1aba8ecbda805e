// Buffers that end inside a capture: each launch frees their bytes, and the graph owns what is left of them.

#include "tests/engine/support.h"
#include "tests/memory/counting_allocator.h"
#include "windrow/memory/buffer.h"

namespace windrow::testing {
namespace {

class CapturedBuffers : public EngineOnEveryPolicy {
 protected:
  static constexpr std::size_t size = 64;

  /// Ops that write `value` to the buffer's first byte and add that byte to the total.
  void push_write(const Buffer& buffer, int value) {
    engine.push([bytes = buffer.bytes(), value] { *bytes.write() = static_cast<std::byte>(value); },
                {overwrite(buffer.var())});
  }
  void push_add(const Buffer& buffer) {
    engine.push([this, bytes = buffer.bytes()] { total_ += static_cast<int>(*bytes.read()); },
                {read(buffer.var()), mutate(a)});
  }
  /// Its only buffer is made, used and ended in the capture.
  Graph capture_temporary() {
    return engine.capture([&] {
      Buffer buffer(engine, memory_, size, "temporary");
      push_write(buffer, 3);
      push_add(buffer);
    });
  }

  const std::shared_ptr<CountingAllocator> memory_ = std::make_shared<CountingAllocator>();
  int total_ = 0;  // guarded by a
};
WINDROW_EVERY_POLICY(CapturedBuffers);

TEST_P(CapturedBuffers, AreFreedByEachLaunch) {
  const Graph graph = capture_temporary();
  for (int launches = 1; launches <= 3; ++launches) {
    graph.launch();
    engine.wait_all();
    EXPECT_EQ(total_, 3 * launches);
    EXPECT_EQ(memory_->held, 0U);
    EXPECT_EQ(memory_->allocations, launches);
  }
}

TEST_P(CapturedBuffers, TakeNoMemoryInAGraphThatIsNeverLaunched) {
  { const Graph graph = capture_temporary(); }
  engine.wait_all();
  EXPECT_EQ(memory_->allocations, 0);
  EXPECT_EQ(memory_.use_count(), 1);
}

TEST_P(CapturedBuffers, LiveAsLongAsLaunchesThatAreUnderWay) {
  const Var held = engine.new_var("held");
  Gate gate;
  Graph graph = engine.capture([&] {
    Buffer buffer(engine, memory_, size);
    const auto wait_and_write = [&, bytes = buffer.bytes()] {
      gate.await();
      bytes.write();
    };
    engine.push(wait_and_write, {overwrite(buffer.var()), mutate(held)});
    push_write(buffer, 1);
    push_add(buffer);
  });
  std::jthread opens([&] { gate.open(); });
  for (int i = 0; i < 20; ++i) graph.launch();
  graph = {};
  engine.wait_all();
  EXPECT_EQ(total_, 20);
  EXPECT_EQ(memory_->held, 0U);
  EXPECT_EQ(memory_.use_count(), 1);
}

TEST_P(CapturedBuffers, OfOneGraphAreSharedByAGraphThatLaunchesIt) {
  Graph inner = capture_temporary();
  const Graph outer = engine.capture([&] { inner.launch(), inner.launch(); });
  inner.launch();
  inner = {};
  outer.launch();
  outer.launch();
  engine.wait_all();
  EXPECT_EQ(total_, 5 * 3);
  EXPECT_EQ(memory_->held, 0U);
}

TEST_P(CapturedBuffers, ThatWereMadeOutsideAreFreedByTheOnlyLaunch) {
  std::optional<Buffer> buffer(Buffer(engine, memory_, size, "outside"));
  push_write(*buffer, 5);
  const Graph graph = engine.capture([&] {
    push_add(*buffer);
    buffer.reset();
  });
  engine.wait_all();
  EXPECT_EQ(memory_->held, size);
  graph.launch();
  expect_error<MisuseError>([&] { graph.launch(); }, "variable 'outside', which was retired");
  engine.wait_all();
  EXPECT_EQ(total_, 5);
  EXPECT_EQ(memory_->held, 0U);
}

TEST_P(CapturedBuffers, ThatWereMadeOutsideAreFreedWithAGraphThatIsNeverLaunched) {
  std::optional<Buffer> buffer(std::in_place, engine, memory_, size);
  HeldOp held(engine, {mutate(a)});
  push_write(*buffer, 5);
  push_add(*buffer);
  Graph graph = engine.capture([&] { buffer.reset(); });
  graph = {};  // while ops that use the bytes wait
  held.complete();
  engine.wait_all();
  EXPECT_EQ(total_, 5);
  EXPECT_EQ(memory_->held, 0U);
  EXPECT_EQ(memory_.use_count(), 1);
}

TEST_P(CapturedBuffers, AreFreedIfTheBodyThrows) {
  std::optional<Buffer> outside(std::in_place, engine, memory_, size);
  push_write(*outside, 5);
  push_add(*outside);
  const auto body = [&] {
    Buffer inside(engine, memory_, size);
    push_write(inside, 1);
    outside.reset();
    throw std::runtime_error("the body");
  };
  EXPECT_THROW(engine.capture(body), std::runtime_error);
  engine.wait_all();
  EXPECT_EQ(total_, 5);
  EXPECT_EQ(memory_->held, 0U);
  EXPECT_EQ(memory_.use_count(), 1);
}

TEST_P(CapturedBuffers, AreFreedThoughTheirWriterFails) {
  const Graph graph = engine.capture([&] {
    Buffer buffer(engine, memory_, size);
    engine.push([bytes = buffer.bytes()] { bytes.write(), throw std::runtime_error("after the write"); },
                {overwrite(buffer.var())}, {.name = "breaks"});
    push_add(buffer);
  });
  for (int i = 0; i < 2; ++i) {
    graph.launch();
    EXPECT_THROW(engine.wait(a), OpError);
    EXPECT_THROW(engine.wait_all(), OpError);
    EXPECT_EQ(memory_->held, 0U);
    engine.heal(a);
  }
}

TEST_P(CapturedBuffers, OfAnArenaShareItsBlockInEachLaunch) {
  const Graph graph = engine.capture([&] {
    Arena arena(engine, memory_, 2 * size);
    Buffer one = arena.cut(size, "one"), two = arena.cut(size, "two");
    push_write(one, 1);
    push_write(two, 2);
    push_add(one);
    push_add(two);
  });
  for (int launches = 1; launches <= 3; ++launches) {
    graph.launch();
    engine.wait_all();
    EXPECT_EQ(total_, 3 * launches);
    EXPECT_EQ(memory_->held, 0U);
  }
  EXPECT_EQ(memory_->most_held, 2 * size);
}

TEST_P(CapturedBuffers, OfAnArenaKeepTheBlockWhileABufferOutsideLives) {
  std::optional<Arena> arena(std::in_place, engine, memory_, 2 * size);
  std::optional<Buffer> outside(arena->cut(size));
  push_write(*outside, 1);
  const Graph graph = engine.capture([&] {
    Buffer inside = arena->cut(size);
    push_write(inside, 2);
    push_add(inside);
    push_add(*outside);
  });
  arena.reset();
  for (int i = 0; i < 3; ++i) graph.launch();
  engine.wait_all();
  EXPECT_EQ(total_, 9);
  EXPECT_EQ(memory_->allocations, 1);
  EXPECT_EQ(memory_->held, 2 * size);
  outside.reset();
  engine.wait_all();
  EXPECT_EQ(memory_->held, 0U);
}

TEST_P(CapturedBuffers, MayOutliveTheirEngineInsideTheirGraph) {
  auto ending = std::make_unique<Engine>(options());
  const auto make = [&] {
    return ending->capture([&] {
      Buffer buffer(*ending, memory_, size);
      ending->push([bytes = buffer.bytes()] { bytes.write(); }, {overwrite(buffer.var())});
    });
  };
  std::optional<Buffer> outside(std::in_place, *ending, memory_, size);
  ending->push([bytes = outside->bytes()] { bytes.write(); }, {overwrite(outside->var())});
  Graph launched = make(), never = make(), ends_another = ending->capture([&] { outside.reset(); });
  launched.launch();
  ending.reset();
  launched = never = ends_another = {};
  EXPECT_EQ(memory_->held, 0U);
  EXPECT_EQ(memory_.use_count(), 1);
}

TEST(CapturedBuffers, FromOutsideThatEndInACaptureAreNamedByTheSecondLaunch) {
  Engine engine({.policy = Policy::serial});
  std::optional<Buffer> outside(std::in_place, engine, host_allocator(), 64, "outside");
  const int line = __LINE__ + 1;
  const Graph graph = engine.capture([&] { outside.reset(); });
  graph.launch();
  expect_error<MisuseError>([&] { graph.launch(); },
                            {"variable 'outside'", "this graph's first launch (captured at " + std::string(__FILE__) +
                                                       ":" + std::to_string(line) + "): keep the tensor's handle"});
}

TEST(CapturedBuffersChecked, AreWatchedInEachLaunch) {
  Engine engine({.check = true});
  const Var other = engine.new_var("other");
  bool breaks = false;
  const Graph graph = engine.capture([&] {
    Buffer buffer(engine, host_allocator(), 64, "temporary");
    engine.push([bytes = buffer.bytes()] { std::fill_n(bytes.write(), 64, std::byte{1}); }, {overwrite(buffer.var())});
    engine.push([&, bytes = buffer.bytes()] { *bytes.update() = breaks ? std::byte{2} : std::byte{1}; },
                {read(buffer.var()), mutate(other)}, {.name = "strays"});
  });
  for (int i = 0; i < 2; ++i) {
    breaks = false;
    graph.launch();
    engine.wait_all();
    breaks = true;
    graph.launch();
    expect_error<OpError>([&] { engine.wait(other); },
                          {"op 'strays'", "changed variable 'temporary', which it declared only to read"});
    engine.heal(other);
    engine.wait(other);
  }
}

}  // namespace
}  // namespace windrow::testing
