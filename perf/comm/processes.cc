// Starts the processes, and reads what they print.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <sstream>

#include "batching/interleaved_runs.h"
#include "comm/comm.h"
#include "program.h"
#include "windrow/engine/error.h"

namespace windrow::perf {
namespace {

/// Values by name, one for each repetition.
using Values = std::map<std::string, std::vector<double>>;

std::string own_path() {
  std::array<char, 4096> path{};
  const auto size = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  if (size <= 0) throw Error("comm: cannot find the own program in /proc/self/exe");
  return path.data();
}

void run(int processes, const std::string& role, Values& to) {
  const std::string command = "mpirun --allow-run-as-root --oversubscribe --bind-to none -n " +
                              std::to_string(processes) + " '" + own_path() + "' comm --role " + role;
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) throw Error("comm: cannot start '" + command + "'");
  std::string text;
  std::array<char, 4096> part;
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), n);
  if (::pclose(pipe) != 0) throw Error("comm: '" + command + "' has failed; expected an MPI library and mpirun");
  std::istringstream lines(text);
  double value = 0;
  for (std::string name; lines >> name >> value;) to[role + "_" + name].push_back(value);
}

}  // namespace

const char* const comm_fields =
    "Records, by `measurement`:\n"
    "  local  calls of two members of a process, many under way: us_per_call is that of both members together\n"
    "  sums   bytes that sums of two large tensors read and write, as a share of what memory reaches "
    "(memory_gb_per_s)\n"
    "  calls  all_reduce of processes: bare is MPI_Iallreduce alone, overhead the difference.\n"
    "         together: 32 calls under way; in_turn: each waits for the one before\n"
    "  steps  12 layers of 2 MB whose ops take a fixed time without a processor, by the network and as\n"
    "         'windrow simulate' computes it from a network that was measured before and after the steps.\n"
    "         limit: computation (3 ms forward for a layer) or network (0.3 ms); ratio is real to simulated\n"
    "\n"
    "Medians of the repetitions, in each of which all processes ran in turn. mpirun must be found, and Windrow built\n"
    "with an MPI library. In a container that forbids processes to read each other's memory, set\n"
    "OMPI_MCA_btl_vader_single_copy_mechanism=none in the environment.\n"
    "\n"
    "With --role perceptron, started by mpirun: a perceptron of square layers with tanh, a squared distance as loss, "
    "and\n"
    "plain gradient descent; each process has one worker. Fields, times per step:\n"
    "  step_ms           with everything\n"
    "  computation_ms    without sums of gradients\n"
    "  communication_ms  sums of gradients that are there\n"
    "  hidden            the share of the communication that is hidden: 1 - (step - computation) / communication. It "
    "is\n"
    "                    computed from the medians of both ratios, and below 0 if sums slow the computation down by\n"
    "                    more than they take alone\n"
    "  loss_first        the first loss, of a sample of rank 0, and\n"
    "  loss_last         that after the steps of one repetition: the same in perf/peers/torch_ddp.py";

void measure_calls(int rank, const std::function<void()>& call, const std::function<void()>& group) {
  constexpr int groups = (calls_in_turn + calls_together - 1) / calls_together;
  const double began = clock_seconds();
  for (int i = 0; i < calls_in_turn; ++i) call();
  const double in_turn = clock_seconds();
  for (int i = 0; i < groups; ++i) group();
  const double together = clock_seconds();
  if (rank > 0) return;
  program::print("in_turn_us %.3f\n", (in_turn - began) / calls_in_turn * 1e6);
  program::print("together_us %.3f\n", (together - in_turn) / (groups * calls_together) * 1e6);
}

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<std::string> comm_roles() { return {"bare", "member", "perceptron"}; }

std::optional<Record> run_comm_role(const std::string& role, const PerceptronOptions& options) {
  if (role == "perceptron") return measure_perceptron(options);
  role == "bare" ? run_bare_mpi() : run_member();
  return std::nullopt;
}

void measure_comm(const CommOptions& options, const Report& report) {
  measure_local(options, report);
  for (const int processes : options.processes) {
    Values values;
    for (int i = 0; i < options.repetitions; ++i) {
      for (const char* const role : {"bare", "member"}) run(processes, role, values);
    }
    const auto median = [&](const std::string& name) { return values[name].empty() ? 0 : median_of(values[name]); };
    Record calls = {{"measurement", "calls"}, {"processes", processes}, {"bytes", call_bytes}};
    for (const std::string how : {"together", "in_turn"}) {
      const double bare = median("bare_" + how + "_us"), own = median("member_" + how + "_us");
      calls.update({{how + "_bare_us", bare}, {how + "_us", own}, {how + "_overhead_us", own - bare}});
    }
    report(calls);
    for (const std::string limit : {"computation", "network"}) {
      Record steps = {{"measurement", "steps"}, {"processes", processes}, {"limit", limit}};
      for (const char* const field : {"real_ms", "simulated_ms", "ratio", "hidden", "gb_per_s"}) {
        steps[field] = median("member_" + limit + "_" + field);
      }
      report(steps);
    }
  }
}

}  // namespace windrow::perf
