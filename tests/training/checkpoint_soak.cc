// Kills a process that writes checkpoints at random moments. After each kill, the newest checkpoint or the one that was
// being written must load. checkpoint_soak [--kills N] [--seed S]
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>

#include "windrow/training/checkpoint_folder.h"

namespace windrow {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t keep = 2, size = 50'000;

struct Options {
  int kills = 200;
  unsigned seed = std::random_device()();
};

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

/// A folder for one run.
class Folder {
 public:
  Folder() : name_((fs::temp_directory_path() / "windrow_XXXXXX").string()) {
    if (mkdtemp(name_.data()) == nullptr) fail("no folder for checkpoints in " + name_);
  }
  ~Folder() { fs::remove_all(name_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path path() const { return fs::path(name_) / "run"; }

 private:
  std::string name_;
};

/// The last step that was written for sure, in memory that parent and child share.
class LastWritten {
 public:
  LastWritten() {
    void* memory = mmap(nullptr, sizeof *step_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no shared memory");
    step_ = new (memory) std::atomic<std::uint64_t>(0);
  }
  ~LastWritten() { munmap(step_, sizeof *step_); }
  LastWritten(const LastWritten&) = delete;
  LastWritten& operator=(const LastWritten&) = delete;

  std::atomic<std::uint64_t>& step() { return *step_; }

 private:
  std::atomic<std::uint64_t>* step_;  // written by the child, read by the parent
};

std::vector<float> values_of(std::uint64_t step) { return std::vector<float>(size, static_cast<float>(step)); }

void write(CheckpointWriter& writer, std::uint64_t step) {
  const std::vector<float> values = values_of(step);
  writer.write({.step = step,
                .tensors = {{"a", {size}, values}, {"b", {size / 10, 10}, values}, {"c", {size}, values}},
                .document = Record().set("step", step)});
}

[[noreturn]] void write_until_killed(const fs::path& folder, LastWritten& last) {
  try {
    CheckpointWriter writer(folder, {.keep = keep});
    for (std::uint64_t step = last.step() + 1;; ++step) {
      write(writer, step);
      last.step() = step;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint_soak: the writer failed: %s\n", error.what());
  }
  _exit(1);
}

/// Returns the step of the newest checkpoint.
std::uint64_t require_newest(const fs::path& folder, std::uint64_t written) {
  const NewestCheckpoint newest = CheckpointFolder(folder).newest();
  for (const std::string& line : newest.skipped) fail("skipped " + line);
  if (!newest.checkpoint) {
    if (written > 0) fail("no checkpoint; expected step " + std::to_string(written));
    return 0;
  }
  const SavedCheckpoint& checkpoint = *newest.checkpoint;
  if (checkpoint.step != written && checkpoint.step != written + 1) {
    fail("step " + std::to_string(checkpoint.step) + "; expected " + std::to_string(written) + " or the next one");
  }
  std::vector<float> values(size);
  checkpoint.tensors.read("b", {size / 10, 10}, values);
  if (values != values_of(checkpoint.step)) fail("other values at step " + std::to_string(checkpoint.step));
  return checkpoint.step;
}

void soak(const Options& options) {
  std::printf("seed %u\n", options.seed);
  std::fflush(stdout);
  std::mt19937 random(options.seed);
  const Folder folder;
  fs::create_directory(folder.path());
  LastWritten last;
  for (int kill_number = 0; kill_number < options.kills; ++kill_number) {
    const pid_t child = fork();
    if (child < 0) fail("fork failed");
    if (child == 0) write_until_killed(folder.path(), last);
    usleep(std::uniform_int_distribution<useconds_t>(0, 30'000)(random));
    kill(child, SIGKILL);
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) fail("the writer ended by itself");
    last.step() = require_newest(folder.path(), last.step());
  }
  CheckpointWriter writer(folder.path(), {.keep = keep});
  write(writer, last.step() + 1);
  const auto files = std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator());
  if (files > static_cast<std::ptrdiff_t>(2 * keep + 1)) fail(std::to_string(files) + " files are left");
  std::printf("%d kills, %llu checkpoints\n", options.kills, static_cast<unsigned long long>(last.step()));
}

/// False for arguments that are none.
bool parse(int count, char** arguments, Options& options) {
  for (int i = 1; i < count; i += 2) {
    if (i + 1 == count) return false;
    char* end = nullptr;
    if (std::strcmp(arguments[i], "--kills") == 0) {
      options.kills = static_cast<int>(std::strtol(arguments[i + 1], &end, 10));
    } else if (std::strcmp(arguments[i], "--seed") == 0) {
      options.seed = static_cast<unsigned>(std::strtoul(arguments[i + 1], &end, 10));
    }
    if (end == nullptr || end == arguments[i + 1] || *end != '\0') return false;
  }
  return options.kills >= 1;
}

}  // namespace
}  // namespace windrow

int main(int count, char** arguments) {
  windrow::Options options;
  if (!windrow::parse(count, arguments, options)) {
    std::fprintf(stderr, "checkpoint_soak: expected [--kills N] [--seed S], N 1 or more\n");
    return 2;
  }
  try {
    windrow::soak(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "checkpoint_soak: %s\n", error.what());
    return 1;
  }
}
