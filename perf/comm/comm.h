// Collectives: their cost beside that of bare MPI, and steps of processes beside simulated ones. Start here.
//
// `windrow-perf comm` measures groups within its own process (host.cc), and starts `mpirun` with itself for the others:
// processes that call MPI alone (bare_mpi.cc), and processes that train (member.cc, timed_lane.h), in turn. Rank 0 of
// these prints a line for each value, which processes.cc reads.
//
// The role `perceptron` is for people: perceptron.cc, in the processes that mpirun has started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report.h"
#include "windrow/ops/internal/matrix.h"

namespace windrow::perf {

/// Data-parallel steps in the processes that mpirun has started, with the same model as perf/peers/torch_ddp.py.
struct PerceptronOptions {
  int layers = 12;
  Index width = 512, batch = 64;  ///< `batch` is that of a process
  int steps = 10;                 ///< of a repetition
  int repetitions = 5;
};

struct CommOptions {
  std::vector<int> processes = {2, 4};
  int repetitions = 5;  ///< of each measurement; medians are reported
  PerceptronOptions perceptron;
};

/// Describes the fields of the records, for --help.
extern const char* const comm_fields;

/// The whole benchmark.
void measure_comm(const CommOptions& options, const Report& report);

/// Calls of a LocalGroup, and the bandwidth of sums.
void measure_local(const CommOptions& options, const Report& report);

// What a started process does; `role` is one of comm_roles(). Returns a record to print, if there is one.
std::vector<std::string> comm_roles();
std::optional<Record> run_comm_role(const std::string& role, const PerceptronOptions& options);
void run_bare_mpi();
void run_member();

/// The learning rate.
inline constexpr double perceptron_rate = 0.01;

/// Returns the record at rank 0. All processes call it with the same options.
std::optional<Record> measure_perceptron(const PerceptronOptions& options);

/// Bytes of the calls whose overhead is measured, how many follow each other, and how many are under way together.
inline constexpr std::size_t call_bytes = 4096;
inline constexpr int calls_in_turn = 400, calls_together = 32;

/// Measures calls that follow each other, and groups of `calls_together` calls, and prints both at rank 0.
void measure_calls(int rank, const std::function<void()>& call, const std::function<void()>& group);

/// Seconds since some moment.
double clock_seconds();

}  // namespace windrow::perf
