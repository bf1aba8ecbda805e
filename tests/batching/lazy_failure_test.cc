// How lazy expressions fail: who is told, what is said, and who goes on.
#include "tests/batching/trainer.h"
#include "windrow/batching/lazy_task.h"

namespace windrow::testing {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// An operator of a program's own, with a condition that nobody knows before its kernel runs.
constinit const Operator positive{
    .name = "positive", .infer = same, .gradients = passed, .locality = Locality::rowwise};
void keep_positive(const KernelCall<float>& call) {
  for (Index r = 0; r < call.out.rows; ++r) {
    for (Index c = 0; c < call.out.width; ++c) {
      const float x = call.in[0].row(r)[c];
      if (x <= 0) throw std::runtime_error(std::to_string(x) + " is not positive");
      call.out.row(r)[c] = (call.write == Write::add ? call.out.row(r)[c] : 0) + x;
    }
  }
}

std::string line(int number) { return "lazy_failure_test.cc:" + std::to_string(number); }
class LazyFailure : public ::testing::TestWithParam<std::int64_t>, protected OnHost {
 protected:
  LazyFailure() {
    host.kernels.add(positive, keep_positive);
    graph.emplace(host, parameters, LazyOptions{.recompute_below = GetParam()});
  }
  LazyExpr only_positive(const LazyExpr& x) const { return apply(positive, {x}); }

  Parameter w = parameters.add("w", 2, 2, Initial::constant(1));
  std::optional<LazyGraph> graph;
};

/// A caller that looks at the loss before it descends, and leaves the step out.
TEST_P(LazyFailure, OfALossIsToldWhereItIsAskedForAndHindersNoLaterMinibatch) {
  const int input = __LINE__ + 3, loss_line = __LINE__ + 5;
  for (int step = 0; step < 8; ++step) {
    const float value = step == 2 ? nan : 1;
    const LazyExpr bad = graph->input({value, 2});
    const LazyExpr other = row_sum(matmul(graph->input({1, 1}), w));
    const LazyExpr loss = row_sum(square(matmul(bad, w)));
    graph->backward(std::array{other, loss});
    EXPECT_EQ(other.scalar(), 4);
    if (step == 2) {
      expect_error<OpError>([&] { loss.scalar(); },
                            {"the loss recorded at ", line(input) + " is not finite",
                             line(loss_line) + " is nan, expected a finite number; its input recorded at "});
    } else {
      EXPECT_EQ(loss.scalar(), 18);
      parameters.sgd(0);
    }
    graph->clear();
  }
  EXPECT_EQ(parameters.value(w).get(), std::vector<float>(4, 1));
}

TEST_P(LazyFailure, OfALossNamesTheOperatorOrInputThatGaveItAndItsLine) {
  const auto expect_said = [&](const LazyExpr& loss, const std::string& what, int line_of_it) {
    graph->backward(std::array{loss});
    expect_error<OpError>([&] { loss.scalar(); }, {what, line(line_of_it)});
    graph->clear();
  };
  const LazyExpr x = matmul(graph->input({1, -1}), w);
  expect_said(row_sum(log(x)), "the first such value on its way is of 'log' recorded at ", __LINE__);
  const int first = __LINE__ + 1;
  const LazyExpr bad = graph->input({nan, 1});
  EXPECT_EQ(bad.value()[1], 1);  // by an earlier flush
  expect_said(row_sum(matmul(bad, w)), "its input recorded at ", first);
  const LazyExpr zeros = graph->input({-2, 0});
  expect_said(row_sum(zeros / zeros), "'div' recorded at ", __LINE__);
}

TEST_P(LazyFailure, OfALossNamesAParameter) {
  parameters.value(w).set({1, nan, 1, 1});
  const LazyExpr loss = row_sum(matmul(graph->input({1, -1}), w));
  EXPECT_TRUE(std::isnan(loss.scalar()));  // not differentiated yet
  graph->backward(std::array{loss});
  expect_error<OpError>([&] { loss.scalar(); }, "parameter 'w' is not finite");
  parameters.sgd(0.1);
  expect_error<OpError>([&] { parameters.value(w).get(); }, " is nan, expected a finite number; ");
}

TEST_P(LazyFailure, OfAnOperatorNamesTheLineThatRecordedIt) {
  const LazyExpr x = graph->input({-1, 1});
  const int here = __LINE__ + 1;
  const LazyExpr y = apply(positive, {x}), z = tanh(y);
  expect_error<OpError>([&] { z.value(); }, {"positive recorded at ", line(here) + ": -1.000000 is not positive"});
}

TEST_P(LazyFailure, OfOneInstanceLeavesTheOthersTheirValues) {
  constexpr int instances = sanitized ? 100 : 1000;
  std::vector<LazyExpr> values;
  for (int i = 0; i < instances; ++i) {
    const float x = i % 7 == 3 ? -1.0f : static_cast<float>(i + 1);
    values.push_back(row_sum(matmul(only_positive(graph->input({x, 1})), w)));
  }
  for (int time = 0; time < 2; ++time) {
    for (int i = 0; i < instances; ++i) {
      const LazyExpr& value = values[static_cast<std::size_t>(i)];
      if (i % 7 == 3) {
        expect_error<OpError>([&] { value.scalar(); }, "is not positive");
      } else {
        EXPECT_EQ(value.scalar(), 2 * static_cast<float>(i + 2));
      }
    }
  }
  // What is computed with the one fails for the same reason, and what is computed with others does not.
  const LazyExpr bad = tanh(values[3]), good = values[4] + values[5];
  EXPECT_EQ(good.scalar(), 26);
  expect_error<OpError>([&] { bad.scalar(); }, "is not positive");
  EXPECT_THROW(graph->backward(std::array{good, bad}), OpError);
  EXPECT_THROW(graph->backward(std::array{row_sum(values[3])}), OpError);
  graph->clear();
  EXPECT_EQ(graph->input({3}).scalar(), 3);
}

/// What pending expressions compute with is computed again, too, although its handle has ended.
TEST_P(LazyFailure, LeavesPendingExpressionsWhatTheyComputeWith) {
  LazyExpr x = only_positive(graph->input({1, 2}));
  const LazyExpr z = only_positive(graph->input({2, 3})), bad = only_positive(graph->input({-1, 2}));
  graph->flush();
  const LazyExpr y = 2 * x, other = 2 * graph->input({5, 6});
  x = LazyExpr();
  EXPECT_EQ(z.value()[0], 2);
  EXPECT_EQ(other.value()[0], 10);
  EXPECT_EQ(y.value()[0], 2);
  EXPECT_THROW(bad.value(), OpError);
}

/// Values of an earlier flush that failed may be held all the while.
TEST_P(LazyFailure, OfAnEarlierFlushThatIsHeldHindersNoLaterOne) {
  const LazyExpr x = only_positive(graph->input({1, 2})), bad = only_positive(graph->input({-1, 2}));
  graph->flush();
  EXPECT_EQ((2 * graph->input({5, 6})).value()[0], 10);
  for (int i = 0; i < 3; ++i) {
    const LazyExpr good = only_positive(graph->input({3, 4})), worse = only_positive(graph->input({4, -3}));
    EXPECT_EQ(good.value()[0], 3) << i;
    EXPECT_THROW(worse.value(), OpError);
  }
}

/// What computes with a failed value is left out, also when its flush is computed again.
TEST_P(LazyFailure, IsCuredBesideWhatComputesWithAnEarlierFailure) {
  const LazyExpr x = only_positive(graph->input({1, 2})), bad = only_positive(graph->input({-1, 2}));
  EXPECT_EQ(x.value()[0], 1);
  EXPECT_THROW(bad.value(), OpError);
  for (int i = 0; i < 3; ++i) {
    const LazyExpr worse = 2 * bad, good = only_positive(x + graph->input({3, 4})),
                   wrong = only_positive(x + graph->input({-4, 3}));
    EXPECT_EQ(good.value()[0], 4) << i;
    EXPECT_THROW(wrong.value(), OpError);
    EXPECT_THROW(worse.value(), OpError);
  }
}

LazyTask<float> walk(LazyGraph& graph, Parameter w, float from, float fall) {
  LazyExpr x = graph.input({from, from});
  float last = 0;
  for (int step = 0; step < 5; ++step) {
    const LazyExpr moved = 0.5 * matmul(x, w) - graph.input({fall, 0});
    x = apply(positive, {moved});
    const std::vector<float> values = co_await value(x);
    last = values[1];
  }
  co_return last;
}
LazyTask<std::string> watched_walk(LazyGraph& graph, Parameter w, float from, float fall) {
  std::string result;
  try {
    const float last = co_await walk(graph, w, from, fall);
    result = std::to_string(last).substr(0, 4);
  } catch (const OpError&) {
    result = "failed";
  }
  co_return result;
}

TEST_P(LazyFailure, OfOneTaskLeavesTheOthersTheirWay) {
  std::vector<LazyTask<std::string>> tasks;
  for (const float fall : {0.0f, 1.5f, 0.0f, 0.5f, 9.0f}) tasks.push_back(watched_walk(*graph, w, 2, fall));
  EXPECT_EQ(run(*graph, std::move(tasks)), (std::vector<std::string>{"2.00", "failed", "2.00", "1.00", "failed"}));
}

/// A failure that nobody has read is told when the tasks have ended.
TEST_P(LazyFailure, OfAnEarlierFlushAbandonsNoTask) {
  const auto all = [&] {
    std::vector<LazyTask<std::string>> tasks;
    for (int i = 0; i < 2; ++i) tasks.push_back(watched_walk(*graph, w, 2, 0));
    return tasks;
  };
  EXPECT_EQ(run(*graph, all())[1], "2.00");
  for (int i = 0; i < 2; ++i) {
    const LazyExpr unread = 0.5 * matmul(graph->input({2, 2}), w) - graph->input({9, 0}), bad = only_positive(unread);
    graph->flush();
  }
  int ended = 0;
  const auto counted = [](LazyTask<std::string> task, int& count) -> LazyTask<std::string> {
    std::string result = co_await std::move(task);
    ++count;
    co_return result;
  };
  std::vector<LazyTask<std::string>> tasks;
  for (LazyTask<std::string>& task : all()) tasks.push_back(counted(std::move(task), ended));
  expect_error<OpError>([&] { run(*graph, std::move(tasks)); }, "is not positive");
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(run(*graph, all())[1], "2.00");
}

/// A value that cannot be computed again as it was is not computed again at all.
TEST_P(LazyFailure, IsNotCuredWithOtherParameters) {
  const LazyExpr bad = only_positive(graph->input({-1, 1})), good = row_sum(matmul(graph->input({1, 1}), w));
  graph->flush();
  parameters.value(w).set(std::vector<float>(4, 5));
  EXPECT_THROW(good.scalar(), OpError);
  EXPECT_THROW(bad.value(), OpError);
}

/// Nor is one whose parameters are poisoned.
TEST_P(LazyFailure, OfParametersFailsAll) {
  engine.push([] { throw Error("no parameters"); }, {mutate(parameters.value(w).var())});
  const LazyExpr good = row_sum(matmul(graph->input({1, 1}), w));
  expect_error<OpError>([&] { good.scalar(); }, "no parameters");
}

INSTANTIATE_TEST_SUITE_P(All, LazyFailure, ::testing::Values(0, 20'000'000),
                         [](const auto& of) { return of.param == 0 ? "Kept" : "ComputedAgain"; });

/// Whether a flush keeps what gradients need, or backward() computes it again.
class LazyChanges : public ::testing::TestWithParam<std::int64_t>, protected OnHost {
 protected:
  Parameter a = parameters.add("a", 1, 2, Initial::constant(1));
  Parameter b = parameters.add("b", 2, 2, Initial::constant(1));
  Parameter c = parameters.add("c", 2, 2, Initial::constant(1));
  LazyGraph graph{host, parameters, {.recompute_below = GetParam()}};

  std::string refusal(const LazyExpr& loss) {
    return error_of<MisuseError>([&] { graph.backward(std::array{loss}); });
  }
  void set(Parameter parameter, float value) const { parameters.value(parameter).set(std::vector<float>(4, value)); }
};

TEST_P(LazyChanges, OfAParameterThatALossDependsOnAreRefusedByName) {
  for (const bool behind_a_function : {false, true}) {
    const LazyExpr s =
        behind_a_function ? matmul(graph.parameter(a), exp(LazyWeight(b))) - a : matmul(graph.parameter(a), b);
    s.value();
    const Tensor row = parameters.value(b).row_range(0, 1);  // a part of it is enough
    row.set({2, 2});
    const std::string said = refusal(row_sum(square(s)));
    EXPECT_EQ(said.find("backward(): parameter 'b' was modified in place after the flush at "), 0) << said;
    EXPECT_NE(said.find("lazy_failure_test.cc:"), std::string::npos) << said;
    EXPECT_FALSE(parameters.gradient(b).all.has_value());
    graph.clear();
  }
}

/// The graph is as it was before the call that was refused.
TEST_P(LazyChanges, AreNoHindranceAfterClear) {
  for (float value : {1.0f, 2.0f, 3.0f}) {
    set(b, value);
    const LazyExpr s = matmul(graph.parameter(a), b), loss = row_sum(square(s));
    EXPECT_EQ(loss.scalar(), 8 * value * value);
    if (value == 2) {
      set(b, 5);
      EXPECT_THROW(graph.backward(std::array{loss}), MisuseError);
    } else {
      graph.backward(std::array{loss});
      EXPECT_EQ(dense(parameters, b), (std::vector<double>(4, 4 * value)));
    }
    graph.clear();
  }
}

/// What was computed before a change is one value, what is computed after it another.
TEST_P(LazyChanges, ThatNoGradientSeesAreAllowed) {
  for (const float changed : {1.0f, 2.0f}) {  // behind the flush of what no loss depends on
    matmul(graph.parameter(a), b).value();
    set(b, changed);
    matmul(graph.parameter(a), c).value();
    const LazyExpr s = matmul(graph.parameter(a), b), loss = row_sum(square(s));
    s.value();
    set(c, 1 + changed);
    EXPECT_EQ(loss.scalar(), 8 * changed * changed);
    graph.backward(std::array{loss});
    EXPECT_EQ(dense(parameters, b), (std::vector<double>(4, 4 * changed)));
    graph.clear();
  }
}

TEST_P(LazyChanges, ByDescentAreFoundToo) {
  const LazyExpr first = row_sum(matmul(graph.parameter(a), b));
  LazyGraph other(host, parameters);
  first.value();
  other.backward(std::array{row_sum(matmul(other.parameter(a), b))});
  parameters.sgd(0.5);
  EXPECT_THROW(graph.backward(std::array{first}), MisuseError);
}

/// The loss that is told is the one that is differentiated, before and behind backward().
TEST_P(LazyChanges, LeaveALossAsItWasTold) {
  const LazyExpr s = matmul(graph.parameter(a), b);
  s.value();
  const LazyExpr loss = row_sum(square(s));
  EXPECT_EQ(loss.scalar(), 8);
  graph.backward(std::array{loss});
  set(b, 2);
  EXPECT_EQ(loss.scalar(), 8);
  EXPECT_EQ(dense(parameters, b), (std::vector<double>(4, 4)));
}

/// Which gradients there are is decided at the flush that computes what a loss depends on.
TEST_P(LazyChanges, OfWhatIsFrozenAreRefusedByName) {
  for (const bool frozen_first : {false, true}) {
    const auto change = [&](bool freeze) { freeze ? parameters.freeze(b) : parameters.unfreeze(b); };
    change(frozen_first);
    const LazyExpr s = matmul(graph.parameter(a), b);
    s.value();
    change(!frozen_first);
    const LazyExpr loss = row_sum(square(s));
    const std::string said = refusal(loss);
    EXPECT_EQ(said.find("backward(): parameter 'b' was frozen or unfrozen after the flush at "), 0) << said;
    change(frozen_first);  // the graph is as it was
    graph.backward(std::array{loss});
    EXPECT_EQ(parameters.gradient(b).all.has_value(), !frozen_first);
    EXPECT_EQ(dense(parameters, a), (std::vector<double>(2, 8)));
    graph.clear();
  }
}

TEST_P(LazyChanges, OfWhatIsFrozenAreAllowedBeforeTheFlushOfALoss) {
  matmul(graph.parameter(a), b).value();
  parameters.freeze(b);
  const LazyExpr loss = row_sum(square(matmul(graph.parameter(a), b)));
  EXPECT_EQ(loss.scalar(), 8);
  graph.backward(std::array{loss});
  EXPECT_FALSE(parameters.gradient(b).all.has_value());
  EXPECT_EQ(dense(parameters, a), (std::vector<double>(2, 8)));
}

INSTANTIATE_TEST_SUITE_P(All, LazyChanges, ::testing::Values(0, 20'000'000),
                         [](const auto& of) { return of.param == 0 ? "Kept" : "ComputedAgain"; });

}  // namespace
}  // namespace windrow::testing
