// Poison: what is told of a failing op. Which ops and variables it reaches is compared by the oracle
// (random_program.h).
#include <stdexcept>

#include "support.h"
#include "windrow/engine/internal/weak_op_error.h"

namespace windrow::testing {
namespace {

class ErrorTest : public EngineOnEveryPolicy {
 protected:
  static void boom() { throw std::out_of_range("boom"); }
  /// What an engine tells on standard error as it ends, in which the program ran.
  template <class F>
  static std::string told_at_the_end(F&& program) {
    return stderr_of([&] {
      Engine ending(options());
      program(ending);
    });
  }
  /// The error that the call throws.
  template <class F>
  static OpError error(F&& call) {
    try {
      call();
    } catch (const OpError& e) {
      return e;
    }
    throw std::logic_error("no error");
  }
  static std::string names_of(const std::vector<Poisoned>& poisoned) {
    std::string names;
    for (const Poisoned& one : poisoned) names += (names.empty() ? "" : " ") + one.name;
    return names;
  }
  /// Throws an error that nests the origin.
  static void fail_by(const std::exception_ptr& origin, const std::string& what = "lost") {
    try {
      std::rethrow_exception(origin);
    } catch (...) {
      std::throw_with_nested(std::runtime_error(what));
    }
  }
};
WINDROW_EVERY_POLICY(ErrorTest);

TEST_P(ErrorTest, AWaitThrowsEveryTime) {
  engine.push(boom, {mutate(a)}, {.name = "load"});
  for (int i = 0; i < 3; ++i) EXPECT_THROW(engine.wait(a), OpError);
  EXPECT_THROW(engine.wait_all(), OpError);
  EXPECT_THROW(engine.wait_all(), OpError);
  engine.wait(b);
}

TEST_P(ErrorTest, TheErrorNamesTheOpItsPushAndTheChainAndRethrowsTheFirstError) {
  const int line = __LINE__ + 1;
  engine.push(boom, {mutate(a)}, {.name = "load"});
  engine.push([] {}, {read(a), mutate(b)}, {.name = "scale"});
  engine.push([] {}, {read(b), mutate(c)}, {.name = std::string(60, 'x')});  // names outlive their text
  const std::string text = error_of<OpError>([&] { engine.wait(c); });
  const std::string here = std::string(__FILE__) + ":";
  EXPECT_EQ(text, "op '" + std::string(60, 'x') + "' (pushed at " + here + std::to_string(line + 2) +
                      ") was skipped because op 'scale' (pushed at " + here + std::to_string(line + 1) +
                      ") was skipped because op 'load' (pushed at " + here + std::to_string(line) + ") failed: boom");
  expect_root<std::out_of_range>([&] { engine.wait(c); });
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

TEST_P(ErrorTest, AFailedOverwriteReplacesThePoisonAndAMutateDoesNot) {
  engine.push(boom, {mutate(a)}, {.name = "first"});
  engine.push([] {}, {mutate(a)}, {.name = "step"});
  EXPECT_EQ(error_of<OpError>([&] { engine.wait(a); }).find("step"), std::string::npos);
  engine.push(boom, {overwrite(a)}, {.name = "second"});
  const std::string text = error_of<OpError>([&] { engine.wait(a); });
  EXPECT_TRUE(text.starts_with("op 'second'") && text.find("op 'first'") == text.npos) << text;
}

TEST_P(ErrorTest, ARunAlwaysOpIsToldAndMayGoOn) {
  FailurePtr told, told_async, none;
  engine.push(boom, {mutate(a)}, {.name = "load"});
  engine.push([&](OpContext& context) { none = context.failure(); }, {mutate(b)}, {.run_always = true});
  engine.push([&](OpContext& context) { told = context.failure(); }, {read(a), mutate(b)}, {.run_always = true});
  engine.push_async([&](OnComplete done) { told_async = done.failure(), done(); }, {read(a), mutate(c)},
                    {.run_always = true});
  engine.wait({read(b), read(c)});
  ASSERT_TRUE(told && told_async);
  EXPECT_EQ(told->name, "load");
  EXPECT_EQ(told_async->name, "load");
  EXPECT_FALSE(none);
}

TEST_P(ErrorTest, ADroppedTokenIsAnErrorAndNoHang) {
  engine.push_async([](OnComplete) {}, {mutate(a)}, {.name = "copy"});
  expect_error<OpError>([&] { engine.wait(a); }, "its OnComplete was destroyed without being called");
}

TEST_P(ErrorTest, AnAsyncOpFailsByItsTokenOrByItsFunction) {
  engine.push_async([](OnComplete done) { done(std::make_exception_ptr(std::runtime_error("by token"))); },
                    {mutate(a)});
  engine.push_async([](OnComplete) { throw std::runtime_error("by function"); }, {mutate(b)});
  expect_error<OpError>([&] { engine.wait(a); }, "by token");
  expect_error<OpError>([&] { engine.wait(b); }, "by function");
}

TEST_P(ErrorTest, CallingATokenTwiceIsMisuse) {
  const auto twice = [&](OnComplete done) {
    done();
    expect_error<MisuseError>([&] { done(); }, "OnComplete was called before");
  };
  engine.push_async(twice, {mutate(a)});
  engine.wait_all();
}

TEST_P(ErrorTest, WaitAllNamesEveryRoot) {
  engine.push([] { throw std::runtime_error("first"); }, {mutate(a)});
  engine.push([] { throw std::runtime_error("second"); }, {mutate(b)});
  engine.push([] {}, {read(a), mutate(c)});
  expect_error<OpError>([&] { engine.wait_all(); }, {"first", "second"});
}

TEST_P(ErrorTest, AnErrorWithoutAVariableIsToldOnceByWaitAll) {
  engine.push(boom, {});
  engine.push(boom, {mutate(a)});
  engine.retire(a);
  expect_error<OpError>([&] { engine.wait_all(); }, "boom");
  engine.wait_all();
}

TEST_P(ErrorTest, AThrownNonExceptionAndANullMessageAreErrorsToo) {
  struct Silent : std::exception {
    const char* what() const noexcept override { return nullptr; }
  };
  engine.push([] { throw 42; }, {mutate(a)});
  engine.push([] { throw Silent(); }, {mutate(b)});
  expect_error<OpError>([&] { engine.wait(a); }, "an exception that is no std::exception");
  expect_error<OpError>([&] { engine.wait(b); }, "an exception whose what() is null");
}

TEST_P(ErrorTest, ALongChainKeepsItsEndsAndCountsTheRest) {
  engine.push(boom, {mutate(a)}, {.name = "root"});
  for (int i = 0; i < 1000; ++i) {
    const bool even = i % 2 == 0;
    engine.push([] {}, {read(even ? a : b), overwrite(even ? b : a)}, {.name = "link"});
    engine.heal(even ? a : b);
  }
  const std::string text = expect_error<OpError>([&] { engine.wait(a); }, {"more failures between", "op 'root'"});
  EXPECT_LT(text.size(), 5000u);
}

TEST_P(ErrorTest, OneExceptionThrownByTwoOpsIsTwoFailures) {
  const auto lost = std::make_exception_ptr(std::runtime_error("connection lost"));
  engine.push_async([=](OnComplete done) { done(lost); }, {mutate(a)}, {.name = "first"});
  engine.push_async([=](OnComplete done) { done(lost); }, {mutate(b)}, {.name = "second"});
  expect_error<OpError>([&] { engine.wait(a); }, "op 'first'");
  expect_error<OpError>([&] { engine.wait(b); }, "op 'second'");
}

TEST_P(ErrorTest, AnErrorOfAWaitInsideBecomesTheCause) {
  engine.push(
      [&] {
        engine.push(boom, {mutate(b)}, {.name = "inner"});
        engine.wait(b);
      },
      {mutate(a)}, {.name = "outer"});
  const std::string text =
      expect_error<OpError>([&] { engine.wait(a); }, {"op 'outer'", "failed in a wait because op 'inner'"});
  EXPECT_EQ(text.find("boom"), text.rfind("boom"));
}

TEST_P(ErrorTest, TheTextOfManyFailuresIsShort) {
  for (int i = 0; i < 5000; ++i) engine.push(boom, {});
  const std::string text = expect_error<OpError>([&] { engine.wait_all(); }, "; and 4990 more");
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
  expect_error<OpError>([&] { engine.wait_all(); }, "boom");
  EXPECT_THROW(engine.wait(b), OpError);
  Engine other(options());  // to which it is an error like any other
  const Var v = other.new_var();
  other.push([&] { std::rethrow_exception(kept); }, {mutate(v)});
  expect_error<OpError>([&] { other.wait_all(); }, "op 'load'");
}

TEST_P(ErrorTest, PoisonedNamesAllVariablesWithTheFailureAndNoOthers) {
  const Var d = engine.new_var("d");
  engine.push(boom, {mutate(a)}, {.name = "load"});
  engine.push([] {}, {read(a), mutate(b)}, {.name = "scale"});
  engine.push(boom, {mutate(c)}, {.name = "other"});
  engine.push([] {}, {mutate(d)});
  const OpError of_all = error([&] { engine.wait_all(); });
  EXPECT_EQ(names_of(of_all.poisoned()), "a b c");
  const OpError of_b = error([&] { engine.wait(b); });
  const std::vector<Poisoned> poisoned = of_b.poisoned();
  ASSERT_EQ(names_of(poisoned), "a b");
  EXPECT_EQ(poisoned[0].var, a);
  EXPECT_EQ(poisoned[0].failure->name, "load");
  EXPECT_EQ(poisoned[1].failure->name, "scale");
  EXPECT_EQ(&poisoned[0].failure->root(), &poisoned[1].failure->root());
}

TEST_P(ErrorTest, WhatIsHealedOverwrittenOrRetiredIsPoisonedNoMore) {
  const Var d = engine.new_var("d");
  engine.push(boom, {mutate(a), mutate(b), mutate(c), mutate(d)});
  const OpError failure = error([&] { engine.wait_all(); });
  engine.heal(a);
  engine.push([] {}, {overwrite(b)});
  engine.retire(c);
  engine.wait({read(a), read(b)});
  EXPECT_EQ(names_of(failure.poisoned()), "d");
  engine.heal(failure);
  engine.wait_all();
  EXPECT_EQ(names_of(failure.poisoned()), "");
}

TEST_P(ErrorTest, HealOfAFailureHealsAllThatItPoisonsAndCounts) {
  engine.push(boom, {mutate(a), mutate(b)});
  engine.push([] {}, {read(a), mutate(c)});
  const OpError failure = error([&] { engine.wait_all(); });
  EXPECT_EQ(engine.version(c), 0u) << "skipped";
  engine.heal(failure);
  engine.wait_all();
  for (const Var var : {a, b}) EXPECT_EQ(engine.version(var), 2u);
  EXPECT_EQ(engine.version(c), 1u);
  engine.heal(failure);  // there is nothing left to heal
  engine.wait_all();
  EXPECT_EQ(engine.version(a), 2u);
}

TEST_P(ErrorTest, HealOfAFailureLeavesALaterFailureAlone) {
  engine.push(boom, {mutate(a), mutate(b)});
  const OpError failure = error([&] { engine.wait_all(); });
  HeldOp held(engine, {overwrite(a)}, "later");
  engine.heal(failure);  // behind the op that is about to fail
  held.drop();
  const OpError later = error([&] { engine.wait_all(); });
  EXPECT_EQ(names_of(later.poisoned()), "a");
  EXPECT_EQ(later.poisoned()[0].failure->name, "later");
}

TEST_P(ErrorTest, HealOfAFailureRefusesWhereItMeansNothing) {
  std::optional<OpError> failure;
  {
    Engine other(options());
    const Var var = other.new_var("var");
    other.push(boom, {mutate(var)});
    failure = error([&] { other.wait_all(); });
    expect_error<MisuseError>([&] { engine.heal(*failure); }, "op 'heal'");
    const auto body = [&] { other.heal(*failure); };
    expect_error<MisuseError>([&] { other.capture(body); }, "inside a capture");
    EXPECT_EQ(failure->poisoned().size(), 1u);
  }
  EXPECT_EQ(failure->poisoned().size(), 0u) << "the engine is gone";
}

TEST_P(ErrorTest, PoisonedMayBeAskedWhileOpsFailAndHeal) {
  engine.push(boom, {mutate(a)});
  const OpError failure = error([&] { engine.wait(a); });
  on_threads(3, [&](int number) {
    for (int i = 0; i < 200; ++i) {
      if (number == 0) engine.push([] {}, {read(a), mutate(b)}), engine.push([] {}, {overwrite(b)});
      if (number == 1) engine.retire(engine.new_var("short")), static_cast<void>(failure.poisoned());
      if (number == 2) static_cast<void>(failure.poisoned());
    }
  });
  EXPECT_EQ(names_of(failure.poisoned()).front(), 'a');
}

TEST_P(ErrorTest, WhatOnlyAnOpWasToldIsToldOutsideToo) {
  engine.push(boom, {mutate(a)}, {.name = "load"});
  engine.push([&] { engine.wait(a); }, {});
  engine.heal(a);
  expect_error<OpError>([&] { engine.wait_all(); }, "boom");
  engine.wait_all();
}

TEST_P(ErrorTest, WhatNobodyWaitedForIsToldOnStandardError) {
  ::testing::internal::CaptureStdout();
  const std::string told = told_at_the_end([](Engine& forgotten) { forgotten.push(boom, {}, {.name = "load"}); });
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_NE(told.find("nobody waited for this: op 'load'"), told.npos) << told;
  EXPECT_NE(told.find("boom"), told.npos) << told;
}

TEST_P(ErrorTest, OfFailuresThatHaveOneOriginOneIsTold) {
  const std::exception_ptr origin = std::make_exception_ptr(std::runtime_error("the network is down"));
  const std::string told = told_at_the_end([&](Engine& forgotten) {
    forgotten.push([&] { fail_by(origin, "first"); }, {}, {.name = "first"});
    forgotten.push([&] { fail_by(origin, "second"); }, {}, {.name = "second"});
    forgotten.push(boom, {}, {.name = "load"});
  });
  const std::size_t first = told.find("nobody waited"), second = told.find("nobody waited", first + 1);
  EXPECT_NE(second, told.npos) << told;
  EXPECT_EQ(told.find("nobody waited", second + 1), told.npos) << told;
  EXPECT_NE(told.find("op 'load'"), told.npos) << told;
  EXPECT_EQ(told_at_the_end([&](Engine& heard) {
              const Var var = heard.new_var();
              heard.push([&] { fail_by(origin); }, {mutate(var)});
              heard.push([&] { fail_by(origin); }, {});
              EXPECT_EQ(expect_root<std::runtime_error>([&] { heard.wait(var); })->origin(), origin);
            }),
            "");
}

TEST_P(ErrorTest, AnOriginThatWasReportedIsNotToldAgain) {
  const std::exception_ptr origin = std::make_exception_ptr(std::runtime_error("the network is down"));
  EXPECT_EQ(told_at_the_end([&](Engine& heard) {
              const Var var = heard.new_var();
              heard.push([&] { fail_by(origin); }, {mutate(var)});
              EXPECT_THROW(heard.wait_all(), OpError);
              heard.heal(var);
              heard.wait_all();  // forgets the failure
              heard.push([&] { fail_by(origin); }, {});
            }),
            "");
}

TEST_P(ErrorTest, EachDroppedTokenIsTold) {
  const std::string told = told_at_the_end([&](Engine& forgotten) {
    const Var var = forgotten.new_var();
    forgotten.push_async([](OnComplete) {}, {mutate(var)}, {.name = "first"});
    forgotten.push_async([](OnComplete) {}, {}, {.name = "second"});
    forgotten.push_async([](OnComplete) {}, {}, {.name = "third"});
    const std::exception_ptr origin = expect_root<Error>([&] { forgotten.wait(var); })->origin();
    ASSERT_TRUE(origin);
    forgotten.heal(var);
    forgotten.push([&] { fail_by(origin); }, {mutate(var)});
    EXPECT_THROW(forgotten.wait(var), OpError);
  });
  for (const char* const name : {"'second'", "'third'"}) EXPECT_NE(told.find(name), told.npos) << told;
}

TEST_P(ErrorTest, AWeakErrorNamesItsFailuresAsLongAsAVariableCarriesThem) {
  engine.push(boom, {overwrite(a)}, {.name = "fails"});
  const WeakOpError weak(error([&] { engine.wait(a); }));
  const std::optional<OpError> again = weak.lock();
  ASSERT_TRUE(again);
  EXPECT_NE(std::string(again->what()).find("op 'fails'"), std::string::npos);
}

}  // namespace
}  // namespace windrow::testing
