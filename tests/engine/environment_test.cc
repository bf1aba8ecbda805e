// The environment chooses for engines that do not choose for themselves.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "support.h"

namespace windrow::testing {
namespace {

/// While it lives, the variable has this value, or none.
class Environment {
 public:
  Environment(const char* variable, const char* value) : variable_(variable) {
    if (const char* before = std::getenv(variable)) before_ = before;
    set(value);
  }
  ~Environment() { set(before_ ? before_->c_str() : nullptr); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  void set(const char* value) {
    if (value == nullptr) {
      unsetenv(variable_);
    } else {
      setenv(variable_, value, 1);
    }
  }

  const char* const variable_;
  std::optional<std::string> before_;
};

TEST(Environment, ChoosesThePolicy) {
  for (const Policy policy : {Policy::serial, Policy::pool, Policy::per_device, Policy::chaos}) {
    const Environment set("WINDROW_POLICY", std::string(to_string(policy)).c_str());
    EXPECT_EQ(EngineOptions().policy, policy);
  }
  const Environment set("WINDROW_POLICY", "chaos");
  // Of the policies, chaos alone ignores priority.
  Engine engine(EngineOptions{.workers = 1});
  std::vector<int> order;
  StuckOp stuck(engine, {});
  for (int i = 0; i < 20; ++i) engine.push([&, i] { order.push_back(i); }, {}, {.priority = i});
  stuck.let_go();
  ASSERT_TRUE(engine.wait_all_for(patience));
  EXPECT_EQ(order.size(), 20u);
  EXPECT_FALSE(std::is_sorted(order.rbegin(), order.rend()));
}

TEST(Environment, ChoosesTheNumberOfWorkers) {
  const Environment set("WINDROW_WORKERS", "3");
  EXPECT_EQ(Engine().workers(), 3);
  EXPECT_EQ(Engine({.policy = Policy::pool}).workers(), 3);
}

TEST(Environment, ChoosesNothingWhereItIsNotSetOrEmpty) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    const Environment policy("WINDROW_POLICY", value), workers("WINDROW_WORKERS", value);
    EXPECT_EQ(EngineOptions().policy, Policy::pool);
    EXPECT_EQ(EngineOptions().workers, default_workers());
  }
}

TEST(Environment, ChoosesNothingForWhoChoosesAtOnceOrLater) {
  const Environment policy("WINDROW_POLICY", "no policy"), workers("WINDROW_WORKERS", "no number");
  EngineOptions chosen;
  chosen.policy = Policy::serial;
  chosen.workers = 2;
  for (const EngineOptions& options : {EngineOptions{.policy = Policy::serial, .workers = 2}, chosen}) {
    Engine engine(options);
    EXPECT_EQ(engine.workers(), 2);
    bool ran = false;
    engine.push([&] { ran = true; }, {});
    EXPECT_TRUE(ran);
  }
  EXPECT_THROW(Engine{EngineOptions()}, MisuseError);
}

TEST(Environment, IsRefusedWhereAProgramCanCatchIt) {
  const Environment policy("WINDROW_POLICY", "no policy");
  // As an ordinary main would; in a process of its own.
  const auto run = [] {
    try {
      Engine engine;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "program: %s\n", e.what());
      std::exit(2);
    }
    std::exit(0);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(2),
              "^program: the environment variable WINDROW_POLICY is 'no policy'; expected serial, pool, per_device or "
              "chaos\n$");
}

TEST(Environment, IsRefusedWithItsNameItsValueAndWhatWasExpected) {
  {
    const Environment set("WINDROW_POLICY", "Pool");
    EXPECT_EQ(error_of<MisuseError>([] { Engine engine; }),
              "the environment variable WINDROW_POLICY is 'Pool'; expected serial, pool, per_device or chaos");
  }
  for (const std::string value : {"0", "-1", "two", "2x", " 2", "1.5", "99999999999"}) {
    const Environment set("WINDROW_WORKERS", value.c_str());
    EXPECT_EQ(error_of<MisuseError>([] { Engine engine; }),
              "the environment variable WINDROW_WORKERS is '" + value + "'; expected a whole number, 1 or more");
  }
}

}  // namespace
}  // namespace windrow::testing
