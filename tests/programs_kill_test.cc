// windrow train, killed at random moments and continued. WINDROW_TEST_SEED sets the seed, WINDROW_TEST_KILLS the number
// of kills.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "tests/programs.h"
#include "tests/seed.h"
#include "windrow/training/checkpoint_folder.h"

namespace windrow::testing {
namespace {

class KilledPrograms : public Programs {
 protected:
  using Arguments = std::vector<std::string>;

  /// Starts windrow in a process of its own, whose errors go to a file.
  pid_t start(const Arguments& arguments) const {
    const std::string program = WINDROW_BIN "/windrow", errors = (folder / "err").string();
    std::vector<const char*> words = {program.c_str()};
    for (const std::string& argument : arguments) words.push_back(argument.c_str());
    words.push_back(nullptr);
    const pid_t child = fork();
    if (child != 0) return child;
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

TEST_F(KilledPrograms, EndWithTheBitsOfARunThatWasNeverKilled) {
  const char* given = std::getenv("WINDROW_TEST_KILLS");
  int kills = given == nullptr ? 4 : std::atoi(given);
  const unsigned seed = first_seed();
  SCOPED_TRACE("WINDROW_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto words = [](const std::string& line) {
    std::istringstream in(line);
    return Arguments{std::istream_iterator<std::string>(in), {}};
  };
  const Arguments trees = words(
                      "train tree-lstm --hidden 16 --embedding 16 --samples 256 --batch 16 --epochs 3 --optimiser adam "
                      "--dropout 0.2 --accumulate 2 --average 0.9 --schedule learned"),
                  parser = words("train parser --hidden 8 --samples 48 --batch 8 --epochs 2");
  const auto with = [](Arguments all, const Arguments& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  for (int round = 0; kills > 0; ++round) {
    const Arguments& model = round % 2 == 0 ? parser : trees;
    const std::filesystem::path straight = folder / (model[1] + ".straight"), run = folder / "run";
    if (round < 2) {
      ASSERT_TRUE(wait_for(start(with(model, {"--save", straight.string()}))));
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

}  // namespace
}  // namespace windrow::testing
