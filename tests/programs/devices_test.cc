// The programs on CUDA devices: without a driver, and on the runtime without a GPU where there is one.
#include "tests/programs/programs.h"
#include "windrow/models/workload.h"

namespace windrow::testing {
namespace {

class DevicesOfPrograms : public Programs {
 protected:
  ~DevicesOfPrograms() override { ::unsetenv("WINDROW_CUDA_PLUGIN"); }
#ifdef WINDROW_FAKE_PLUGIN
  // Compiled kernels are kept in the build folder.
  DevicesOfPrograms() { ::setenv("WINDROW_CUDA_CACHE", WINDROW_FAKE_CACHE, 1); }
#endif
  static void use_plugin(const std::string& path) { ::setenv("WINDROW_CUDA_PLUGIN", path.c_str(), 1); }
};

TEST_F(DevicesOfPrograms, SayInOneLineWhatIsMissing) {
  use_plugin("/nowhere/windrow_cuda.so");
  const std::string missing =
      "CUDA cannot be used: /nowhere/windrow_cuda.so: cannot open shared object file: No such file or directory; "
      "expected that of a build with nvcc, and cuBLAS, beside the program, in its rpath, or where WINDROW_CUDA_PLUGIN "
      "says\n";
  for (const std::string command : {"windrow train tree-lstm", "windrow schedule tree-lstm", "windrow-perf gpu"}) {
    expect_refused(run(command + " --device cuda:0"), command.substr(0, command.find(' ')) + ": " + missing);
  }
  const std::string listed = output("windrow devices");
  expect_match(listed, "device .*\ncpu .*\n.*\n");
  EXPECT_TRUE(listed.ends_with(missing)) << listed;
}

TEST_F(DevicesOfPrograms, AreNoOtherLibraries) {
  use_plugin("libm.so.6");
  expect_refused(run("windrow train tree-lstm --device cuda:0"),
                 "windrow: libm.so.6 is no plug-in of Windrow; expected windrow_cuda.so\n");
}

TEST_F(DevicesOfPrograms, OfTheHostRoundNothing) {
  expect_refused(run("windrow train tree-lstm --precision tf32"),
                 "windrow: device cpu with --precision tf32; expected a device of CUDA\n");
  expect_refused(run("windrow-perf gpu --device cpu --graphs"),
                 "windrow-perf: device cpu; expected one of CUDA: windrow-perf train measures the host\n");
}

TEST_F(DevicesOfPrograms, AreMeasuredWithoutWork) {
  for (const std::string mode : {"", " --inference"}) {
    const auto records = lines_of(run(
        "windrow-perf gpu --without-work --samples 16 --hidden 8,12 --batch 4,8 --passes 1 --levels launches --json" +
        mode));
    ASSERT_EQ(records.size(), 4u);
    for (const std::string& record : records) {
      EXPECT_GT(field(record, "minibatch_ms"), 0) << record;
      EXPECT_GT(field(record, "caller_ms"), 0) << record;
      EXPECT_GT(field(record, "schedule_ms"), 0) << record;
      EXPECT_GT(field(record, "calls_per_minibatch"), 10) << record;
      EXPECT_EQ(field(record, "device_ms"), 0) << record;
      EXPECT_EQ(field(record, "idle_share"), 1) << record;
      expect_lacks(record, "latency");  // of single samples alone
    }
    EXPECT_EQ(field(records[3], "hidden"), 12);
    EXPECT_EQ(field(records[3], "batch"), 8);
  }
  const std::string one =
      "windrow-perf gpu --without-work --samples 16 --hidden 8 --batch 1 --passes 1 --json --inference";
  EXPECT_GT(field(lines_of(run(one)).at(0), "latency_ms"), 0);
}

/// Some models have no embedding.
TEST_F(DevicesOfPrograms, AreMeasuredWithEachModel) {
  const auto records =
      lines_of(run("windrow-perf gpu --without-work --model all --samples 16 --hidden 8 --batch 8 --passes 1 --json"));
  EXPECT_EQ(std::ranges::count(workload_kinds(), false, &WorkloadKind::has_graph_mode),
            static_cast<std::ptrdiff_t>(records.size()));
  for (const std::string& record : records) EXPECT_GT(field(record, "minibatch_ms"), 0) << record;
}

#ifdef WINDROW_FAKE_PLUGIN

TEST_F(DevicesOfPrograms, AreMeasured) {
  use_plugin(WINDROW_FAKE_PLUGIN);
  const std::string command = "windrow-perf gpu --samples 16 --hidden 8 --batch 8 --passes 1 --json ";
  const std::string record = line_of(run(command + "--levels launches"));
  const std::string together = line_of(run(command + "--levels together --precision tf32"));
  EXPECT_LT(field(together, "calls_per_minibatch"), field(record, "calls_per_minibatch"));
  EXPECT_GT(field(record, "device_ms"), 0);
  const std::string graphs = line_of(run(command + "--levels launches --graphs"));
  EXPECT_LT(field(graphs, "calls_per_minibatch"), field(record, "calls_per_minibatch") / 2);
  EXPECT_GT(field(graphs, "device_ms"), 0);
  for (const std::string* const of : {&record, &together, &graphs}) {
    EXPECT_LT(field(*of, "device_ms"), field(*of, "traced_ms")) << *of;
    EXPECT_GE(field(*of, "idle_share"), 0) << *of;
    EXPECT_LT(field(*of, "idle_share"), 1) << *of;
  }
}

#ifdef WINDROW_TEST_PROFILER
/// Each call is in a range of NVTX with the name of what it issues.
TEST_F(DevicesOfPrograms, TellProfilersWhatTheyIssue) {
  use_plugin(WINDROW_FAKE_PLUGIN);
  const std::string file = (folder / "ranges").string();
  ::setenv("NVTX_INJECTION64_PATH", WINDROW_TEST_PROFILER, 1);
  ::setenv("WINDROW_TEST_RANGES", file.c_str(), 1);
  output("windrow train tree-lstm --samples 16 --epochs 1 --device cuda:0");
  ::unsetenv("NVTX_INJECTION64_PATH");
  ::unsetenv("WINDROW_TEST_RANGES");
  const std::string ranges = "\n" + read_file(file);
  for (const std::string name : {"upload", "download"}) expect_has(ranges, "\n" + name + "\n");
  expect_lacks(ranges, "\n ");  // each ends before the next one begins
}
#endif

/// Words of equally long pieces: `steps` of them a sample.
TEST_F(DevicesOfPrograms, AreMeasuredWithFullMinibatchesAlone) {
  const std::string command =
      "windrow-perf gpu --without-work --model fixed-lstm --steps 8 --hidden 8 --passes 1 --json --samples 100 "
      "--batch ";
  for (const std::string mode : {"", " --inference"}) {
    for (const int batch : {3, 7, 64}) {  // none divides the number of samples
      const std::string record = line_of(run(command + std::to_string(batch) + mode));
      const double units = field(record, "units_per_s") * field(record, "minibatch_ms") * 1e-3;
      EXPECT_NEAR(units, 8 * batch, 0.01 * batch) << record;
    }
  }
  expect_match(refusal_of(run(command + "1024")),
               "windrow-perf: fixed-lstm: .* training samples; expected at least 1024, a full minibatch\n");
}

TEST_F(DevicesOfPrograms, AreListed) {
  use_plugin(WINDROW_FAKE_PLUGIN);
  expect_has(output("windrow devices"), "\ncuda:0   9.0             0.2 GiB  fake CUDA device\n");
  expect_refused(run("windrow train tree-lstm --device cuda:7"),
                 "windrow: device cuda:7: expected cuda:0, the only one\n");
}

/// The losses that training prints, an epoch each.
std::vector<double> losses(const std::string& output) {
  std::vector<double> found;
  const std::regex row(R"(\n +\d+ +([0-9.]+) )");
  for (std::sregex_iterator it(output.begin(), output.end(), row), end; it != end; ++it) {
    found.push_back(std::stod((*it)[1]));
  }
  return found;
}
/// Those of two epochs.
void expect_losses(const std::string& output, const std::vector<double>& expected) {
  const std::vector<double> found = losses(output);
  ASSERT_EQ(expected.size(), 2u);
  ASSERT_EQ(found.size(), 2u) << output;
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(found[i], expected[i], 2e-4 * expected[i]);
}

TEST_F(DevicesOfPrograms, TrainToTheLossOfTheHost) {
  use_plugin(WINDROW_FAKE_PLUGIN);
  for (const std::string model : {"tree-lstm", "tree-fc", "var-lstm", "bilstm-char", "listops", "dag", "parser"}) {
    const std::string small = "windrow train " + model + " --samples 40 --hidden 8 --epochs 2 --device ";
    SCOPED_TRACE(model);
    expect_losses(output(small + "cuda:0"), losses(output(small + "cpu")));
  }
}

#ifdef WINDROW_FAKE_NCCL
TEST_F(DevicesOfPrograms, TrainTogetherByNcclWhereItIs) {
  use_plugin(WINDROW_FAKE_PLUGIN);
  ::setenv("WINDROW_FAKE_DEVICES", "2", 1);
  const std::string small = "windrow train tree-lstm --samples 40 --hidden 8 --epochs 2 --devices ";
  const std::vector<double> expected = losses(run(small + "cpu:0,cpu:1").out);
  for (const std::string plugin : {WINDROW_FAKE_NCCL, "/nowhere/windrow_nccl.so"}) {
    ::setenv("WINDROW_NCCL_PLUGIN", plugin.c_str(), 1);
    const std::string outcome = output(small + "cuda:0,cuda:1");
    expect_losses(outcome, expected);
    const bool there = plugin == WINDROW_FAKE_NCCL;
    const std::string by = there ? "NCCL\n\n" : "the host; NCCL cannot be used: /nowhere/windrow_nccl.so: ";
    expect_has(outcome, "\n2 devices of one process: cuda:0,cuda:1; gradients are summed by " + by);
  }
  const std::string report = (folder / "report").string();
  const Outcome alone = run(small + "cuda:0 --report '" + report + "'");
  const std::string fallen_back = "1 device of one process: cuda:0; gradients are summed by the host; NCCL cannot be ";
  expect_has(alone.out, "\n" + fallen_back);
  expect_has(read_file(folder / "report" / "report.html"), "<td>" + fallen_back);
  ::setenv("WINDROW_FAKE_NCCL_FAULT", "ncclAllReduce", 1);
  EXPECT_EQ(run(small + "cuda:0,cuda:1").status, 0) << "by the host";
  ::setenv("WINDROW_NCCL_PLUGIN", WINDROW_FAKE_NCCL, 1);
  const Outcome failed = run(small + "cuda:0,cuda:1");
  EXPECT_NE(failed.status, 0);
  expect_has(failed.err, "ncclAllReduce failed: unhandled system error");
  for (const char* const name : {"WINDROW_FAKE_DEVICES", "WINDROW_NCCL_PLUGIN", "WINDROW_FAKE_NCCL_FAULT"}) {
    ::unsetenv(name);
  }
}
#endif

#if defined(WINDROW_FAKE_NCCL) && defined(WINDROW_WITH_MPI)
TEST_F(DevicesOfPrograms, OfSeveralProcessesTrainTogetherByNccl) {
  use_plugin(WINDROW_FAKE_PLUGIN);
  const std::string small = "windrow train tree-lstm --samples 40 --hidden 8 --epochs 2 ";
  const std::string program = "'" WINDROW_BIN "'/" + small + "--comm nccl --comm-timeout 20";
  const auto together = [&](const std::string& environment, const std::string& programs) {
    return run_command("WINDROW_FAKE_DEVICES=2 WINDROW_NCCL_PLUGIN='" WINDROW_FAKE_NCCL "' WINDROW_FAKE_NCCL_FOLDER='" +
                       folder.string() + "' OMPI_MCA_btl_vader_single_copy_mechanism=none " + environment +
                       " timeout 100 " WINDROW_MPIRUN " --allow-run-as-root --oversubscribe " + programs);
  };
  const auto processes = [&](int count, const std::string& environment, const std::string& flags = "") {
    return together(environment, "-n " + std::to_string(count) + " " + program + flags);
  };
  const std::string two = output_of(processes(2, ""));
  expect_losses(two, losses(run(small + "--devices cpu:0,cpu:1").out));
  expect_has(two, "\n2 processes; gradients are summed by NCCL\n\n");

  // A sharded update sends the states of rank 1 to rank 0, which saves them: with the same losses and checkpoints.
  const auto saved = [&](const std::string& where, const std::string& flags) {
    return losses(output_of(processes(2, "", " --optimiser adam --save " + in(where) + flags)));
  };
  const std::vector<double> whole = saved("whole", "");
  ASSERT_EQ(whole.size(), 2u);
  EXPECT_EQ(saved("sharded", " --sharded"), whole);
  EXPECT_EQ(saved("halves", " --sharded --epochs 1"), std::vector<double>{whole[0]});
  EXPECT_EQ(saved("halves", " --sharded --resume"), std::vector<double>{whole[1]});
  const std::string states = read_file(folder / "whole" / "000000000002.safetensors");
  EXPECT_NE(states, "");
  EXPECT_TRUE(read_file(folder / "sharded" / "000000000002.safetensors") == states);
  EXPECT_TRUE(read_file(folder / "halves" / "000000000002.safetensors") == states);

  const Outcome failed = processes(2, "WINDROW_FAKE_NCCL_FAULT=ncclAllReduce");
  EXPECT_NE(failed.status, 0);
  expect_has(failed.err, "ncclAllReduce failed: unhandled system error");
  const Outcome one = together(
      "", "-n 1 " + program + " --sharded : -n 1 env WINDROW_FAKE_NCCL_FAULT=ncclReduce " + program + " --sharded");
  EXPECT_NE(one.status, 0);
  const std::string told = "windrow: rank 1: ";  // by the process that has met the failure, and no other
  expect_has(one.err, "ncclReduce failed: unhandled system error");
  expect_has(one.err, told);
  EXPECT_EQ(one.err.find("windrow: "), one.err.rfind("windrow: ")) << one.err;
  const Outcome too_many = processes(3, "");  // the third one has no device
  EXPECT_NE(too_many.status, 0);
  expect_has(too_many.err, "windrow: rank 2: device cuda:2: expected ");
  const Outcome missing = processes(2, "WINDROW_NCCL_PLUGIN=/nowhere/windrow_nccl.so");
  expect_has(missing.err, "windrow: --comm nccl: NCCL cannot be used: /nowhere/windrow_nccl.so");
}
#endif

TEST_F(DevicesOfPrograms, SayThatMemoryRanOut) {
  use_plugin(WINDROW_FAKE_PLUGIN);
  expect_match(refusal_of(run("windrow train tree-lstm --hidden 4096 --samples 40 --epochs 1 --device cuda:0")),
               "windrow: .*cuda:0: \\d+ bytes are not to be had.*\n");
}
#endif

}  // namespace
}  // namespace windrow::testing
