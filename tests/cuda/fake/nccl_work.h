// The work that the fake NCCL issues on streams: what the ranks of a clique do together.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime.h"

namespace windrow::fake {

struct Operation {
  enum class Kind { all_reduce, reduce, broadcast, all_gather, reduce_scatter, send, receive } kind;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t how = ncclSum;
  int peer = 0;  // or root

  bool pair() const { return kind == Kind::send || kind == Kind::receive; }
  bool fits(const Operation& other) const {
    return std::tie(kind, count, type, how, peer) ==
           std::tie(other.kind, other.count, other.type, other.how, other.peer);
  }
};

/// Collectives by number (-1, -1), and messages by sender, receiver and number.
using MeetingName = std::tuple<int, int, std::uint64_t>;
/// One of them.
struct Meeting {
  std::vector<const Operation*> parts;  // by rank; of a message: the sender, the receiver
  std::size_t come = 0;
  bool done = false;
};

struct Clique {
  Clique(int n, std::string name) : size(n), files(std::move(name)) {}
  const int size;
  const std::string files;  // ranks are processes, which meet by files whose names begin so; empty: all are here
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int> joined;
  std::set<int> aborted;  // ranks
  bool lost = false;      // work does not end before it is aborted
  std::map<MeetingName, Meeting> meetings;
};

void report_nccl(const std::string& line);
/// Adds what the operation accesses at a rank.
void add_accesses(std::vector<cuda::Access>& accesses, const Operation& operation, const Clique& clique, int rank);
/// The same where ranks are processes (nccl_processes.cc). Needs no lock.
void run_by_files(Clique& clique, int rank, const std::vector<MeetingName>& names,
                  const std::vector<Operation>& operations);
/// Tells the other processes that a rank has joined, and looks which have. Called with the clique's mutex.
void join_by_files(Clique& clique, int rank);
void look_who_joined(Clique& clique);
/// Computes what all parts write. Their operands may lie on the host.
void compute(const Meeting& meeting);
/// The work of a rank: comes to all meetings, and waits for the others. Called on a stream's thread.
void run(Clique& clique, int rank, const std::vector<MeetingName>& names, const std::vector<Operation>& operations);

}  // namespace windrow::fake
