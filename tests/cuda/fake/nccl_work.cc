#include "nccl_work.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace windrow::fake {
namespace {

/// What a letter begins with: kind, count, type, how, and peer or root. The operand follows.
using Header = std::array<std::int64_t, 5>;

Header header_of(const Operation& operation) {
  return {static_cast<std::int64_t>(operation.kind), static_cast<std::int64_t>(operation.count),
          static_cast<std::int64_t>(operation.type), static_cast<std::int64_t>(operation.how), operation.peer};
}
Header header_of(const std::string& letter) {
  Header header{};
  std::memcpy(header.data(), letter.data(), sizeof header);
  return header;
}
const char* operand_of(const std::string& letter) { return letter.data() + sizeof(Header); }

std::string letter_of(const Operation& operation, const Clique& clique, int rank) {
  const Header header = header_of(operation);
  std::string letter(reinterpret_cast<const char*>(header.data()), sizeof header);
  const bool scatters = operation.kind == Operation::Kind::reduce_scatter;
  const std::size_t bytes = 4 * operation.count * (scatters ? static_cast<std::size_t>(clique.size) : 1);
  const bool has_operand = operation.kind != Operation::Kind::broadcast || operation.peer == rank;
  return has_operand ? letter.append(static_cast<const char*>(mapped(operation.from)), bytes)
                     : letter.append(bytes, '\0');
}

/// Of a collective, each rank writes one; of a message, the sender.
std::string name_of(const MeetingName& name, int rank) {
  const auto& [from, to, number] = name;
  const std::string of = from < 0 ? std::to_string(rank) : std::to_string(from) + ".to." + std::to_string(to);
  return "." + std::to_string(number) + "." + of;
}

/// A file appears as a whole.
void write(Clique& clique, const std::string& name, const std::string& letter) {
  if (clique.files.empty()) {
    const std::lock_guard lock(clique.mutex);
    clique.letters[name] = letter;
    return clique.changed.notify_all();
  }
  const std::string path = clique.files + name;
  std::ofstream(path + ".new", std::ios::binary).write(letter.data(), static_cast<std::streamsize>(letter.size()));
  std::filesystem::rename(path + ".new", path);
}

/// Waits until the letter is there. Empty if the rank aborts meanwhile.
std::string read(Clique& clique, int rank, const std::string& name) {
  const std::string path = clique.files + name;
  std::unique_lock lock(clique.mutex);
  const auto there = [&] {
    return clique.files.empty() ? clique.letters.contains(name) : std::filesystem::exists(path);
  };
  while (!there()) {
    if (clique.aborted.contains(rank)) return {};
    clique.changed.wait_for(lock, std::chrono::milliseconds(1));
  }
  if (clique.files.empty()) return clique.letters.at(name);
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The elements of the operands from `first` on, combined.
template <class T>
void combine(const Operation& operation, const std::vector<std::string>& letters, std::size_t first) {
  for (std::size_t i = 0; i < operation.count; ++i) {
    T sum = 0;
    for (std::size_t rank = 0; rank < letters.size(); ++rank) {
      T x;
      std::memcpy(&x, operand_of(letters[rank]) + (first + i) * sizeof x, sizeof x);
      sum = rank == 0 ? x : operation.how == ncclMax ? (sum != sum || sum < x ? x : sum) : sum + x;
    }
    if (operation.how == ncclAvg) sum = static_cast<T>(sum * (T{1} / static_cast<T>(letters.size())));
    static_cast<T*>(mapped(operation.to))[i] = sum;
  }
}

/// Writes the rank's own result of a collective.
void compute(const Operation& operation, const std::vector<std::string>& letters, std::size_t rank) {
  const std::size_t bytes = 4 * operation.count;
  const auto root = static_cast<std::size_t>(operation.peer);
  auto* const to = static_cast<char*>(mapped(operation.to));
  switch (operation.kind) {
    case Operation::Kind::broadcast:
      // In place, the root only reads, as others may at the same time.
      if (rank != root || operation.to != operation.from) std::memcpy(to, operand_of(letters[root]), bytes);
      return;
    case Operation::Kind::all_gather:
      for (std::size_t other = 0; other < letters.size(); ++other) {
        std::memcpy(to + other * bytes, operand_of(letters[other]), bytes);
      }
      return;
    default: {
      if (operation.kind == Operation::Kind::reduce && rank != root) return;
      const std::size_t first = operation.kind == Operation::Kind::reduce_scatter ? rank * operation.count : 0;
      operation.type == ncclFloat32 ? combine<float>(operation, letters, first)
                                    : combine<std::int32_t>(operation, letters, first);
    }
  }
}

/// Returns false if the rank aborts, or if calls do not fit each other.
bool receive(Clique& clique, int rank, const MeetingName& name, const Operation& operation) {
  const std::string letter = read(clique, rank, name_of(name, rank));
  if (letter.empty()) return false;
  const Header header = header_of(letter), own = header_of(operation);
  if (header[1] != own[1] || header[2] != own[2]) {
    report_nccl("the ends of a message do not fit each other");
    return false;
  }
  std::memcpy(mapped(operation.to), operand_of(letter), letter.size() - sizeof header);
  return true;
}

/// The same for a collective.
bool meet(Clique& clique, int rank, const MeetingName& name, const Operation& operation) {
  std::vector<std::string> letters;
  for (int other = 0; other < clique.size; ++other) {
    letters.push_back(read(clique, rank, name_of(name, other)));
    if (letters.back().empty()) return false;
    if (header_of(letters.back()) != header_of(operation)) {
      report_nccl("the ranks of a clique make different calls");
      return false;
    }
  }
  compute(operation, letters, static_cast<std::size_t>(rank));
  return true;
}

cuda::Access access_of(const void* start, std::size_t count, bool writes) {
  return {start, 1, 4 * count, 4 * count, writes};
}

}  // namespace

void report_nccl(const std::string& line) {
  std::lock_guard lock(world().mutex);
  world().report("NCCL: " + line);
}

void add_accesses(std::vector<cuda::Access>& accesses, const Operation& operation, const Clique& clique, int rank) {
  const auto size = static_cast<std::size_t>(clique.size);
  const bool root = rank == operation.peer;
  std::size_t from = operation.count, to = operation.count;
  switch (operation.kind) {
    case Operation::Kind::reduce:
      to = root ? to : 0;
      break;
    case Operation::Kind::broadcast:
      from = root ? from : 0;
      to = root && operation.from == operation.to ? 0 : to;
      break;
    case Operation::Kind::all_gather:
      to *= size;
      break;
    case Operation::Kind::reduce_scatter:
      from *= size;
      break;
    case Operation::Kind::send:
      to = 0;
      break;
    case Operation::Kind::receive:
      from = 0;
      break;
    default:
      break;
  }
  if (from > 0 && (to == 0 || operation.from != operation.to)) {
    accesses.push_back(access_of(operation.from, from, false));
  }
  if (to > 0) accesses.push_back(access_of(operation.to, to, true));
}

void join_by_files(Clique& clique, int rank) { std::ofstream(clique.files + ".joined." + std::to_string(rank)) << "x"; }
void look_who_joined(Clique& clique) {
  for (int rank = 0; rank < clique.size; ++rank) {
    if (std::filesystem::exists(clique.files + ".joined." + std::to_string(rank))) clique.joined.insert(rank);
  }
}

void run(Clique& clique, int rank, const std::vector<MeetingName>& names, const std::vector<Operation>& operations) {
  {
    std::unique_lock lock(clique.mutex);
    if (clique.lost) return clique.changed.wait(lock, [&] { return clique.aborted.contains(rank); });
  }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].kind == Operation::Kind::receive) continue;
    write(clique, name_of(names[i], rank), letter_of(operations[i], clique, rank));
  }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].kind == Operation::Kind::send) continue;
    const bool done = operations[i].pair() ? receive(clique, rank, names[i], operations[i])
                                           : meet(clique, rank, names[i], operations[i]);
    if (!done) return;
  }
}

}  // namespace windrow::fake
