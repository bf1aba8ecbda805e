#include "process.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>

#include "windrow/engine/error.h"

namespace windrow::perf {
namespace {

/// Called in the child. Writes the measured value or the error to `to`, the write end of a pipe, and exits.
[[noreturn]] void report(int to, const std::function<double()>& measure) {
  std::string message;
  try {
    const double value = measure();
    message.assign(reinterpret_cast<const char*>(&value), sizeof value);
  } catch (const std::exception& e) {
    message = std::string("error: ") + e.what();
  }
  const ssize_t written = ::write(to, message.data(), message.size());
  _exit(written < 0);
}

std::string read_all(int from) {
  std::string message;
  char some[4096];
  for (ssize_t count = 0; (count = ::read(from, some, sizeof some)) > 0;)
    message.append(some, static_cast<size_t>(count));
  return message;
}

}  // namespace

double in_child(const std::function<double()>& measure) {
  int ends[2];
  if (pipe(ends) != 0) throw Error(std::string("no pipe for a child process: ") + std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    report(ends[1], measure);
  }
  close(ends[1]);
  const std::string message = child > 0 ? read_all(ends[0]) : std::string();
  close(ends[0]);
  if (child < 0) throw Error(std::string("no child process: ") + std::strerror(errno));
  int status = 0;
  waitpid(child, &status, 0);
  if (message.starts_with("error: ")) throw Error(message.substr(7));
  double value = NAN;
  if (message.size() != sizeof value) throw Error("a child process ended with status " + std::to_string(status));
  std::memcpy(&value, message.data(), sizeof value);
  return value;
}

double resident_bytes() {
  std::ifstream in("/proc/self/statm");
  double size = 0, resident = 0;
  if (!(in >> size >> resident)) return NAN;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace windrow::perf
