#include "program/output/program.h"

#include <execinfo.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "program/options/arguments.h"
#include "program/signals.h"
#include "windrow/comm/mpi.h"
#include "windrow/memory/allocator.h"
#include "windrow/training/record.h"

namespace windrow::program {
namespace {

/// The text as one line, even if a file name or a word contains line breaks.
std::string line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text;
}

thread_local bool silent = false;

/// The app that runs in this process.
std::atomic<const CLI::App*> running{nullptr};

/// Processes that mpirun has started together may fail together, before they can agree on the one that prints the
/// error. So rank 0 prints at once, and mpirun ends the others meanwhile, unless it got --enable-recovery.
void let_lower_ranks_tell() {
  if (const int rank = MpiWorld::started().rank; rank > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500 + 250 * std::min(rank, 10)));
  }
}

void print_error_of_rank(const CLI::App& app, const std::string& why) {
  const int rank = MpiWorld::started().rank;
  print_error(app, rank > 0 ? naming_rank(rank, why) : why);
}

int refuse(const CLI::App& app, const std::string& why) {
  let_lower_ranks_tell();
  print_error_of_rank(app, why);
  return 2;
}

/// After a signal, failed output is no error: the signal may have ended the reader or the terminal, too, and the
/// program should still save its state.
void finish_print(bool written) {
  if ((written && std::fflush(stdout) == 0) || noted_signal() != 0) return;
  throw Error(std::string("cannot write standard output: ") + std::strerror(errno));
}

void write_text(const std::string& text) {
  finish_print(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
}

/// Files that are opened later must not get the numbers of closed standard streams, because output would go into them.
/// The files that take these numbers here cannot be written, so printing to a closed stream is an error.
void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) == -1) ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

/// The C library opens libgcc_s when an exception first passes one of its functions, such as pthread_once, and aborts
/// if it has no memory for that. So an exception for lack of memory must not be the first one.
void load_unwinder() {
  void* frame = nullptr;
  ::backtrace(&frame, 1);
}

/// "help train" means "train --help", as in other programs with commands.
void parse_arguments(CLI::App& app, int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "help") return app.parse(argc, argv);
  if (argc == 2) throw CLI::CallForHelp();
  require_command(app, argv[2]);
  std::vector<std::string> arguments = {"--help", argv[2]};  // the last one first
  app.parse(arguments);
}

void require_address_space() {
  constexpr rlim_t mebibyte = rlim_t{1} << 20, least = 512 * mebibyte;
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= least) return;
  throw MisuseError("address space is limited to " + std::to_string(limit.rlim_cur / mebibyte) +
                    " MiB; expected at least " + std::to_string(least / mebibyte) + " MiB (ulimit -v)");
}

}  // namespace

std::exception_ptr cause_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const OpError& failed) {
    const std::exception_ptr root = failed.failures().front()->root().error;  // none if there is only a text
    return root ? cause_of(root) : error;
  } catch (...) {
    return error;
  }
}

std::string why(const std::exception_ptr& error) {
  const auto out_of_memory = [](const std::string& what) {
    return "out of memory" + what + "; expected more memory or smaller sizes";
  };
  try {
    std::rethrow_exception(cause_of(error));
  } catch (const OutOfMemory& memory) {
    return out_of_memory(std::string(": ") + memory.what());
  } catch (const std::bad_alloc&) {
    return out_of_memory("");
  } catch (...) {
  }
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& other) {
    return other.what();
  } catch (...) {
    return "an unknown error";
  }
}

Silence::Silence(bool wanted) : before_(std::exchange(silent, silent || wanted)) {}
Silence::~Silence() { silent = before_; }
bool Silence::here() { return silent; }

void print(const char* format, ...) {
  if (silent) return;
  std::va_list arguments;
  va_start(arguments, format);
  const bool written = std::vprintf(format, arguments) >= 0;
  va_end(arguments);
  finish_print(written);
}

void print_text(const std::string& text) {
  if (!silent) write_text(text);
}

void print_record(const Record& record) { write_text(record.json(JsonStyle::compact) + "\n"); }

void print_error(const CLI::App& app, const std::string& why) {
  const std::string text = app.get_name() + ": " + line(why) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::string naming_rank(int rank, const std::string& why) {
  const std::string name = "rank " + std::to_string(rank);
  return (why.starts_with(name + " ") || why.starts_with(name + ":") ? "" : name + ": ") + why;
}

ErrorsPrinted printed(const std::exception_ptr& error) {
  print_error_of_rank(*running, why(error));
  return {.here = true};
}

ToldOnce::~ToldOnce() {
  if (std::uncaught_exceptions() == exceptions_) return;
  try {
    engine_.wait_all();
  } catch (const std::exception&) {
  }
}

void computes(CLI::App& command, std::function<void()> body) {
  command.callback([body = std::move(body)] {
    require_address_space();
    body();
  });
}

int run(CLI::App& app, int argc, char** argv) {
  hold_standard_streams();
  load_unwinder();
  lay_out_help(app);
  running = &app;
  try {
    try {
      parse_arguments(app, argc, argv);
      return 0;
    } catch (const CLI::CallForVersion& version) {
      print("%s\n", version.what());
      return 0;
    } catch (const CLI::CallForHelp&) {
      require_known_command(app);
      print("%s", app.help().c_str());
      return 0;
    } catch (const CLI::ParseError& error) {
      return refuse(app, why_refused(app, error));
    }
  } catch (const ErrorsPrinted&) {
    return 2;
  } catch (const std::exception&) {
    return refuse(app, why(std::current_exception()));
  }
}

}  // namespace windrow::program
