// Agreement of the members of a group: on errors, flags and data before they train, and on the process that reports a
// failure.
#include <algorithm>
#include <exception>
#include <set>
#include <vector>

#include "program/output/program.h"
#include "program/training/members.h"
#include "windrow/memory/allocator.h"

namespace windrow::program {

namespace {

/// The error with the rank in its text, unless errors of its kind name the rank themselves.
std::exception_ptr of_rank(int rank, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& told) {
    const bool names_it = dynamic_cast<const CommError*>(&told) != nullptr ||
                          dynamic_cast<const OpError*>(&told) != nullptr ||
                          dynamic_cast<const OutOfMemory*>(&told) != nullptr;
    return names_it ? error : std::make_exception_ptr(Error("rank " + std::to_string(rank) + ": " + told.what()));
  } catch (...) {
    return error;
  }
}

}  // namespace

void together(const Member& member, const std::function<void()>& step) {
  std::exception_ptr error;
  try {
    step();
  } catch (...) {
    error = std::current_exception();
  }
  if (member.group) {
    const auto failed = member.group->exchange(std::vector<std::int64_t>{error ? 1 : 0});
    const auto first = std::ranges::find(failed, 1);
    if (first != failed.end() && first - failed.begin() != member.group->rank()) throw ErrorsPrinted();
    if (error && member.group->rank() > 0) error = of_rank(member.group->rank(), error);
  }
  if (error) std::rethrow_exception(error);
}

void require_same_flags(const CLI::App& command, const Member& member) {
  if (!member.group) return;
  const std::set<std::string> free = {"--help",   "--workers", "--policy", "--trace",
                                      "--report", "--device",  "--devices"};
  std::vector<std::string> names = {"version"};
  std::vector<std::int64_t> own = {fingerprint(version_text())};
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (free.contains(name)) continue;
    std::string values;
    for (const std::string& value : option->results()) values += value + '\n';
    names.push_back(name);
    own.push_back(fingerprint(values));
  }
  const auto of_all = member.group->exchange(own);
  for (std::size_t i = 0; i < of_all.size(); ++i) {
    const std::size_t flag = i % own.size();
    if (of_all[i] == of_all[flag]) continue;
    const std::string what =
        "rank " + std::to_string(i / own.size()) + " has another " + names[flag] + " than rank 0; expected the same";
    if (member.leads) throw MisuseError(what);
    throw ErrorsPrinted();
  }
}

void require_same_data(const Workload& workload, const Member& member) {
  if (!member.group) return;
  std::string all = std::to_string(workload.network->fingerprint());
  for (const auto& [name, words] : workload.vocabularies) {  // samples contain the numbers of the words
    all += '\n' + name + ' ' + std::to_string(words.size());
    for (const std::string& word : words) all += '\n' + word;
  }
  require_equal(fingerprint(all), member, "has other data", "the same samples in the same order");
}

void require_equal(std::int64_t number, const Member& member, const std::string& what, const std::string& expected) {
  if (!member.group) return;
  const auto of_all = member.group->exchange(std::vector{number});
  const auto other = std::ranges::find_if(of_all, [&](std::int64_t one) { return one != of_all.front(); });
  if (other == of_all.end()) return;
  if (!member.leads) throw ErrorsPrinted();
  throw MisuseError("rank " + std::to_string(other - of_all.begin()) + " " + what + " than rank 0; expected " +
                    expected);
}

Heard agree_who_tells(const Communicator& processes, Knows own) {
  try {
    const auto all = processes.exchange(std::vector{static_cast<std::int64_t>(own)});
    try {
      processes.exchange({});  // so that no process ends MPI before all have the answers
    } catch (const CommError&) {
    }
    return {.told = std::ranges::max_element(all) - all.begin() != processes.rank(), .agreed = true};
  } catch (const PeerError&) {
    return {.told = true};
  } catch (const CommError& error) {
    return {.missing = error.what()};
  }
}

}  // namespace windrow::program
