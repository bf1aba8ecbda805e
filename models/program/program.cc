#include "program.h"

#include <fcntl.h>
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

#include "flags.h"
#include "help.h"
#include "signals.h"
#include "windrow/comm/mpi.h"
#include "windrow/memory/allocator.h"

namespace windrow::program {
namespace {

std::string list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return words.size() > 1 ? "one of " + text : text;
}

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

// --- Messages about wrong arguments

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* one : commands_of(app)) names.push_back(one->get_name());
  return names;
}

/// A message about an argument that no flag or command accepts; empty if there is none.
std::string unknown(const CLI::App& app, const CLI::App& command) {
  const std::vector<std::string> early = app.remaining(false), all = app.remaining(true);
  if (all.empty()) return {};
  if (&command != &app && !early.empty()) {
    return in_quotes(early.front()) + " comes before the command; expected it after '" + command.get_name() + "'";
  }
  const auto flag = std::find_if(all.begin(), all.end(), [](const std::string& word) { return word[0] == '-'; });
  if (&command == &app && flag == all.end()) {
    return "unknown command " + in_quotes(all.back()) + "; expected " + list(command_names(app));
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) names.push_back(option->get_name());
  return "unknown argument " + in_quotes(flag == all.end() ? all.back() : *flag) + "; expected " + list(names);
}

std::string missing(const CLI::App& app, const CLI::App& command) {
  if (&command == &app) return "no command; expected " + list(command_names(app));
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_required() && option->count() == 0) {
      return "no " + option->get_name() + "; expected " + expected_of(*option);
    }
  }
  return {};
}

std::string without_value(const CLI::App& command, const std::string& error) {
  const CLI::Option* option = command.get_option_no_throw(error.substr(0, error.find(':')));
  if (option == nullptr || option->get_expected_max() == 0) return {};
  return option->get_name() + ": no value; expected " + expected_of(*option);
}

/// A message about a value for a flag that takes none, as in --compare=false. CLI11's error omits the dashes.
std::string with_value(const CLI::App& command, const std::string& error) {
  const std::size_t end = error.find(" was given a disallowed flag override");
  if (end == std::string::npos) return {};
  const CLI::Option* option = command.get_option_no_throw("--" + error.substr(0, end));
  return option == nullptr ? std::string() : option->get_name() + ": has a value; expected none";
}

int refuse(const CLI::App& app, const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();
  const CLI::App& command = commands.empty() ? app : *commands.front();
  std::string why = unknown(app, command);
  if (why.empty() && dynamic_cast<const CLI::RequiredError*>(&error)) why = missing(app, command);
  if (why.empty() && dynamic_cast<const CLI::ArgumentMismatch*>(&error)) why = without_value(command, error.what());
  if (why.empty() && dynamic_cast<const CLI::ArgumentMismatch*>(&error)) why = with_value(command, error.what());
  if (why.empty()) why = error.what();
  const std::string of = &command == &app ? "" : " " + command.get_name();
  return refuse(app, why + "; see " + app.get_name() + of + " --help");
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
  return {"NAME", list(words), [words](std::string& text) -> std::string {
            if (std::find(words.begin(), words.end(), text) != words.end()) return {};
            return in_quotes(text) + "; expected " + list(words);
          }};
}

Check some_of(std::vector<std::string> words) {
  return {"NAME,...", list(words) + several_separated, [words](std::string& text) -> std::string {
            for (const std::string& word : words_of(text)) {
              if (std::find(words.begin(), words.end(), word) != words.end()) continue;
              return in_quotes(word) + "; expected " + list(words) + several_separated;
            }
            return {};
          }};
}

std::vector<std::string> schedule_policies() { return {"level", "depth", "agenda", "learned", "serial"}; }

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
Silence::Silence() { silent = true; }
Silence::~Silence() { silent = false; }
bool Silence::here() { return silent; }

void print(const char* format, ...) {
  if (silent) return;
  std::va_list arguments;
  va_start(arguments, format);
  const int written = std::vprintf(format, arguments);
  va_end(arguments);
  // A reader that the same signal has ended, or a terminal that is gone, keeps nobody from saving what there is.
  if ((written < 0 || std::fflush(stdout) != 0) && noted_signal() == 0) {
    throw Error(std::string("cannot write standard output: ") + std::strerror(errno));
  }
}

void print_error(const CLI::App& app, const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), line(why).c_str());
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

int run(CLI::App& app, int argc, char** argv, const std::function<void()>& body) {
  hold_standard_streams();
  lay_out_help(app);
  running = &app;
  try {
    try {
      app.parse(argc, argv);
    } catch (const CLI::CallForVersion& version) {
      print("%s\n", version.what());
      return 0;
    } catch (const CLI::CallForHelp&) {
      print("%s", app.help().c_str());
      return 0;
    } catch (const CLI::ParseError& error) {
      return refuse(app, error);
    }
    body();
    return 0;
  } catch (const ErrorsPrinted&) {
    return 2;
  } catch (const std::exception&) {
    return refuse(app, why(std::current_exception()));
  }
}

}  // namespace windrow::program
