// Shared by tests of files: checkpoints of known content, and system calls that fail, are
// counted, or touch no disk.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "tests/folder.h"
#include "tests/sanitized.h"
#include "tests/seed.h"
#include "windrow/engine/error.h"
#include "windrow/training/checkpoint_folder.h"
#include "windrow/training/internal/file_calls.h"

namespace windrow::testing {

inline void put(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

/// The message of the FileError that a call throws. Expects one, of one line.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const FileError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.find('\n'), what.npos) << what;
    return what;
  }
  ADD_FAILURE() << "expected a FileError";
  return {};
}

/// A tensor of the type and the size of `like`.
template <class T>
std::vector<T> read_like(const TensorFile& file, const std::string& name, const TensorShape& shape,
                         std::vector<T> like) {
  std::fill(like.begin(), like.end(), T(77));
  file.read(name, shape, std::span(like));
  return like;
}

/// What happens to one call.
enum class Fault {
  refused,      ///< it does nothing and sets errno
  interrupted,  ///< the same with EINTR; only calls that signals interrupt count
  shortened,    ///< a read or write of one byte; only these count
  killed,       ///< a write stops half way, and no later call does anything, as if the process had been killed
};

struct FaultPlan {
  Fault fault = Fault::refused;
  std::size_t at = static_cast<std::size_t>(-1);  ///< number of the call, from 0
  int error = EIO;                                ///< the value of errno for `refused`
};

/// The calls of the system, except that fsync() does not wait for the disk, or of another file system; one call suffers
/// a fault.
class FaultyCalls : public FileCalls {
 public:
  explicit FaultyCalls(FaultPlan plan = {}, const FileCalls& of = FileCalls::of_system()) : plan_(plan), of_(of) {}

  bool struck() const { return calls_ > plan_.at; }
  /// The call that suffered, such as "rename b.json".
  const std::string& victim() const { return victim_; }

  int open(const char* path, int flags, unsigned mode) const override {
    const int file = fails("open", path, Signals::interrupt) ? -1 : of_.open(path, flags, mode);
    if (file >= 0) path_of_[file] = path;
    return file;
  }
  std::ptrdiff_t write(int file, const void* from, std::size_t bytes) const override {
    if (fails("write", path_of_[file], Signals::interrupt, Part::allowed)) {
      if (plan_.fault == Fault::killed && calls_ == plan_.at + 1) of_.write(file, from, bytes / 2);
      return -1;
    }
    return of_.write(file, from, part(bytes));
  }
  std::ptrdiff_t pread(int file, void* to, std::size_t bytes, std::uint64_t offset) const override {
    if (fails("pread", path_of_[file], Signals::interrupt, Part::allowed)) return -1;
    return of_.pread(file, to, part(bytes), offset);
  }
  int fsync(int file) const override {
    if (fails("fsync", path_of_[file], Signals::interrupt)) return -1;
    return &of_ == &FileCalls::of_system() ? 0 : of_.fsync(file);
  }
  int close(int file) const override {
    const bool failed = fails("close", path_of_[file], Signals::interrupt);
    of_.close(file);  // in any case, since the kernel closes the files of the dead
    return failed ? -1 : 0;
  }
  int fstat(int file, struct stat* status) const override {
    return fails("fstat", path_of_[file]) ? -1 : of_.fstat(file, status);
  }
  int fchmod(int file, unsigned mode) const override {
    return fails("fchmod", path_of_[file], Signals::interrupt) ? -1 : of_.fchmod(file, mode);
  }
  int flock(int file, int operation) const override {
    return fails("flock", path_of_[file], Signals::interrupt) ? -1 : of_.flock(file, operation);
  }
  int stat(const char* path, struct stat* status) const override {
    return fails("stat", path) ? -1 : of_.stat(path, status);
  }
  int access(const char* path, int mode) const override { return fails("access", path) ? -1 : of_.access(path, mode); }
  int rename(const char* from, const char* to) const override {
    return fails("rename", to) ? -1 : of_.rename(from, to);
  }
  int unlink(const char* path) const override { return fails("unlink", path) ? -1 : of_.unlink(path); }
  int mkdir(const char* path, unsigned mode) const override {
    return fails("mkdir", path) ? -1 : of_.mkdir(path, mode);
  }
  int realpath(const char* path, std::string* to) const override {
    return fails("realpath", path) ? -1 : of_.realpath(path, to);
  }
  int list(const char* path, std::vector<std::string>* names) const override {
    return fails("list", path) ? -1 : of_.list(path, names);
  }

 private:
  enum class Signals { pass, interrupt };
  enum class Part { whole, allowed };

  bool fails(const std::string& call, const std::string& path, Signals signals = Signals::pass,
             Part part = Part::whole) const {
    now_ = false;
    if (plan_.fault == Fault::interrupted && signals == Signals::pass) return false;
    if (plan_.fault == Fault::shortened && part == Part::whole) return false;
    now_ = calls_++ == plan_.at;
    if (now_) victim_ = call + " " + std::filesystem::path(path).filename().string();
    errno = plan_.fault == Fault::interrupted ? EINTR : plan_.error;
    return plan_.fault == Fault::killed ? struck() : now_ && plan_.fault != Fault::shortened;
  }
  std::size_t part(std::size_t bytes) const {
    return now_ && plan_.fault == Fault::shortened ? std::min<std::size_t>(bytes, 1) : bytes;
  }

  const FaultPlan plan_;
  const FileCalls& of_;
  mutable std::size_t calls_ = 0;
  mutable bool now_ = false;  // the current call suffers
  mutable std::string victim_;
  mutable std::map<int, std::string> path_of_;
};

/// A file system in memory with one folder, "run". Its power may fail at one call: that call and all later ones do
/// nothing.
class Disk : public FileCalls {
 public:
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
  void put(const std::string& path, const std::string& content) {
    names_[path] = std::make_shared<Node>(Node{content, content});
  }

  int open(const char* path, int flags, unsigned) const override {
    if ((flags & O_DIRECTORY) != 0) return add(nullptr);
    const auto found = names_.find(path);
    if (found != names_.end()) return (flags & O_EXCL) != 0 ? refuse(EEXIST) : add(found->second);
    if ((flags & O_CREAT) == 0) return refuse(ENOENT);
    const auto node = std::make_shared<Node>();
    change({.to = path, .node = node});
    return add(node);
  }
  std::ptrdiff_t write(int file, const void* from, std::size_t bytes) const override {
    open_.at(file)->content.append(static_cast<const char*>(from), bytes);
    return static_cast<std::ptrdiff_t>(bytes);
  }
  std::ptrdiff_t pread(int file, void* to, std::size_t bytes, std::uint64_t offset) const override {
    const std::string& content = open_.at(file)->content;
    if (offset >= content.size()) return 0;
    return static_cast<std::ptrdiff_t>(content.copy(static_cast<char*>(to), bytes, static_cast<std::size_t>(offset)));
  }
  int fsync(int file) const override {
    if (const auto& node = open_.at(file)) {
      node->durable = node->content;
    } else {
      durable_names_ = names_;
      pending_.clear();
    }
    return 0;
  }
  int fstat(int file, struct stat* status) const override { return describe(*open_.at(file), status); }
  int stat(const char* path, struct stat* status) const override {
    const auto found = names_.find(path);
    return found == names_.end() ? refuse(ENOENT) : describe(*found->second, status);
  }
  int rename(const char* from, const char* to) const override {
    change({.from = from, .to = to, .node = names_.at(from)});
    return 0;
  }
  int unlink(const char* path) const override {
    if (!names_.contains(path)) return refuse(ENOENT);
    change({.from = path});
    return 0;
  }
  int list(const char*, std::vector<std::string>* names) const override {
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

  int add(std::shared_ptr<Node> node) const {
    open_.push_back(std::move(node));
    return static_cast<int>(open_.size()) - 1;
  }
  void change(Change change) const {
    change.apply(names_);
    pending_.push_back(std::move(change));
  }

  mutable Names names_, durable_names_;
  mutable std::vector<Change> pending_;              // of names, since the last fsync of the folder
  mutable std::vector<std::shared_ptr<Node>> open_;  // by descriptor; null for the folder
};

/// What a checkpoint contains. `version` tells two checkpoints of one step apart.
struct KnownCheckpoint {
  std::uint64_t step;
  std::uint64_t version = 0;

  std::vector<float> weights = std::vector<float>(40, static_cast<float>(step * 10 + version));
  std::vector<std::uint64_t> counts = {step, version};

  CheckpointContents contents() const {
    return {.step = step,
            .tensors = {{"weights", {8, 5}, weights}, {"counts", {2}, counts}},
            .document = Record().set("step", step).set("version", version).set("rate", 0.1)};
  }
};

inline bool operator==(const SavedCheckpoint& saved, const KnownCheckpoint& known) {
  std::vector<float> weights(40);
  std::vector<std::uint64_t> counts(2);
  saved.tensors.read("weights", {8, 5}, weights);
  saved.tensors.read("counts", {2}, counts);
  return saved.step == known.step && weights == known.weights && counts == known.counts &&
         saved.document == known.contents().document;
}

}  // namespace windrow::testing
