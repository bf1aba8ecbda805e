// What ops do with denormal numbers.
#include "windrow/engine/internal/denormals.h"

#include <limits>

#include "tests/engine/support.h"
#include "windrow/engine/parallel.h"

namespace windrow::testing {
namespace {

/// Whether the calling thread takes denormal numbers as zeros, as operands and as results.
bool flushes() {
  volatile float smallest = std::numeric_limits<float>::min(), half = 0.5f, denormal = 1e-40f, large = 1e20f;
  const bool results = smallest * half == 0, operands = denormal * large == 0;
  EXPECT_EQ(results, operands);
  return results;
}
class DenormalOps : public EveryPolicy {
 protected:
  void SetUp() override {
    if (!DenormalsScope::can_flush()) GTEST_SKIP() << "this processor has no such mode";
  }
};
WINDROW_EVERY_POLICY(DenormalOps);

TEST_P(DenormalOps, AreFlushedOnEveryThreadUnlessTheOptionSaysOtherwise) {
  for (const Denormals mode : {Denormals::flush, Denormals::keep}) {
    for (const Denormals of_caller : {Denormals::keep, Denormals::flush}) {
      const DenormalsScope caller(of_caller);
      EngineOptions how = options();
      if (mode == Denormals::keep) how.denormals = mode;
      Engine engine(how);
      const Var var = engine.new_var("var"), chain = engine.new_var("chain");
      std::atomic<int> as_told = 0, otherwise = 0;
      const auto look = [&] { ++(flushes() == (mode == Denormals::flush) ? as_told : otherwise); };
      for (int i = 0; i < 20; ++i) {
        engine.push(look, {read(var)});
        engine.push(look, {mutate(chain)});
      }
      engine.push([&] { parallel_for(40, 1, [&](std::size_t, std::size_t) { look(); }); }, {mutate(var)});
      engine.push(
          [&] {
            engine.push(look, {mutate(chain)});
            engine.wait(chain);  // the thread may run the op meanwhile
            look();
          },
          {read(var)});
      const Graph graph = engine.capture([&] { engine.push(look, {mutate(chain)}); });
      graph.launch();
      engine.push_async(
          [&](OnComplete done) {
            look();
            done();
          },
          {mutate(var)});
      engine.wait_all();
      EXPECT_EQ(otherwise, 0);
      EXPECT_EQ(as_told, 84);
      EXPECT_EQ(flushes(), of_caller == Denormals::flush) << "after ops of an engine";
    }
  }
}

TEST_P(DenormalOps, OfAnEngineInsideAnotherOneHaveTheirOwnMode) {
  Engine outer(options());
  bool inside = true, before = false, after = false;
  const Var var = outer.new_var("var");
  outer.push(
      [&] {
        Engine inner({.policy = Policy::serial, .denormals = Denormals::keep});
        before = flushes();
        inner.push([&] { inside = flushes(); }, {mutate(inner.new_var("inner"))});
        inner.wait_all();
        after = flushes();
      },
      {mutate(var)});
  outer.wait_all();
  EXPECT_TRUE(before && after);
  EXPECT_FALSE(inside);
}

TEST(DenormalsScopes, NestAndGiveBackTheModeOfTheirThread) {
  if (!DenormalsScope::can_flush()) GTEST_SKIP() << "this processor has no such mode";
  std::thread([] {
    EXPECT_FALSE(flushes());
    {
      const DenormalsScope flush(Denormals::flush);
      EXPECT_TRUE(flushes());
      {
        const DenormalsScope keep(Denormals::keep);
        EXPECT_FALSE(flushes());
      }
      EXPECT_EQ(DenormalsScope::mode(), Denormals::flush);
    }
    EXPECT_FALSE(flushes());
    DenormalsScope::set(Denormals::flush);
    EXPECT_TRUE(flushes());
  }).join();
  EXPECT_FALSE(flushes());
}

}  // namespace
}  // namespace windrow::testing
