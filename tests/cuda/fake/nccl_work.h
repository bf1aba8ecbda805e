// The work that the fake NCCL issues on streams: what the ranks of a clique do together. Each rank sends its operands
// as letters, reads those of the others, and computes its own result.
#pragma once

#include <nccl.h>

#include <set>
#include <tuple>

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
};

/// Collectives by number (-1, -1), and messages by sender, receiver and number.
using MeetingName = std::tuple<int, int, std::uint64_t>;

struct Clique {
  Clique(int n, std::string name) : size(n), files(std::move(name)) {}

  const int size;
  const std::string
      files;  // ranks are processes, whose letters are files with names that begin so; empty: all are here
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int> joined;
  std::set<int> aborted;                       // ranks
  bool lost = false;                           // work does not end before it is aborted
  std::map<std::string, std::string> letters;  // by name, if all ranks are here
};

void report_nccl(const std::string& line);

/// Adds what the operation accesses at a rank.
void add_accesses(std::vector<cuda::Access>& accesses, const Operation& operation, const Clique& clique, int rank);

/// Tells the other processes that a rank has joined, and looks which have. Called with the clique's mutex.
void join_by_files(Clique& clique, int rank);
void look_who_joined(Clique& clique);

/// The work of a rank. Called on a stream's thread.
void run(Clique& clique, int rank, const std::vector<MeetingName>& names, const std::vector<Operation>& operations);

}  // namespace windrow::fake
