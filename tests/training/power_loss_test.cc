// A disk in memory that keeps only what fsync has made durable, and of the rest what chance decides. Whenever the power
// fails, the newest checkpoint or the one that was being written loads.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <variant>

#include "tests/sanitized.h"
#include "tests/seed.h"
#include "tests/training/checkpoints.h"
#include "tests/training/files.h"

namespace windrow::testing {
namespace {

/// A file system with one folder, "run", whose power fails at one call: that call and all later ones do nothing.
class Disk : public FileCalls {
 public:
  void fail_at(std::size_t call) { fails_at_ = call; }
  bool failed() const { return calls_ > fails_at_; }

  /// What is found when the power is back: any part of the changes since the last fsync.
  std::unique_ptr<Disk> after_power_loss(std::mt19937& random) const {
    auto disk = std::make_unique<Disk>();
    disk->names_ = durable_names_;
    for (const Change& change : pending_) {
      if (random() % 2 == 0) change.apply(disk->names_);
    }
    std::map<const Node*, std::shared_ptr<Node>> copies;
    for (auto& [name, node] : disk->names_) {
      std::shared_ptr<Node>& copy = copies[node.get()];
      if (copy == nullptr) copy = std::make_shared<Node>(surviving(*node, random));
      node = copy;
    }
    disk->durable_names_ = disk->names_;
    return disk;
  }

  std::size_t files() const { return names_.size(); }

  int open(const char* path, int flags, unsigned) const override {
    if (!powered()) return -1;
    if ((flags & O_DIRECTORY) != 0) return add(nullptr);
    const auto found = names_.find(path);
    if (found != names_.end()) return (flags & O_EXCL) != 0 ? refuse(EEXIST) : add(found->second);
    if ((flags & O_CREAT) == 0) return refuse(ENOENT);
    const auto node = std::make_shared<Node>();
    change({.to = path, .node = node});
    return add(node);
  }
  std::ptrdiff_t write(int file, const void* from, std::size_t bytes) const override {
    if (!powered()) return -1;
    open_.at(file)->content.append(static_cast<const char*>(from), bytes);
    return static_cast<std::ptrdiff_t>(bytes);
  }
  std::ptrdiff_t pread(int file, void* to, std::size_t bytes, std::uint64_t offset) const override {
    if (!powered()) return -1;
    return static_cast<std::ptrdiff_t>(
        open_.at(file)->content.copy(static_cast<char*>(to), bytes, static_cast<std::size_t>(offset)));
  }
  int fsync(int file) const override {
    if (!powered()) return -1;
    if (const auto& node = open_.at(file)) {
      node->durable = node->content;
    } else {
      durable_names_ = names_;
      pending_.clear();
    }
    return 0;
  }
  int fstat(int file, struct stat* status) const override { return powered() ? describe(*open_.at(file), status) : -1; }
  int stat(const char* path, struct stat* status) const override {
    if (!powered()) return -1;
    const auto found = names_.find(path);
    return found == names_.end() ? refuse(ENOENT) : describe(*found->second, status);
  }
  int rename(const char* from, const char* to) const override {
    if (!powered()) return -1;
    change({.from = from, .to = to, .node = names_.at(from)});
    return 0;
  }
  int unlink(const char* path) const override {
    if (!powered()) return -1;
    if (!names_.contains(path)) return refuse(ENOENT);
    change({.from = path});
    return 0;
  }
  int list(const char*, std::vector<std::string>* names) const override {
    if (!powered()) return -1;
    names->clear();
    for (const auto& [path, node] : names_) names->push_back(std::filesystem::path(path).filename());
    return 0;
  }
  int mkdir(const char*, unsigned) const override { return refuse(EEXIST); }
  int close(int) const override { return 0; }
  int fchmod(int, unsigned) const override { return 0; }
  int flock(int, int) const override { return 0; }
  int access(const char*, int) const override { return 0; }
  int realpath(const char* path, std::string* to) const override {
    *to = path;
    return 0;
  }

 private:
  struct Node {
    std::string content, durable;
  };
  using Names = std::map<std::string, std::shared_ptr<Node>>;
  /// The name `from` goes, and the name `to` comes; each may be empty.
  struct Change {
    std::string from = {}, to = {};
    std::shared_ptr<Node> node = {};

    void apply(Names& names) const {
      names.erase(from);
      if (!to.empty()) names[to] = node;
    }
  };

  static Node surviving(const Node& node, std::mt19937& random) {
    if (node.content == node.durable) return node;
    std::string found = node.durable;
    switch (random() % 4) {
      case 0:
        break;
      case 1:
        found = node.content;
        break;
      case 2:
        found = node.content.substr(0, random() % (node.content.size() + 1));
        break;
      default:
        found.resize(node.content.size());  // the size was written, the bytes were not
    }
    return {found, found};
  }
  static int refuse(int error) { return errno = error, -1; }
  static int describe(const Node& node, struct stat* status) {
    *status = {};
    status->st_mode = S_IFREG | 0644;
    status->st_size = static_cast<off_t>(node.content.size());
    return 0;
  }

  bool powered() const {
    errno = EIO;
    return calls_++ < fails_at_;
  }
  int add(std::shared_ptr<Node> node) const {
    open_.push_back(std::move(node));
    return static_cast<int>(open_.size()) - 1;
  }
  void change(Change change) const {
    change.apply(names_);
    pending_.push_back(std::move(change));
  }

  std::size_t fails_at_ = static_cast<std::size_t>(-1);
  mutable std::size_t calls_ = 0;
  mutable Names names_, durable_names_;
  mutable std::vector<Change> pending_;              // of names, since the last fsync of the folder
  mutable std::vector<std::shared_ptr<Node>> open_;  // by descriptor; null for the folder
};

/// What a program has been told.
struct Progress {
  std::optional<KnownCheckpoint> written, begun;
};

Progress write_until_the_power_fails(const Disk& disk) {
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
  SCOPED_TRACE("seed " + std::to_string(first_seed()));
  std::mt19937 random(first_seed());
  const int chances = sanitized ? 5 : 20;
  for (std::size_t at = 0;; ++at) {
    Disk disk;
    disk.fail_at(at);
    const Progress progress = write_until_the_power_fails(disk);
    for (int chance = 0; chance < chances; ++chance) {
      const std::unique_ptr<Disk> found = disk.after_power_loss(random);
      const NewestCheckpoint newest = CheckpointFolder("run", *found).newest();
      ASSERT_TRUE(is(newest, progress.written) || is(newest, progress.begun)) << "call " << at;
      // The next writer is not disturbed by what is left, and removes it.
      const KnownCheckpoint next{9};
      CheckpointWriter("run", {.keep = 1}, *found).write(next.contents());
      ASSERT_TRUE(is(CheckpointFolder("run", *found).newest(), next)) << "call " << at;
      ASSERT_EQ(found->files(), 3u) << "call " << at;
    }
    if (!disk.failed()) break;
  }
}

}  // namespace
}  // namespace windrow::testing
