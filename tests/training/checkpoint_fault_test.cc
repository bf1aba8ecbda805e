// Checkpoints whose writing fails at each system call in turn, or ends with the power of a disk in memory that keeps
// only what fsync has made durable, and of the rest what chance decides: the newest one or the one before loads.
#include "tests/training/files.h"

namespace windrow::testing {
namespace {

namespace fs = std::filesystem;

class CheckpointFaultTest : public FileTest {
 protected:
  const fs::path run = folder / "run";
  const FaultyCalls calls;  // without faults

  enum class Outcome { written, refused };

  static Outcome write(const fs::path& to, const KnownCheckpoint& checkpoint, const FileCalls& by) {
    try {
      CheckpointWriter(to, {.keep = 1, .resume = true}, by).write(checkpoint.contents());
      return Outcome::written;
    } catch (const FileError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      EXPECT_TRUE(std::string(error.what()).starts_with(to.parent_path().string())) << error.what();
      return Outcome::refused;
    }
  }

  /// Writes `newer` over `older`, with one fault. Returns the number of calls that can suffer it.
  std::size_t fail_each(FaultPlan plan, const KnownCheckpoint& older, const KnownCheckpoint& newer) {
    for (plan.at = 0;; ++plan.at) {
      fs::remove_all(run);
      write(run, older, calls);
      const FaultyCalls faulty(plan);
      const Outcome outcome = write(run, newer, faulty);
      SCOPED_TRACE(faulty.victim());
      expect_one_of(older, newer, outcome);
      if (!faulty.struck()) return plan.at;
      const bool harmless = plan.fault == Fault::interrupted || plan.fault == Fault::shortened;
      EXPECT_TRUE(!harmless || outcome == Outcome::written);
      expect_recovery();
    }
  }

  void expect_one_of(const KnownCheckpoint& older, const KnownCheckpoint& newer, Outcome outcome) const {
    const NewestCheckpoint newest = CheckpointFolder(run, calls).newest();
    ASSERT_TRUE(newest.checkpoint);
    EXPECT_TRUE(newest.skipped.empty());
    const bool has_newer = *newest.checkpoint == newer;
    EXPECT_TRUE(has_newer || (outcome == Outcome::refused && *newest.checkpoint == older));
  }

  /// The next write succeeds and leaves nothing else behind.
  void expect_recovery() const {
    ASSERT_EQ(write(run, KnownCheckpoint{9}, calls), Outcome::written);
    EXPECT_EQ(names_in(run), (std::set<std::string>{"000000000009.json", "000000000009.safetensors", "lock"}));
  }
};

TEST_F(CheckpointFaultTest, TheNewestOrTheOneBeforeLoadsWhateverCallFails) {
  for (const int error : {EIO, ENOSPC}) {
    EXPECT_GT(fail_each({.fault = Fault::refused, .error = error}, {.step = 1}, {.step = 2}), 30u);
  }
}

TEST_F(CheckpointFaultTest, TheNewestOrTheOneBeforeLoadsWhereverTheProcessIsKilled) {
  EXPECT_GT(fail_each({.fault = Fault::killed}, {.step = 1}, {.step = 2}), 30u);
}

TEST_F(CheckpointFaultTest, TheOldOrTheNewCheckpointOfOneStepLoads) {
  const KnownCheckpoint older{.step = 1}, newer{.step = 1, .version = 5};
  EXPECT_GT(fail_each({.fault = Fault::refused}, older, newer), 30u);
  EXPECT_GT(fail_each({.fault = Fault::killed}, older, newer), 30u);
}

TEST_F(CheckpointFaultTest, InterruptionsAndShortReadsAndWritesChangeNothing) {
  EXPECT_GT(fail_each({.fault = Fault::interrupted}, {.step = 1}, {.step = 2}), 20u);
  EXPECT_GT(fail_each({.fault = Fault::shortened}, {.step = 1}, {.step = 2}), 5u);
}

TEST_F(CheckpointFaultTest, AReaderReportsEachCallThatFails) {
  write(run, {.step = 1}, calls);
  for (const Fault harmless : {Fault::interrupted, Fault::shortened}) {
    bool struck = true;
    for (std::size_t at = 0; struck; ++at) {
      const FaultyCalls faulty({.fault = harmless, .at = at});
      EXPECT_EQ(CheckpointFolder(run, faulty).load(1), KnownCheckpoint{1}) << faulty.victim();
      struck = faulty.struck();
    }
  }
  std::size_t refused = 0;
  for (std::size_t at = 0;; ++at) {
    const FaultyCalls faulty({.at = at});
    try {
      const SavedCheckpoint checkpoint = CheckpointFolder(run, faulty).load(1);
      EXPECT_EQ(checkpoint, KnownCheckpoint{1});
    } catch (const FileError& error) {
      EXPECT_TRUE(std::string(error.what()).ends_with("failed: Input/output error")) << error.what();
      ++refused;
    }
    if (!faulty.struck()) break;
  }
  EXPECT_GT(refused, 7u);
}

/// What a program has been told.
struct Progress {
  std::optional<KnownCheckpoint> written, begun;
};

Progress write_until_the_power_fails(const FileCalls& disk) {
  Progress progress;
  try {
    CheckpointWriter writer("run", {.keep = 1}, disk);
    for (const KnownCheckpoint& checkpoint : {KnownCheckpoint{1}, {2}, {2, 1}, {3}}) {
      progress.begun = checkpoint;
      writer.write(checkpoint.contents());
      progress.written = checkpoint;
    }
  } catch (const FileError&) {
  }
  return progress;
}

bool is(const NewestCheckpoint& newest, const std::optional<KnownCheckpoint>& known) {
  return newest.checkpoint && known ? *newest.checkpoint == *known : !newest.checkpoint && !known;
}

TEST(PowerLoss, LeavesTheNewestCheckpointOrTheOneThatWasBeingWritten) {
  std::mt19937 random(first_seed());
  const int chances = sanitized ? 5 : 20;
  for (std::size_t at = 0;; ++at) {
    const Disk disk;
    const FaultyCalls calls({.fault = Fault::killed, .at = at}, disk);
    const Progress progress = write_until_the_power_fails(calls);
    for (int chance = 0; chance < chances; ++chance) {
      const std::unique_ptr<Disk> found = disk.after_power_loss(random);
      const NewestCheckpoint newest = CheckpointFolder("run", *found).newest();
      ASSERT_TRUE(is(newest, progress.written) || is(newest, progress.begun)) << "call " << at;
      // The next writer is not disturbed by what is left, and removes it.
      const KnownCheckpoint next{9};
      CheckpointWriter("run", {.keep = 1, .resume = true}, *found).write(next.contents());
      ASSERT_TRUE(is(CheckpointFolder("run", *found).newest(), next)) << "call " << at;
      ASSERT_EQ(found->files(), 3u) << "call " << at;
    }
    if (!calls.struck()) break;
  }
}

}  // namespace
}  // namespace windrow::testing
