#include "teams.h"

#include <barrier>
#include <memory>
#include <thread>

namespace windrow::fake {
namespace {

using cuda::HostTeam;

/// Runs the threads of a team in a loop. Notes which threads access an element of shared memory between two barriers.
class Loop final : public cuda::TeamRunner {
 public:
  Loop(std::size_t shared_bytes, const std::function<void(std::string)>& report)
      : cells_(shared_bytes / sizeof(float) + 1), report_(report) {}

  void sync() override { ++period_; }

  void touch(std::size_t offset, int thread, bool writes) override {
    if (offset / sizeof(float) + 1 >= cells_.size()) return raced(offset, "is not part of the launch");
    Cell& cell = cells_[offset / sizeof(float)];
    const bool written = cell.written == period_ && (cell.writer != thread || thread == everyone);
    const bool seen = cell.read == period_ && (cell.reader != thread || thread == everyone);
    if (written) raced(offset, "is written by a thread and accessed by another, without sync() between them");
    if (writes && seen) raced(offset, "is read by a thread and written by another, without sync() between them");
    if (writes) {
      cell.written = period_;
      cell.writer = thread;
    } else {
      cell.reader = cell.read == period_ && cell.reader != thread ? everyone : thread;
      cell.read = period_;
    }
  }

 private:
  static constexpr int everyone = -1;
  struct Cell {
    std::uint64_t written = 0, read = 0;  // the period between barriers
    int writer = everyone, reader = everyone;
  };

  void raced(std::size_t offset, const char* what) {
    if (raced_) return;
    raced_ = true;
    report_("shared memory at byte " + std::to_string(offset) + " " + what);
  }

  std::vector<Cell> cells_;
  std::uint64_t period_ = 1;
  bool raced_ = false;
  const std::function<void(std::string)>& report_;
};

/// A thread of the host for each thread of the team.
class Real final : public cuda::TeamRunner {
 public:
  explicit Real(int threads) : barrier_(threads) {}
  void sync() override { barrier_.arrive_and_wait(); }
  void touch(std::size_t, int, bool) override {}

 private:
  std::barrier<> barrier_;
};

}  // namespace

void run_teams(const Launch& launch, Threads threads, const std::function<void(std::string)>& report) {
  const std::size_t words = launch.shared_bytes / sizeof(std::max_align_t) + 1;
  const auto shared = std::make_unique<std::max_align_t[]>(words);
  std::vector<float> reduced(static_cast<std::size_t>(cuda::most_threads));
  const auto shape_of = [&](int team) {
    return HostTeam::Shape{team, launch.teams, launch.threads, reinterpret_cast<std::byte*>(shared.get()),
                           reduced.data()};
  };
  if (threads == Threads::loop) {
    Loop loop(launch.shared_bytes, report);
    for (int t = 0; t < launch.teams; ++t) {
      HostTeam team(shape_of(t), 0, launch.threads, loop);
      launch.kernel->run(launch.arguments.data(), team);
      loop.sync();
    }
    return;
  }
  Real real(launch.threads);
  std::vector<std::thread> all;
  for (int thread = 0; thread < launch.threads; ++thread) {
    all.emplace_back([&, thread] {
      for (int t = 0; t < launch.teams; ++t) {
        HostTeam team(shape_of(t), thread, thread + 1, real);
        launch.kernel->run(launch.arguments.data(), team);
        real.sync();
      }
    });
  }
  for (std::thread& thread : all) thread.join();
}

}  // namespace windrow::fake
