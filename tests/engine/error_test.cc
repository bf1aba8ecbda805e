// Poison: what a failing op does to what it touches, and what is told of it.
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "support.h"

namespace windrow::testing {
namespace {

using ::testing::Test;

class ErrorTest : public EveryPolicy {
 protected:
  static void boom() { throw std::out_of_range("boom"); }
  static bool contains(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
    return true;
  }

  Engine engine{options()};
  Var a = engine.new_var("a"), b = engine.new_var("b"), c = engine.new_var("c");
};
WINDROW_EVERY_POLICY(ErrorTest);

TEST_P(ErrorTest, AWaitThrowsEveryTime) {
  engine.push(boom, {mutate(a)}, {.name = "load"});
  for (int i = 0; i < 3; ++i) EXPECT_THROW(engine.wait(a), OpError);
  EXPECT_THROW(engine.wait_all(), OpError);
  EXPECT_THROW(engine.wait_all(), OpError);
  engine.wait(b);
}

TEST_P(ErrorTest, TheErrorNamesTheOpItsPushAndTheChain) {
  const int line = __LINE__ + 1;
  engine.push(boom, {mutate(a)}, {.name = "load"});
  engine.push([] {}, {read(a), mutate(b)}, {.name = "scale"});
  engine.push([] {}, {read(b), mutate(c)}, {.name = std::string("su") + "m"});
  const std::string text = error_of<OpError>([&] { engine.wait(c); });
  const std::string here = std::string(__FILE__) + ":";
  EXPECT_EQ(text, "op 'sum' (pushed at " + here + std::to_string(line + 2) +
                      ") was skipped because op 'scale' (pushed at " + here + std::to_string(line + 1) +
                      ") was skipped because op 'load' (pushed at " + here + std::to_string(line) + ") failed: boom");
}

TEST_P(ErrorTest, TheFirstErrorCanBeRethrownAsItWas) {
  engine.push(boom, {mutate(a)});
  engine.push([] {}, {read(a), mutate(b)});
  try {
    engine.wait(b);
    FAIL();
  } catch (const OpError& e) {
    EXPECT_EQ(e.failures().size(), 1u);
    EXPECT_THROW(e.rethrow_root(), std::out_of_range);
  }
}

TEST_P(ErrorTest, APoisonedInputSkipsTheOpAndNothingElse) {
  bool skipped_ran = false, other_ran = false;
  engine.push(boom, {mutate(a)});
  engine.push([&] { skipped_ran = true; }, {read(a), mutate(b)});
  engine.push([&] { other_ran = true; }, {mutate(c)});
  EXPECT_THROW(engine.wait(b), OpError);
  engine.wait(c);
  EXPECT_FALSE(skipped_ran);
  EXPECT_TRUE(other_ran);
  EXPECT_EQ(engine.version(a), 1u);
  EXPECT_EQ(engine.version(b), 0u);
}

TEST_P(ErrorTest, OverwriteAndHealClearPoison) {
  engine.push(boom, {mutate(a)});
  engine.push(boom, {mutate(b)});
  engine.push([] {}, {overwrite(a)});
  engine.heal(b);
  engine.wait({read(a), read(b)});
  EXPECT_THROW(engine.wait_all(), OpError);  // nobody was told yet
  engine.wait_all();
}

TEST_P(ErrorTest, AHealCountsAsAnotherValue) {
  engine.push([] {}, {mutate(a)});
  engine.push(boom, {mutate(a)});
  EXPECT_THROW(engine.wait(a), OpError);
  EXPECT_EQ(engine.version(a), 2u);
  engine.heal(a);
  engine.wait(a);
  EXPECT_EQ(engine.version(a), 3u);
}

TEST_P(ErrorTest, AFailedOverwriteReplacesThePoisonUntilOneRuns) {
  engine.push(boom, {mutate(a)}, {.name = "first"});
  engine.push(boom, {overwrite(a)}, {.name = "second"});
  const std::string text = error_of<OpError>([&] { engine.wait(a); });
  EXPECT_NE(text.find("op 'second'"), std::string::npos) << text;
  EXPECT_EQ(text.find("op 'first'"), std::string::npos) << text;
  engine.push([] {}, {overwrite(a)});
  engine.wait(a);
}

TEST_P(ErrorTest, AMutateDoesNotClearPoisonAndKeepsItsOrigin) {
  engine.push(boom, {mutate(a)}, {.name = "load"});
  engine.push([] {}, {mutate(a)}, {.name = "step"});
  const std::string text = error_of<OpError>([&] { engine.wait(a); });
  EXPECT_EQ(text.find("step"), std::string::npos) << text;
}

TEST_P(ErrorTest, ASkippedOverwriteStillPoisons) {
  engine.push(boom, {mutate(a)});
  engine.push([] {}, {read(a), overwrite(b)});
  EXPECT_THROW(engine.wait(b), OpError);
}

TEST_P(ErrorTest, ARunAlwaysOpIsToldAndMayGoOn) {
  FailurePtr told, told_async;
  engine.push(boom, {mutate(a)}, {.name = "load"});
  engine.push([&](OpContext& context) { told = context.failure(); }, {read(a), mutate(b)}, {.run_always = true});
  engine.push_async(
      [&](OnComplete done) {
        told_async = done.failure();
        done();
      },
      {read(a), mutate(c)}, {.run_always = true});
  engine.wait({read(b), read(c)});
  ASSERT_TRUE(told && told_async);
  EXPECT_EQ(told->name, "load");
  EXPECT_EQ(told_async->name, "load");
}

TEST_P(ErrorTest, AHealthyRunAlwaysOpIsToldNothing) {
  FailurePtr told;
  engine.push([&](OpContext& context) { told = context.failure(); }, {mutate(b)}, {.run_always = true});
  engine.wait(b);
  EXPECT_FALSE(told);
}

TEST_P(ErrorTest, ADroppedTokenIsAnErrorAndNoHang) {
  engine.push_async([](OnComplete) {}, {mutate(a)}, {.name = "copy"});
  contains(error_of<OpError>([&] { engine.wait(a); }), "its OnComplete was destroyed without being called");
}

TEST_P(ErrorTest, AnAsyncOpFailsByItsTokenOrByItsFunction) {
  engine.push_async([](OnComplete done) { done(std::make_exception_ptr(std::runtime_error("by token"))); },
                    {mutate(a)});
  engine.push_async([](OnComplete) { throw std::runtime_error("by function"); }, {mutate(b)});
  contains(error_of<OpError>([&] { engine.wait(a); }), "by token");
  contains(error_of<OpError>([&] { engine.wait(b); }), "by function");
}

TEST_P(ErrorTest, CallingATokenTwiceIsMisuse) {
  std::string text;
  engine.push_async(
      [&](OnComplete done) {
        done();
        text = error_of<MisuseError>([&] { done(); });
      },
      {mutate(a)});
  engine.wait(a);
  engine.wait_all();
  contains(text, "OnComplete was called before");
}

TEST_P(ErrorTest, WaitAllNamesEveryRoot) {
  engine.push([] { throw std::runtime_error("first"); }, {mutate(a)});
  engine.push([] { throw std::runtime_error("second"); }, {mutate(b)});
  engine.push([] {}, {read(a), mutate(c)});
  const std::string text = error_of<OpError>([&] { engine.wait_all(); });
  contains(text, "first");
  contains(text, "second");
}

TEST_P(ErrorTest, AnErrorWithoutAVariableIsToldOnceByWaitAll) {
  engine.push(boom, {});
  engine.push(boom, {mutate(a)});
  engine.retire(a);
  contains(error_of<OpError>([&] { engine.wait_all(); }), "boom");
  engine.wait_all();
}

TEST_P(ErrorTest, AThrownNonExceptionIsAnErrorToo) {
  engine.push([] { throw 42; }, {mutate(a)});
  contains(error_of<OpError>([&] { engine.wait(a); }), "an exception that is no std::exception");
}

TEST_P(ErrorTest, ALongChainKeepsItsEndsAndCountsTheRest) {
  engine.push(boom, {mutate(a)}, {.name = "root"});
  for (int i = 0; i < 1000; ++i) {
    const bool even = i % 2 == 0;
    engine.push([] {}, {read(even ? a : b), overwrite(even ? b : a)}, {.name = "link"});
    engine.heal(even ? a : b);
  }
  const std::string text = error_of<OpError>([&] { engine.wait(a); });
  contains(text, "more failures between");
  contains(text, "op 'root'");
  EXPECT_LT(text.size(), 5000u);
}

TEST_P(ErrorTest, ManyForgottenErrorsDoNotPileUp) {
  for (int i = 0; i < 2000; ++i) {
    engine.push(boom, {mutate(a)});
    EXPECT_THROW(engine.wait(a), OpError);
    engine.heal(a);
  }
  engine.wait(a);
  engine.wait_all();
}

TEST_P(ErrorTest, NamesOutliveTheStringsTheyWereMadeOf) {
  const auto long_name = [](char letter) { return std::string(60, letter); };
  {
    PushOptions options{.name = long_name('x')};
    std::vector<std::string> reused(100, long_name('#'));
    engine.push(boom, {mutate(a)}, options);
  }
  contains(error_of<OpError>([&] { engine.wait(a); }), "op '" + long_name('x') + "'");
}

TEST_P(ErrorTest, OneExceptionThrownByTwoOpsIsTwoFailures) {
  const auto lost = std::make_exception_ptr(std::runtime_error("connection lost"));
  engine.push_async([=](OnComplete done) { done(lost); }, {mutate(a)}, {.name = "first"});
  engine.push_async([=](OnComplete done) { done(lost); }, {mutate(b)}, {.name = "second"});
  contains(error_of<OpError>([&] { engine.wait(a); }), "op 'first'");
  contains(error_of<OpError>([&] { engine.wait(b); }), "op 'second'");
}

TEST_P(ErrorTest, AnErrorOfAWaitInsideBecomesTheCause) {
  engine.push(
      [&] {
        engine.push(boom, {mutate(b)}, {.name = "inner"});
        engine.wait(b);
      },
      {mutate(a)}, {.name = "outer"});
  const std::string text = error_of<OpError>([&] { engine.wait(a); });
  contains(text, "op 'outer'");
  contains(text, "failed in a wait because op 'inner'");
  EXPECT_EQ(text.find("boom"), text.rfind("boom"));
}

TEST_P(ErrorTest, AMessageThatIsNullIsAnErrorToo) {
  struct Silent : std::exception {
    const char* what() const noexcept override { return nullptr; }
  };
  engine.push([] { throw Silent(); }, {mutate(a)});
  contains(error_of<OpError>([&] { engine.wait(a); }), "an exception whose what() is null");
}

TEST_P(ErrorTest, TheTextOfManyFailuresIsShort) {
  for (int i = 0; i < 5000; ++i) engine.push(boom, {});
  const std::string text = error_of<OpError>([&] { engine.wait_all(); });
  contains(text, "; and 4990 more");
  EXPECT_LT(text.size(), 5000u);
}

TEST_P(ErrorTest, AnErrorThatIsThrownOnIsNewsAgain) {
  engine.push(boom, {mutate(a)}, {.name = "load"});
  std::exception_ptr kept;
  try {
    engine.wait(a);
  } catch (...) {
    kept = std::current_exception();
  }
  engine.heal(a);
  engine.wait_all();
  engine.push([&] { std::rethrow_exception(kept); }, {mutate(b)});
  contains(error_of<OpError>([&] { engine.wait_all(); }), "boom");
  EXPECT_THROW(engine.wait(b), OpError);
}

TEST_P(ErrorTest, WhatOnlyAnOpWasToldIsToldOutsideToo) {
  engine.push(boom, {mutate(a)}, {.name = "load"});
  engine.push([&] { engine.wait(a); }, {});
  engine.heal(a);
  contains(error_of<OpError>([&] { engine.wait_all(); }), "boom");
  engine.wait_all();
}

TEST_P(ErrorTest, WhatNobodyWaitedForIsToldOnStandardError) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  {
    Engine forgotten(options());
    forgotten.push(boom, {}, {.name = "load"});
  }
  const std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  contains(told, "nobody waited for this: op 'load'");
  contains(told, "boom");
}

TEST_P(ErrorTest, OfFailuresThatHaveOneOriginOneIsTold) {
  const std::exception_ptr origin = std::make_exception_ptr(std::runtime_error("the network is down"));
  const auto fail = [&](const std::string& what) {
    try {
      std::rethrow_exception(origin);
    } catch (...) {
      std::throw_with_nested(std::runtime_error(what));
    }
  };
  ::testing::internal::CaptureStderr();
  {
    Engine forgotten(options());
    forgotten.push([&] { fail("first"); }, {}, {.name = "first"});
    forgotten.push([&] { fail("second"); }, {}, {.name = "second"});
    forgotten.push(boom, {}, {.name = "load"});
  }
  const std::string told = ::testing::internal::GetCapturedStderr();
  const std::size_t first = told.find("nobody waited"), second = told.find("nobody waited", first + 1);
  EXPECT_NE(second, told.npos) << told;
  EXPECT_EQ(told.find("nobody waited", second + 1), told.npos) << told;
  contains(told, "op 'load'");
  {
    Engine heard(options());
    const Var var = heard.new_var();
    heard.push([&] { fail("first"); }, {mutate(var)});
    heard.push([&] { fail("second"); }, {});
    try {
      heard.wait(var);
      ADD_FAILURE();
    } catch (const OpError& error) {
      EXPECT_EQ(error.failures().front()->origin(), origin);
    }
    ::testing::internal::CaptureStderr();
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_P(ErrorTest, AnOriginThatWasReportedIsNotToldAgain) {
  const std::exception_ptr origin = std::make_exception_ptr(std::runtime_error("the network is down"));
  const auto fail = [&] {
    try {
      std::rethrow_exception(origin);
    } catch (...) {
      std::throw_with_nested(std::runtime_error("lost"));
    }
  };
  ::testing::internal::CaptureStderr();
  {
    Engine heard(options());
    const Var var = heard.new_var();
    heard.push(fail, {mutate(var)});
    EXPECT_THROW(heard.wait_all(), OpError);
    heard.heal(var);
    heard.wait_all();  // forgets the failure
    heard.push(fail, {});
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_P(ErrorTest, EachDroppedTokenIsTold) {
  ::testing::internal::CaptureStderr();
  {
    Engine forgotten(options());
    const Var var = forgotten.new_var();
    forgotten.push_async([](OnComplete) {}, {mutate(var)}, {.name = "first"});
    forgotten.push_async([](OnComplete) {}, {}, {.name = "second"});
    forgotten.push_async([](OnComplete) {}, {}, {.name = "third"});
    std::exception_ptr origin;
    try {
      forgotten.wait(var);
    } catch (const OpError& error) {
      origin = error.failures().front()->origin();
    }
    ASSERT_TRUE(origin);
    forgotten.heal(var);
    // A failure that nests the first one, and is reported.
    forgotten.push(
        [&] {
          try {
            std::rethrow_exception(origin);
          } catch (...) {
            std::throw_with_nested(std::runtime_error("lost"));
          }
        },
        {mutate(var)});
    EXPECT_THROW(forgotten.wait(var), OpError);
  }
  const std::string told = ::testing::internal::GetCapturedStderr();
  for (const char* const name : {"'second'", "'third'"}) contains(told, name);
}

TEST_P(ErrorTest, AnErrorOfAnotherEngineIsAnErrorLikeAnyOther) {
  std::exception_ptr foreign;
  {
    Engine other(options());
    const Var v = other.new_var();
    other.push(boom, {mutate(v)}, {.name = "elsewhere"});
    try {
      other.wait(v);
    } catch (...) {
      foreign = std::current_exception();
    }
  }
  engine.push([&] { std::rethrow_exception(foreign); }, {mutate(a)});
  contains(error_of<OpError>([&] { engine.wait_all(); }), "op 'elsewhere'");
}

}  // namespace
}  // namespace windrow::testing
