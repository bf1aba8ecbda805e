// windrow train, alone and as several processes, killed or stopped at random moments and continued. WINDROW_TEST_SEED
// sets the seed, WINDROW_TEST_KILLS the number of kills, and of processes of a group that are killed or stopped.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "tests/programs/programs.h"
#include "tests/seed.h"
#include "windrow/training/checkpoint_folder.h"

namespace windrow::testing {
namespace {

class KilledPrograms : public Programs {
 protected:
  /// Starts windrow, or another program, in a process group of its own. Its errors go to a file.
  pid_t start(const std::string& arguments, const std::string& program = WINDROW_BIN "/windrow") const {
    const std::string command = "exec '" + program + "' " + arguments + " >/dev/null 2>" + in("err");
    const pid_t child = fork();
    if (child != 0) return child;
    setpgid(0, 0);
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  /// Of a training that saves after each minibatch to the folder, or goes on from there.
  static std::string saving_to(const std::filesystem::path& run) {
    const bool begun = std::filesystem::exists(run) && !CheckpointFolder(run).steps().empty();
    return " --save '" + run.string() + "' --save-every 1 --keep 2" + (begun ? " --resume" : "");
  }

  /// Waits until the process ends, or kills it when the time is over. Returns whether it has ended by itself.
  bool ends_within(pid_t child, std::chrono::microseconds time) const {
    std::this_thread::sleep_for(time);
    kill(child, SIGKILL);
    return wait_for(child);
  }
  bool wait_for(pid_t child) const {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return false;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << read_file(folder / "err");
    return true;
  }

  /// All tensors of the newest checkpoint, as bytes.
  static std::string tensors_of(const std::filesystem::path& run) {
    const CheckpointFolder checkpoints(run);
    const NewestCheckpoint newest = checkpoints.newest();
    EXPECT_TRUE(newest.skipped.empty()) << newest.skipped.front();
    const std::string step = std::to_string(checkpoints.steps().back());
    return read_file(run / (std::string(12 - step.size(), '0') + step + ".safetensors"));
  }
};

int kills_of_environment(int otherwise) {
  const char* given = std::getenv("WINDROW_TEST_KILLS");
  return given == nullptr ? otherwise : std::atoi(given);
}

TEST_F(KilledPrograms, EndWithTheBitsOfARunThatWasNeverKilled) {
  int kills = kills_of_environment(4);
  const unsigned seed = first_seed();
  SCOPED_TRACE("WINDROW_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string trees =
      "train tree-lstm --hidden 16 --embedding 16 --samples 256 --batch 16 --epochs 3 --optimiser adam --dropout 0.2 "
      "--accumulate 2 --average 0.9 --schedule complete";
  const std::string parser = "train parser --hidden 8 --samples 48 --batch 8 --epochs 2";
  for (int round = 0; kills > 0; ++round) {
    const std::string& model = round % 2 == 0 ? parser : trees;
    const std::filesystem::path straight = folder / (&model == &parser ? "parser" : "trees"), run = folder / "run";
    if (round < 2) {
      ASSERT_TRUE(wait_for(start(model + saving_to(straight))));
    }
    std::filesystem::remove_all(run);
    const int least = round < 2 ? kills / 2 : 0;  // both models have their turn
    for (bool ended = false; !ended && !HasFailure();) {
      const pid_t child = start(model + saving_to(run));
      ended = kills > least ? ends_within(child, std::chrono::microseconds(random() % 150'000)) : wait_for(child);
      if (!ended) --kills;
    }
    ASSERT_FALSE(HasFailure());
    EXPECT_TRUE(tensors_of(run) == tensors_of(straight)) << model;
  }
}

#ifdef WINDROW_WITH_MPI
/// The processes that a process has started and that still run.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::ifstream in("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  for (pid_t child = 0; in >> child;) children.push_back(child);
  return children;
}

bool runs(pid_t process) {
  std::ifstream in("/proc/" + std::to_string(process) + "/stat");
  std::string number, name, state;
  return in >> number >> name >> state && state != "Z";
}

class KilledMembers : public KilledPrograms {
 protected:
  static constexpr std::size_t processes = 3;

  pid_t start_members(const std::string& arguments) const {
    return start("--allow-run-as-root --oversubscribe -n " + std::to_string(processes) + " '" WINDROW_BIN "/windrow' " +
                     arguments,
                 WINDROW_MPIRUN);
  }
  /// The status of mpirun, which must end in time and leave no process behind.
  int status_of(pid_t mpirun, const std::vector<pid_t>& members, std::optional<pid_t> stopped = {}) const {
    int status = -1;
    for (int tenths = 0; waitpid(mpirun, &status, WNOHANG) == 0; ++tenths) {
      if (tenths == 400) {
        const auto left = std::ranges::count_if(members, runs);
        // What is tested is that the processes end. mpirun may fail by itself: its PMIx server, to which they connect.
        EXPECT_TRUE(left == 0 && !members.empty())
            << "after 40 seconds, mpirun and " << left << " of its processes still run\n"
            << read_file(folder / "err");
        kill(-mpirun, SIGKILL);
        for (const pid_t member : members) kill(member, SIGKILL);
        waitpid(mpirun, &status, 0);
        return -1;
      }
      // A process that is stopped behind the end of the training holds up mpirun alone.
      const auto others = std::ranges::count_if(members, [&](pid_t each) { return each != stopped && runs(each); });
      if (stopped && others == 0) kill(*stopped, SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    // mpirun may end before the processes that it has killed.
    for (const pid_t member : members) {
      for (int tenths = 0; runs(member); ++tenths) {
        if (tenths == 200) {
          ADD_FAILURE() << "process " << member << " is left after 20 seconds";
          kill(member, SIGKILL);
          break;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
};

/// The parameter: the devices of each process.
class KilledGroups : public KilledMembers, public ::testing::WithParamInterface<const char*> {};

TEST_P(KilledGroups, EndInTimeAndGoOnWithTheBitsOfARunThatWasNeverKilled) {
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);  // containers may forbid it
  const unsigned seed = first_seed();
  SCOPED_TRACE("WINDROW_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string devices = GetParam();
  int kills = (kills_of_environment(2) + (devices.empty() ? 1 : 0)) / 2;
  const std::string training =
      "train tree-lstm --hidden 16 --embedding 16 --samples 256 --batch 16 --epochs 3 --optimiser adam --dropout 0.2 "
      "--workers 1 --comm mpi --comm-timeout 2 " +
      devices;
  const std::filesystem::path straight = folder / "straight", run = folder / "run";
  ASSERT_EQ(status_of(start_members(training + saving_to(straight)), {}), 0) << read_file(folder / "err");
  while (kills > 0 && !HasFailure()) {
    std::filesystem::remove_all(run);
    for (int status = -1; status != 0 && !HasFailure();) {
      const pid_t mpirun = start_members(training + saving_to(run));
      std::vector<pid_t> members;
      for (int ms = 0; members.size() < processes && ms < 10'000; ++ms) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        members = children_of(mpirun);
      }
      EXPECT_EQ(members.size(), processes) << read_file(folder / "err");
      std::optional<pid_t> victim;
      if (kills > 0 && members.size() == processes) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 700'000));
        victim = members[random() % processes];
        kill(*victim, kills-- % 2 == 0 ? SIGKILL : SIGSTOP);
      }
      status = status_of(mpirun, members, victim);
    }
    ASSERT_FALSE(HasFailure());
    EXPECT_TRUE(tensors_of(run) == tensors_of(straight)) << "after " << kills << " kills";
  }
}
INSTANTIATE_TEST_SUITE_P(Of, KilledGroups, ::testing::Values("", "--devices cpu:0,cpu:1"));
#endif

}  // namespace
}  // namespace windrow::testing
