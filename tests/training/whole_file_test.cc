#include "windrow/training/internal/whole_file.h"

#include <sys/mount.h>
#include <unistd.h>

#include "tests/training/files.h"

namespace windrow::testing {
namespace {

namespace fs = std::filesystem;

class WholeFileTest : public FileTest {
 protected:
  const fs::path path = folder / "a.json";

  static void write(const fs::path& to, const std::string& text, const FileCalls& calls = FaultyCalls()) {
    WholeFile file(to, calls);
    // In two parts, so that a file that has only the first one would be noticed.
    file.write(std::string_view(text).substr(0, text.size() / 2));
    file.write(std::string_view(text).substr(text.size() / 2));
    file.commit();
  }
  unsigned mode() const {
    struct stat status;
    EXPECT_EQ(stat(path.c_str(), &status), 0);
    return status.st_mode & 07777;
  }
};

TEST_F(WholeFileTest, CreatesAndReplacesAlsoFromTheCurrentFolder) {
  const FileCalls& calls = FileCalls::of_system();
  write(path, "old", calls);
  EXPECT_EQ(read_file(path), "old");
  write(path, "newer", calls);
  EXPECT_EQ(read_file(path), "newer");
  write(path, "", calls);
  EXPECT_EQ(read_file(path), "");
  EXPECT_EQ(names_in(folder), std::set<std::string>{"a.json"});
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  write("a.json", "text");
  fs::current_path(before);
  EXPECT_EQ(read_file(path), "text");
}

TEST_F(WholeFileTest, LeavesTheOldFileUntilTheCommit) {
  put(path, "old");
  {
    WholeFile file(path);
    file.write("new");
    EXPECT_EQ(read_file(path), "old");
    EXPECT_EQ(names_in(folder).size(), 2u);
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(names_in(folder), std::set<std::string>{"a.json"});
}

TEST_F(WholeFileTest, KeepsThePermissionsOfTheOldFileOrThoseOfTheUmask) {
  for (const unsigned kept : {0600u, 0640u, 0666u, 0755u}) {
    put(path, "old");
    ASSERT_EQ(chmod(path.c_str(), kept), 0);
    write(path, "new");
    EXPECT_EQ(mode(), kept);
    EXPECT_EQ(read_file(path), "new");
  }
  fs::remove(path);
  const mode_t before = umask(027);
  write(path, "new");
  umask(before);
  EXPECT_EQ(mode(), 0640u);
}

TEST_F(WholeFileTest, KeepsALinkAndReplacesItsTarget) {
  fs::create_directory(folder / "there");
  put(folder / "there/target", "old");
  fs::create_symlink("there/target", path);
  write(path, "new");
  EXPECT_TRUE(fs::is_symlink(path));
  EXPECT_EQ(read_file(folder / "there/target"), "new");
  EXPECT_EQ(names_in(folder / "there").size(), 1u);
}

TEST_F(WholeFileTest, RefusesWhatIsNoRegularFile) {
  ASSERT_EQ(mkfifo(path.c_str(), 0666), 0);
  EXPECT_EQ(error_of([&] { write(path, "new"); }), path.string() + ": no regular file; expected one, or no file");
  EXPECT_EQ(error_of([&] { write(folder, "new"); }), folder.string() + ": no regular file; expected one, or no file");
  EXPECT_EQ(error_of([&] { read_whole_file(path, 10); }), path.string() + ": no regular file; expected one");
}

TEST_F(WholeFileTest, RefusesAFileThatMayNotBeWritten) {
  if (geteuid() == 0) GTEST_SKIP() << "root may write any file";
  put(path, "old");
  ASSERT_EQ(chmod(path.c_str(), 0444), 0);
  EXPECT_EQ(error_of([&] { write(path, "new"); }), path.string() + ": access failed: Permission denied");
}

TEST_F(WholeFileTest, PassesOverTheFilesOfKilledProcesses) {
  const std::string left = "a.json." + std::to_string(getpid()) + "-0.new";
  put(folder / left, "of a process of the same number");
  write(path, "new");
  EXPECT_EQ(read_file(path), "new");
  EXPECT_EQ(names_in(folder), (std::set<std::string>{"a.json", left}));
}

/// Fails each call in turn.
TEST_F(WholeFileTest, LeavesTheOldFileWhateverCallFails) {
  std::size_t failures = 0;
  for (const int error : {EIO, ENOSPC, EACCES}) {
    for (std::size_t at = 0;; ++at) {
      put(path, "old");
      const FaultyCalls calls({.at = at, .error = error});
      std::string message;
      try {
        write(path, "new", calls);
      } catch (const FileError& refused) {
        message = refused.what();
      }
      if (!calls.struck()) break;
      SCOPED_TRACE(calls.victim());
      ASSERT_EQ(names_in(folder), std::set<std::string>{"a.json"});
      if (calls.victim() == "close " + folder.filename().string()) {
        EXPECT_EQ(read_file(path), "new");  // and nothing was lost
        continue;
      }
      ++failures;
      const bool after_the_rename = calls.victim() == "fsync " + folder.filename().string();
      EXPECT_EQ(read_file(path), after_the_rename ? "new" : "old");
      EXPECT_EQ(message.find('\n'), message.npos);
      EXPECT_TRUE(message.starts_with(folder.string())) << message;
      EXPECT_TRUE(message.ends_with(std::string(" failed: ") + strerror(error))) << message;
    }
  }
  EXPECT_EQ(failures, 3 * 12u);
}

TEST_F(WholeFileTest, GivesUpOnWritesThatWriteNothing) {
  class Stuck : public FileCalls {
    std::ptrdiff_t write(int, const void*, std::size_t) const override { return 0; }
  };
  const Stuck calls;
  EXPECT_TRUE(error_of([&] { write(path, "new", calls); }).ends_with("write failed: Input/output error"));
}

TEST_F(WholeFileTest, AcceptsAFileSystemThatCannotSyncFolders) {
  class NoFolders : public FileCalls {
    int fsync(int file) const override {
      struct stat status;
      if (FileCalls::fstat(file, &status) != 0) return -1;
      return S_ISDIR(status.st_mode) ? (errno = EINVAL, -1) : 0;
    }
  };
  const NoFolders calls;
  write(path, "new", calls);
  EXPECT_EQ(read_file(path), "new");
}

TEST_F(WholeFileTest, ReportsADiskThatIsReallyFull) {
  if (mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=64k") != 0) GTEST_SKIP() << "mount: " << strerror(errno);
  put(path, "old");
  const std::string error = error_of([&] { write(path, std::string(200'000, 'x')); });
  const std::string old = read_file(path);
  const std::set<std::string> names = names_in(folder);
  ASSERT_EQ(umount(folder.c_str()), 0);
  EXPECT_TRUE(error.ends_with("write failed: No space left on device")) << error;
  EXPECT_EQ(old, "old");
  EXPECT_EQ(names, std::set<std::string>{"a.json"});
}

TEST_F(WholeFileTest, ReadsFilesUpToALimit) {
  put(path, "text");
  EXPECT_EQ(read_whole_file(path, 4), "text");
  EXPECT_EQ(error_of([&] { read_whole_file(path, 3); }), path.string() + ": has 4 bytes; expected at most 3");
  EXPECT_EQ(error_of([&] { read_whole_file(folder / "b", 3); }),
            (folder / "b").string() + ": open failed: No such file or directory");
  EXPECT_EQ(error_of([&] { read_whole_file("/nowhere/a\nb", 3); }),
            "/nowhere/a\\x0ab: open failed: No such file or directory");
}

TEST_F(WholeFileTest, NoticesAFileThatShrinksWhileItIsRead) {
  class Shrinking : public FileCalls {
    int fstat(int file, struct stat* status) const override {
      const int result = FileCalls::fstat(file, status);
      status->st_size += 2;
      return result;
    }
  };
  put(path, "text");
  const Shrinking calls;
  EXPECT_EQ(error_of([&] { read_whole_file(path, 10, calls); }),
            path.string() + ": ends at byte 4 while being read; expected 2 more bytes");
}

}  // namespace
}  // namespace windrow::testing
