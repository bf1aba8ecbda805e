// The fake NCCL between processes: each rank writes its operands to a file, and reads those of the others.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "nccl_work.h"

namespace windrow::fake {
namespace {

using Header = std::array<std::int64_t, 5>;

Header header_of(const Operation& operation) {
  return {static_cast<std::int64_t>(operation.kind), static_cast<std::int64_t>(operation.count),
          static_cast<std::int64_t>(operation.type), static_cast<std::int64_t>(operation.how), operation.peer};
}

std::size_t bytes_from(const Operation& operation, const Clique& clique) {
  const std::size_t blocks =
      operation.kind == Operation::Kind::reduce_scatter ? static_cast<std::size_t>(clique.size) : 1;
  return 4 * operation.count * blocks;
}
std::size_t bytes_to(const Operation& operation, const Clique& clique) {
  const std::size_t blocks = operation.kind == Operation::Kind::all_gather ? static_cast<std::size_t>(clique.size) : 1;
  return 4 * operation.count * blocks;
}

std::string file_of(const Clique& clique, const MeetingName& name, int rank) {
  return clique.files + "." + std::to_string(std::get<2>(name)) + "." + std::to_string(rank);
}
/// Of a message, which its sender writes.
std::string file_of_message(const Clique& clique, const MeetingName& name) {
  const auto& [from, to, number] = name;
  return clique.files + ".from." + std::to_string(from) + ".to." + std::to_string(to) + "." + std::to_string(number);
}

/// The file appears as a whole.
void write_whole(const std::string& path, const std::string& bytes) {
  std::ofstream(path + ".new", std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  std::filesystem::rename(path + ".new", path);
}

/// Empty if the rank aborts meanwhile.
std::string read_when_there(Clique& clique, int rank, const std::string& path) {
  while (!std::filesystem::exists(path)) {
    {
      const std::lock_guard lock(clique.mutex);
      if (clique.aborted.contains(rank)) return {};
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Returns false if the rank aborts.
bool receive(Clique& clique, int rank, const MeetingName& name, const Operation& operation) {
  const std::string bytes = read_when_there(clique, rank, file_of_message(clique, name));
  if (bytes.empty()) return false;
  Header header{};
  std::memcpy(header.data(), bytes.data(), sizeof header);
  if (header[1] != static_cast<std::int64_t>(operation.count) ||
      header[2] != static_cast<std::int64_t>(operation.type)) {
    report_nccl("the ends of a message do not fit each other");
    return false;
  }
  std::memcpy(mapped(operation.to), bytes.data() + sizeof header, bytes.size() - sizeof header);
  return true;
}

/// Writes this rank's part of the result. Returns false if it aborts.
bool meet(Clique& clique, int rank, const MeetingName& name, const Operation& operation) {
  std::vector<std::string> operands(static_cast<std::size_t>(clique.size));
  std::vector<std::vector<std::byte>> results(operands.size());
  std::vector<Operation> parts(operands.size(), operation);
  Meeting meeting;
  for (int other = 0; other < clique.size; ++other) {
    const auto i = static_cast<std::size_t>(other);
    operands[i] = read_when_there(clique, rank, file_of(clique, name, other));
    if (operands[i].empty()) return false;
    Header header{};
    std::memcpy(header.data(), operands[i].data(), sizeof header);
    if (header != header_of(operation)) {
      report_nccl("the processes of a clique make different calls");
      return false;
    }
    parts[i].from = operands[i].data() + sizeof header;
    if (other != rank) {
      results[i].resize(bytes_to(operation, clique));
      parts[i].to = results[i].data();
    }
    meeting.parts.push_back(&parts[i]);
  }
  compute(meeting);
  return true;
}

}  // namespace

void join_by_files(Clique& clique, int rank) { write_whole(clique.files + ".joined." + std::to_string(rank), "x"); }

void look_who_joined(Clique& clique) {
  for (int rank = 0; rank < clique.size; ++rank) {
    if (std::filesystem::exists(clique.files + ".joined." + std::to_string(rank))) clique.joined.insert(rank);
  }
}

void run_by_files(Clique& clique, int rank, const std::vector<MeetingName>& names,
                  const std::vector<Operation>& operations) {
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].kind == Operation::Kind::receive) continue;
    const Header header = header_of(operations[i]);
    std::string bytes(reinterpret_cast<const char*>(header.data()), sizeof header);
    const std::size_t size = bytes_from(operations[i], clique);
    if (operations[i].kind == Operation::Kind::broadcast && operations[i].peer != rank) {
      bytes.append(size, '\0');
    } else {
      bytes.append(static_cast<const char*>(mapped(operations[i].from)), size);
    }
    write_whole(operations[i].pair() ? file_of_message(clique, names[i]) : file_of(clique, names[i], rank), bytes);
  }
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].kind == Operation::Kind::send) continue;
    const bool message = operations[i].pair();
    if (message ? !receive(clique, rank, names[i], operations[i]) : !meet(clique, rank, names[i], operations[i]))
      return;
  }
}

}  // namespace windrow::fake
