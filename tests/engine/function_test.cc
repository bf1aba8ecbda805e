#include "windrow/engine/function.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>

namespace windrow {
namespace {

TEST(Function, CallsWhatItHoldsSmallOrLarge) {
  std::array<int, 4> small{1, 2, 3, 4};
  std::array<int, 100> large{};
  large[99] = 5;
  Function<int(int)> f = [small](int i) { return small[static_cast<std::size_t>(i)]; };
  Function<int(int)> g = [large](int i) { return large[static_cast<std::size_t>(i)]; };
  EXPECT_EQ(f(2), 3);
  EXPECT_EQ(g(99), 5);
}

TEST(Function, MayIgnoreItsArguments) {
  Function<int(int)> f = [] { return 9; };
  EXPECT_EQ(f(1), 9);
}

TEST(Function, MovesWithItsTargetAndDestroysItOnce) {
  auto token = std::make_shared<std::string>("x");
  const std::weak_ptr<std::string> watch = token;
  Function<std::size_t()> f = [token = std::move(token)] { return token.use_count() + 0u; };
  Function<std::size_t()> g = std::move(f);
  EXPECT_FALSE(f);
  EXPECT_TRUE(g);
  EXPECT_EQ(g(), 1u);
  f = std::move(g);
  EXPECT_FALSE(watch.expired());
  f = nullptr;
  EXPECT_TRUE(watch.expired());
}

TEST(Function, HoldsMoveOnlyTargetsAndPassesMoveOnlyArguments) {
  Function<int(std::unique_ptr<int>)> f = [base = std::make_unique<int>(1)](std::unique_ptr<int> p) {
    return *base + *p;
  };
  EXPECT_EQ(f(std::make_unique<int>(2)), 3);
}

}  // namespace
}  // namespace windrow
