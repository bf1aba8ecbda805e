// windrow train, alone and as several processes, killed or stopped at random moments and continued. WINDROW_TEST_SEED
// sets the seed, WINDROW_TEST_KILLS the number of kills, and of processes of a group that are killed or stopped.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <thread>

#include "tests/programs/programs.h"
#include "tests/seed.h"
#include "windrow/training/checkpoint_folder.h"

namespace windrow::testing {
namespace {

class KilledPrograms : public Programs {
 public:
  using Arguments = std::vector<std::string>;

 protected:
  /// Starts windrow, or another program, in a process group of its own. Its errors go to a file.
  pid_t start(const Arguments& arguments, const std::string& program = WINDROW_BIN "/windrow") const {
    const std::string errors = (folder / "err").string();
    std::vector<const char*> words = {program.c_str()};
    for (const std::string& argument : arguments) words.push_back(argument.c_str());
    words.push_back(nullptr);
    const pid_t child = fork();
    if (child != 0) return child;
    setpgid(0, 0);
    dup2(open("/dev/null", O_WRONLY), 1);
    dup2(open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), 2);
    execv(program.c_str(), const_cast<char**>(words.data()));
    _exit(127);
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
  static std::map<std::string, std::vector<std::uint32_t>> tensors_of(const std::filesystem::path& run) {
    const NewestCheckpoint newest = CheckpointFolder(run).newest();
    EXPECT_TRUE(newest.skipped.empty()) << newest.skipped.front();
    std::map<std::string, std::vector<std::uint32_t>> all;
    for (const StoredTensor& tensor : newest.checkpoint->tensors.tensors()) {
      std::vector<std::uint32_t>& words = all[tensor.name];
      const auto take = [&]<class T>(std::vector<T> elements) {
        newest.checkpoint->tensors.read(tensor.name, tensor.shape, std::span(elements));
        words.resize(elements.size() * sizeof(T) / sizeof words[0]);
        std::memcpy(words.data(), elements.data(), elements.size() * sizeof(T));
      };
      std::size_t count = 1;
      for (const std::uint64_t size : tensor.shape) count *= size;
      tensor.name.starts_with("trainer/") ? take(std::vector<std::int64_t>(count)) : take(std::vector<float>(count));
    }
    return all;
  }
};

int kills_of_environment(int otherwise) {
  const char* given = std::getenv("WINDROW_TEST_KILLS");
  return given == nullptr ? otherwise : std::atoi(given);
}

KilledPrograms::Arguments words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

TEST_F(KilledPrograms, EndWithTheBitsOfARunThatWasNeverKilled) {
  int kills = kills_of_environment(4);
  const unsigned seed = first_seed();
  SCOPED_TRACE("WINDROW_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const Arguments trees = words_of(
                      "train tree-lstm --hidden 16 --embedding 16 --samples 256 --batch 16 --epochs 3 --optimiser adam "
                      "--dropout 0.2 --accumulate 2 --average 0.9 --schedule complete"),
                  parser = words_of("train parser --hidden 8 --samples 48 --batch 8 --epochs 2");
  const auto with = [](Arguments all, const Arguments& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  for (int round = 0; kills > 0; ++round) {
    const Arguments& model = round % 2 == 0 ? parser : trees;
    const std::filesystem::path straight = folder / (model[1] + ".straight"), run = folder / "run";
    if (round < 2) {
      ASSERT_TRUE(wait_for(start(with(model, {"--save", straight.string(), "--save-every", "1", "--keep", "2"}))));
    }
    std::filesystem::remove_all(run);
    const Arguments saving = with(model, {"--save", run.string(), "--save-every", "1", "--keep", "2"});
    const int least = round < 2 ? kills / 2 : 0;  // both models have their turn
    for (bool ended = false; !ended && !HasFailure();) {
      const bool begun = std::filesystem::exists(run) && !CheckpointFolder(run).steps().empty();
      const pid_t child = start(begun ? with(saving, {"--resume"}) : saving);
      ended = kills > least ? ends_within(child, std::chrono::microseconds(random() % 150'000)) : wait_for(child);
      if (!ended) --kills;
    }
    ASSERT_FALSE(HasFailure());
    EXPECT_TRUE(tensors_of(run) == tensors_of(straight)) << model[1];
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

  pid_t start_members(const Arguments& arguments) const {
    Arguments all =
        words_of("--allow-run-as-root --oversubscribe -n " + std::to_string(processes) + " " WINDROW_BIN "/windrow");
    all.insert(all.end(), arguments.begin(), arguments.end());
    return start(all, WINDROW_MPIRUN);
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
  const Arguments training = words_of(
      "train tree-lstm --hidden 16 --embedding 16 --samples 256 --batch 16 --epochs 3 --optimiser adam --dropout 0.2 "
      "--workers 1 --comm mpi --comm-timeout 2 " +
      devices);
  const auto saving_to = [&](const std::filesystem::path& run) {
    Arguments all = training;
    all.insert(all.end(), {"--save", run.string(), "--save-every", "1", "--keep", "2"});
    return all;
  };
  const std::filesystem::path straight = folder / "straight", run = folder / "run";
  ASSERT_EQ(status_of(start_members(saving_to(straight)), {}), 0) << read_file(folder / "err");
  while (kills > 0 && !HasFailure()) {
    std::filesystem::remove_all(run);
    for (int status = -1; status != 0 && !HasFailure();) {
      Arguments arguments = saving_to(run);
      if (std::filesystem::exists(run) && !CheckpointFolder(run).steps().empty()) arguments.push_back("--resume");
      const pid_t mpirun = start_members(arguments);
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
