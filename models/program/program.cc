#include "program.h"

#include <execinfo.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <thread>
#include <utility>

#include "flags.h"
#include "help.h"
#include "parse_errors.h"
#include "signals.h"
#include "windrow/comm/mpi.h"
#include "windrow/memory/allocator.h"
#include "windrow/training/record.h"

namespace windrow::program {
namespace {

std::string in_quotes(const std::string& text) { return "'" + text + "'"; }

/// The number; none if the text is not a number between low and high.
std::optional<std::int64_t> parse(const std::string& text, std::int64_t low, std::int64_t high) {
  constexpr std::size_t most_digits = 18;
  if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return {};
  const std::size_t first = std::min(text.find_first_not_of('0'), text.size() - 1);
  if (text.size() - first > most_digits) return {};
  const std::int64_t value = std::stoll(text.substr(first));
  if (value < low || high < value) return {};
  return value;
}

/// The text as one line, even if a file name or a word contains line breaks.
std::string line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text;
}

/// That runs in this process.
std::atomic<const CLI::App*> running{nullptr};

/// Processes that mpirun has started together may fail together, before they can agree on one that tells the user. So
/// the first one tells at once, and mpirun ends the others meanwhile, unless it got --enable-recovery.
void let_lower_ranks_tell() {
  if (const int rank = MpiWorld::started().rank; rank > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500 + 250 * std::min(rank, 10)));
  }
}

std::string out_of_memory(const std::string& what) {
  return "out of memory" + what + "; expected more memory or smaller sizes";
}

std::string why(const OpError& error) {
  try {
    // A failure may have no exception as its root cause, only a text.
    if (error.failures().front()->root().error) error.rethrow_root();
  } catch (const OutOfMemory& root) {
    return out_of_memory(std::string(": ") + root.what());
  } catch (const std::bad_alloc&) {
    return out_of_memory("");
  } catch (...) {
  }
  return error.what();
}

std::string why(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const OpError& op) {
    return why(op);
  } catch (const OutOfMemory& root) {
    return out_of_memory(std::string(": ") + root.what());
  } catch (const std::bad_alloc&) {
    return out_of_memory("");
  } catch (const std::exception& other) {
    return other.what();
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

}  // namespace

Check whole_number(std::int64_t low, std::int64_t high) {
  const std::string expected = std::to_string(low) + " to " + std::to_string(high);
  return {"N", expected, [=](std::string& text) -> std::string {
            const auto value = parse(text, low, high);
            if (!value) return in_quotes(text) + "; expected a whole number, " + expected;
            text = std::to_string(*value);
            return {};
          }};
}

Check whole_numbers(std::int64_t low, std::int64_t high) {
  const std::string expected = std::to_string(low) + " to " + std::to_string(high);
  return {"N,...", expected + ", separated by commas", [=](std::string& text) -> std::string {
            for (const std::string& part : words_of(text)) {
              if (!parse(part, low, high)) {
                return in_quotes(text) + "; expected whole numbers, " + expected + ", separated by commas";
              }
            }
            return {};
          }};
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  if (text.empty() || text.back() == ',') parts.emplace_back();
  return parts;
}

std::vector<int> numbers_of(const std::string& text) {
  std::vector<int> numbers;
  for (const std::string& part : words_of(text)) numbers.push_back(std::stoi(part));
  return numbers;
}

namespace {

/// Decimal numbers for which `holds`.
Check number_that(const std::string& expected, bool (*holds)(double)) {
  return {"X", expected, [=](std::string& text) -> std::string {
            char* end = nullptr;
            const double value = std::strtod(text.c_str(), &end);
            const bool decimal = !text.empty() && text.find_first_not_of("0123456789.eE+-") == std::string::npos;
            if (decimal && *end == '\0' && std::isfinite(value) && holds(value)) return {};
            return in_quotes(text) + "; expected a number " + expected;
          }};
}

}  // namespace

Check positive_number() {
  return number_that("above 0", [](double value) { return value > 0; });
}
Check number() {
  return number_that("from 0 on", [](double value) { return value >= 0; });
}
Check fraction() {
  return number_that("from 0 on, less than 1", [](double value) { return value >= 0 && value < 1; });
}
Check factor() {
  return number_that("above 0, less than 1", [](double value) { return value > 0 && value < 1; });
}

Check one_of(std::vector<std::string> words) {
  return {"NAME", listed(words), [words](std::string& text) -> std::string {
            if (std::find(words.begin(), words.end(), text) != words.end()) return {};
            return in_quotes(text) + "; expected " + listed(words);
          }};
}

Check some_of(std::vector<std::string> words) {
  return {"NAME,...", listed(words) + several_separated, [words](std::string& text) -> std::string {
            for (const std::string& word : words_of(text)) {
              if (std::find(words.begin(), words.end(), word) != words.end()) continue;
              return in_quotes(word) + "; expected " + listed(words) + several_separated;
            }
            return {};
          }};
}

std::vector<std::string> schedule_policies() { return {"level", "depth", "agenda", "complete", "serial"}; }

Check folder() {
  return {"DIR", "an existing folder", [](std::string& text) -> std::string {
            std::error_code ignored;
            if (std::filesystem::is_directory(text, ignored)) return {};
            return in_quotes(text) + " is not a folder; expected an existing folder";
          }};
}

Check existing_file() {
  return {"FILE", "an existing file", [](std::string& text) -> std::string {
            std::error_code ignored;
            if (std::filesystem::is_regular_file(text, ignored) || std::filesystem::is_fifo(text, ignored)) return {};
            return in_quotes(text) + " is not a file; expected an existing file";
          }};
}

Check folder_or_file() {
  return {"PATH", "an existing folder or file", [](std::string& text) -> std::string {
            return folder().read(text).empty() || existing_file().read(text).empty()
                       ? ""
                       : "'" + text + "' is neither a folder nor a file; expected one of both";
          }};
}

Check new_folder() {
  return {"DIR", "the name of a folder", [](std::string& text) -> std::string {
            return text.empty() ? in_quotes(text) + " is not a folder; expected the name of a folder" : std::string();
          }};
}

Check new_file() {
  return {"FILE", "a file in a folder that exists", [](std::string& text) -> std::string {
            const std::filesystem::path path = text, parent = path.parent_path();
            std::error_code ignored;
            const bool fits = !text.empty() && !std::filesystem::is_directory(path, ignored) &&
                              (parent.empty() || std::filesystem::is_directory(parent, ignored));
            return fits ? std::string() : in_quotes(text) + "; expected a file in a folder that exists";
          }};
}

std::string grouped(std::size_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

namespace {
thread_local bool silent = false;
}
Silence::Silence() : before_(std::exchange(silent, true)) {}
Silence::~Silence() { silent = before_; }
bool Silence::here() { return silent; }

/// A reader that a signal has ended, too, or a terminal that is gone, keeps nobody from saving what there is.
static void finish_print(bool written) {
  if ((written && std::fflush(stdout) == 0) || noted_signal() != 0) return;
  throw Error(std::string("cannot write standard output: ") + std::strerror(errno));
}

void print(const char* format, ...) {
  if (silent) return;
  std::va_list arguments;
  va_start(arguments, format);
  const bool written = std::vprintf(format, arguments) >= 0;
  va_end(arguments);
  finish_print(written);
}

static void write_text(const std::string& text) {
  finish_print(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
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

/// Files that are opened later must not get the numbers of closed standard streams, since output would go into these.
/// What takes the numbers cannot be written, so closed output is an error.
static void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) == -1) ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void require_address_space() {
  constexpr rlim_t mebibyte = rlim_t{1} << 20, least = 512 * mebibyte;
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= least) return;
  throw MisuseError("address space is limited to " + std::to_string(limit.rlim_cur / mebibyte) +
                    " MiB; expected at least " + std::to_string(least / mebibyte) + " MiB (ulimit -v)");
}

/// The C library opens libgcc_s when an exception first passes one of its functions, such as pthread_once, and aborts
/// if it has no memory for that. So an exception for lack of memory must not be the first one.
static void load_unwinder() {
  void* frame = nullptr;
  ::backtrace(&frame, 1);
}

/// "help train" stands for "train --help", as with other programs that have commands.
static void parse_arguments(CLI::App& app, int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "help") return app.parse(argc, argv);
  if (argc == 2) throw CLI::CallForHelp();
  require_command(app, argv[2]);
  std::vector<std::string> arguments = {"--help", argv[2]};  // the last one first
  app.parse(arguments);
}

int run(CLI::App& app, int argc, char** argv, const std::function<void()>& body) {
  hold_standard_streams();
  load_unwinder();
  lay_out_help(app);
  running = &app;
  try {
    try {
      parse_arguments(app, argc, argv);
      body();
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
