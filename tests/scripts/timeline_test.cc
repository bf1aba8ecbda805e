// scripts/timeline, with traces that the tests write.
#include "tests/scripts/scripts.h"

namespace windrow::testing {
namespace {

class TimelineScript : public Scripts {
 protected:
  /// Three minibatches of two devices.
  TimelineScript() {
    std::ofstream trace(folder / "run.json");
    trace << R"({"traceEvents": [{"ph": "M", "name": "thread_name", "tid": 3, "args": {"name": "async 1"}})";
    const auto event = [&](const std::string& name, const std::string& lane, int thread, int begin, int length) {
      trace << R"(, {"ph": "X", "cat": "op", "name": ")" << name << R"(", "tid": )" << thread << R"(, "ts": )" << begin
            << R"(, "dur": )" << length << R"(, "args": {"op": ")" << ++ops_ << R"(", "lane": ")" << lane << R"("}})";
    };
    for (int step = 0; step < 3; ++step) {
      for (const std::string lane : {"cpu:0", "cpu:1"}) {
        const int begin = 1000 * step + (lane == "cpu:1" ? 50 : 0);
        event("minibatch memory", lane, 1, begin, 10);
        event("forward", lane, 1, begin + 10, 100 + step);
        event("matmul_tn", lane, 2, begin + 110 + step, 200);
        event("gradients", lane, 3, begin + 150, 400);
        trace << R"(, {"ph": "X", "cat": "call", "name": "gradients", "tid": 1, "ts": )" << begin + 500
              << R"(, "dur": 50, "args": {"op": ")" << ops_ << "\"}}";
        event("sgd_step", lane, 1, begin + 560, 30);
      }
    }
    trace << "]}";
  }

 private:
  int ops_ = 0;
};

TEST_F(TimelineScript, DrawsWhatEachDeviceComputesAndWhenItsGradientsAreSummed) {
  const Outcome outcome = run_script("timeline " + in("run.json") + "--first 1 --steps 1");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string text = read_file(folder / "run.svg");
  for (const char* part :
       {">cpu:0<", ">cpu:1<", ">its sums<", ">step 1<", ">forward, 0.101 ms<", ">matmul_tn, 0.200 ms<",
        ">gradients, 0.400 ms<", ">gradients, 0.050 ms<", ">sgd_step, 0.030 ms<", ">hands in or adds up<"}) {
    expect_has(text, part);
  }
  for (const char* part : {">step 0<", ">step 2<", ">forward, 0.100 ms<", ">forward, 0.102 ms<", ">backward<"}) {
    expect_lacks(text, part);
  }
}

TEST_F(TimelineScript, EndsWithOneLineAndStatus2WhereArgumentsAreWrong) {
  std::ofstream(folder / "other.json") << R"({"traceEvents": 7})";
  std::ofstream(folder / "alone.json") << R"({"traceEvents": []})";
  const std::string run = (folder / "run.json").string();
  expect_script_refusals(
      "timeline",
      {{"", "the following arguments are required: trace"},
       {in("none.json"), "cannot read " + (folder / "none.json").string() + ": No such file or directory"},
       {in("other.json"), (folder / "other.json").string() +
                              " is no trace of an engine; expected a file that WINDROW_TRACE=FILE has written"},
       {in("alone.json"),
        (folder / "alone.json").string() + " has no sums of gradients; expected a trace of a data-parallel training"},
       {in("run.json") + "--steps 3", "--steps 3; expected 1 to 2, the whole steps of " + run},
       {in("run.json") + "--first 1", "--first 1; expected 0 to 0, so that 2 steps follow"},
       {in("run.json") + "--out /dev", "cannot write /dev: Is a directory"}});
}

TEST_F(TimelineScript, MergesTheTracesOfRanksOnOneClock) {
  const auto trace = [&](const std::string& file, int rank, const std::string& start) {
    std::ofstream(folder / file)
        << R"({"otherData": {"start_unix_us": )" << start << R"(, "process": )" << rank << R"(}, "traceEvents": [)"
        << R"({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "windrow engine 1"}},)"
        << R"({"ph": "X", "name": "step", "pid": 1, "tid": 1, "ts": 1.500, "dur": 2},)"
        << R"({"ph": "s", "name": "dependency", "pid": 1, "tid": 1, "id": 7, "ts": 2}]})";
  };
  trace("run.0.json", 0, "1700000000000300");
  trace("run.1.json", 1, "1700000000000100");
  const Outcome outcome =
      run_script("timeline merge " + in("run.1.json") + in("run.0.json") + "-o " + in("merged.json"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  expect_in("merged.json", {R"("pid":1,"args":{"name":"rank 0, engine 1"})",
                            R"("pid":2,"args":{"name":"rank 1, engine 1"})", R"("pid":1,"tid":1,"ts":201.5,"dur":2)",
                            R"("pid":2,"tid":1,"ts":1.5,"dur":2)", R"("id":"0.7")", R"("id":"1.7")"});
  std::ofstream(folder / "old.json") << R"({"traceEvents": [], "otherData": {"ops": 0}})";
  expect_script_refusals(
      "timeline merge",
      {{in("run.0.json"), "the following arguments are required: -o/--out"},
       {in("old.json") + "-o " + in("merged.json"),
        (folder / "old.json").string() +
            " is no trace of an engine; expected a file that WINDROW_TRACE=FILE has written"},
       {in("run.0.json") + "-o " + in("run.0.json"),
        "--out " + (folder / "run.0.json").string() + " is one of the traces; expected another file"}});
}

}  // namespace
}  // namespace windrow::testing
