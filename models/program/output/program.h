// Output and exit status of the programs. A program that fails prints one line and returns 2. Start here: windrow.cc
// makes the commands of commands/, and options/ reads their flags. training/ is the code of `windrow train` around a
// trainer, and output/ prints. Flags are in flags.h, so that few sources compile CLI11.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <string>

#include "program/output/text.h"
#include "windrow/engine/engine.h"

namespace CLI {
class App;
}

namespace windrow {
class Record;
}

namespace windrow::program {

/// Prints to standard output as printf does, and flushes. Throws Error if that fails, unless a signal was noted
/// (signals.h).
[[gnu::format(printf, 1, 2)]] void print(const char* format, ...);
/// Prints the text, whatever bytes it has; otherwise as print() does.
void print_text(const std::string& text);
/// Prints the record as a line of JSON, also in a thread that is silent.
void print_record(const Record& record);

/// The error that caused this one: if an op fails because another one did, the error of the first op.
std::exception_ptr cause_of(const std::exception_ptr& error);
/// Whether the cause is an E.
template <class E>
bool is(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(cause_of(error));
  } catch (const E&) {
    return true;
  } catch (...) {
    return false;
  }
}
/// The text of the error; a plain sentence for lack of memory.
std::string why(const std::exception_ptr& error);

/// Prints a line on standard error that begins with the program's name.
void print_error(const CLI::App& app, const std::string& why);
/// The text with the rank before it.
std::string naming_rank(int rank, const std::string& why);
/// Thrown by a command if all errors were already printed, by this process or by another one.
struct ErrorsPrinted {
  bool here = false;
};
/// Prints the error of a command as run() does, but at once. (In run(), a process of a higher rank than 0 waits first,
/// because several may fail for the same reason.) For processes that have agreed on the one that prints.
[[nodiscard]] ErrorsPrinted printed(const std::exception_ptr& error);

/// While it exists, and if `wanted`, print() prints nothing in this thread.
class Silence {
 public:
  explicit Silence(bool wanted);
  ~Silence();
  static bool here();  ///< whether this thread is silent
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  const bool before_;
};

/// Makes the command call the body once its arguments are parsed. It then throws MisuseError if the address space of
/// the process is limited to less than the smallest model needs with two workers: below that, libraries of kernels end
/// the process by a signal, which cannot be caught.
void computes(CLI::App& command, std::function<void()> body);

/// Construct after an engine. If an exception ends both, other failures of the engine are not reported: they usually
/// have the same cause as the exception, such as lack of memory.
class ToldOnce {
 public:
  explicit ToldOnce(Engine& engine) : engine_(engine) {}
  ~ToldOnce();
  ToldOnce(const ToldOnce&) = delete;
  ToldOnce& operator=(const ToldOnce&) = delete;

 private:
  Engine& engine_;
  const int exceptions_ = std::uncaught_exceptions();
};

/// Parses the arguments, and so runs a command. Returns the exit status: 2 for wrong arguments, and if a command
/// throws. Then print_error() prints the reason, with the rank in a process of a higher rank than 0.
int run(CLI::App& app, int argc, char** argv);

}  // namespace windrow::program
