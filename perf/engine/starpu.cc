// StarPU's task_insert with a data handle for each cell, as its users write it. Its workers poll for tasks all the
// time, so they are paused while other systems run.
#include <starpu.h>

#include "systems.h"
#include "windrow/engine/error.h"

namespace windrow::perf {
namespace {

void run_work(void* const* /*buffers*/, void* argument) {
  Work work{};
  starpu_codelet_unpack_args(argument, &work);
  work();
}

/// Makes the codelet for one list of access modes.
starpu_codelet codelet(std::initializer_list<starpu_data_access_mode> modes) {
  starpu_codelet result;
  starpu_codelet_init(&result);
  result.cpu_funcs[0] = [](void** buffers, void* argument) { run_work(buffers, argument); };
  result.nbuffers = static_cast<int>(modes.size());
  std::copy(modes.begin(), modes.end(), result.modes);
  return result;
}

class StarPuSystem : public System {
 public:
  StarPuSystem(const Pattern& pattern, const SystemOptions& options)
      : cells_(static_cast<std::size_t>(pattern.cells)), handles_(cells_.size()) {
    start(options.workers);
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      starpu_variable_data_register(&handles_[i], STARPU_MAIN_RAM, reinterpret_cast<std::uintptr_t>(&cells_[i]), 1);
    }
    starpu_pause();
  }
  ~StarPuSystem() override {
    starpu_resume();
    for (const starpu_data_handle_t handle : handles_) starpu_data_unregister_no_coherency(handle);
    starpu_shutdown();
  }

  Times run(const Job& job) override {
    if (!job.held) starpu_resume();
    const Times times = time_pushes(
        job, [&](std::size_t, const Task& task) { push(job.work(task), task); },
        [&] {
          if (job.held) starpu_resume();
          starpu_task_wait_for_all();
        });
    starpu_pause();
    return times;
  }

 private:
  /// Starts CPU workers only, and leaves signal handlers unchanged.
  static void start(int workers) {
    starpu_conf conf;
    starpu_conf_init(&conf);
    conf.ncpus = workers;
    conf.ncuda = conf.nopencl = 0;
    conf.catch_signals = 0;
    if (const int status = starpu_init(&conf); status != 0) {
      throw Error("StarPU does not start: starpu_init gives " + std::to_string(status));
    }
  }

  void push(Work work, const Task& task) {
    const auto insert = [&](starpu_codelet& codelet, auto... accesses) {
      starpu_task_insert(&codelet, STARPU_VALUE, &work, sizeof work, accesses..., 0);
    };
    const auto& reads = task.reads;
    switch (task.read_count) {
      case 0:
        return insert(writes_, STARPU_RW, at(task.mutates));
      case 1:
        return insert(reads_, STARPU_R, at(reads[0]));
      case 2:
        return insert(reads_two_, STARPU_R, at(reads[0]), STARPU_R, at(reads[1]), STARPU_RW, at(task.mutates));
      default:
        return insert(reads_three_, STARPU_R, at(reads[0]), STARPU_R, at(reads[1]), STARPU_R, at(reads[2]), STARPU_RW,
                      at(task.mutates));
    }
  }
  starpu_data_handle_t at(int cell) const { return handles_[static_cast<std::size_t>(cell)]; }

  std::vector<char> cells_;
  std::vector<starpu_data_handle_t> handles_;  // by cell
  starpu_codelet writes_ = codelet({STARPU_RW}), reads_ = codelet({STARPU_R}),
                 reads_two_ = codelet({STARPU_R, STARPU_R, STARPU_RW}),
                 reads_three_ = codelet({STARPU_R, STARPU_R, STARPU_R, STARPU_RW});
};

}  // namespace

const SystemKind starpu_system = {.name = "starpu",
                                  .make = make<StarPuSystem>,
                                  .holds = SystemKind::Holds::a_backlog,
                                  .needs = {.name = "STARPU_SILENT", .value = "1"}};

}  // namespace windrow::perf
