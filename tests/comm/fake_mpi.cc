#include "tests/comm/fake_mpi.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <tuple>

#include "plugin/mpi_calls.h"
#include "tests/comm/fake_collective.h"

namespace windrow::comm {
namespace {

using testing::MpiFault;
using How = MpiFault::How;
using fake::Bytes;
using fake::Collective;
using fake::Part;
using fake::size_of;

constexpr int injected = 77, ended = 78, bad_call = 79;

struct Message {
  int from, tag;
  Bytes data;
  bool taken = false;
};

struct Job;

/// Of one rank; the same number means the same communicator.
struct Group {
  Job* job;
  int rank, number;
  std::uint64_t collectives = 0;
  bool released = false;
};

struct Request {
  Group* group = nullptr;
  std::shared_ptr<Collective> collective = nullptr;
  std::shared_ptr<Message> sent = nullptr;
  bool receives = false;
  int from = 0, tag = 0;
  void* to = nullptr;
  std::size_t bytes = 0;
  int delay = 0;  // tests that find it not done
  std::optional<How> fault = std::nullopt;
};

struct Job {
  Job(int count, unsigned seed, std::vector<MpiFault> all) : ranks(count), random(seed), faults(std::move(all)) {
    made.resize(static_cast<std::size_t>(count));
  }

  std::mutex mutex;
  std::condition_variable over;
  const int ranks;
  bool ends = false;
  int begun = 0, finalized = 0, inside = 0, happened = 0, released = 0;
  std::mt19937 random;
  std::string mismatch;
  std::vector<std::vector<std::unique_ptr<Group>>> made;  // by rank
  std::map<std::pair<int, std::uint64_t>, std::shared_ptr<Collective>> collectives;
  std::map<std::pair<int, int>, std::list<std::shared_ptr<Message>>> mail;  // by communicator and receiver
  std::map<std::pair<std::string, int>, int> called;
  std::vector<MpiFault> faults;

  /// What goes wrong with this call.
  std::optional<How> fault_of(const char* function, int rank) {
    const int number = called[{function, rank}]++;
    for (const MpiFault& fault : faults) {
      if (fault.function != function || fault.rank != rank || fault.number != number) continue;
      ++happened;
      return fault.how;
    }
    return std::nullopt;
  }
};

std::mutex job_mutex;
std::shared_ptr<Job> current;  // guarded by job_mutex
// Of a thread that has called init(): keeps what it uses.
thread_local std::shared_ptr<Job> job_of_thread;
thread_local int rank_of_thread = 0;

/// Makes a call that may go wrong: `body` runs under the job's lock.
template <class Body>
int call(Job& in, const char* function, int rank, const Body& body) {
  std::unique_lock lock(in.mutex);
  if (in.ends) return ended;
  const std::optional<How> fault = in.fault_of(function, rank);
  if (fault == How::error) return injected;
  if (fault == How::never_returns) {
    ++in.inside;
    in.over.wait(lock, [&] { return in.ends; });
    --in.inside;
    in.over.notify_all();
    return ended;
  }
  return body(fault);
}

int init(const void*, MpiGroup** world) {
  {
    const std::lock_guard lock(job_mutex);
    job_of_thread = current;
  }
  if (!job_of_thread) return ended;
  Job& in = *job_of_thread;
  {
    const std::lock_guard lock(in.mutex);
    if (in.begun == in.ranks) return already_started;
    rank_of_thread = in.begun++;
  }
  return call(in, "init", rank_of_thread, [&](auto) {
    auto& groups = in.made[static_cast<std::size_t>(rank_of_thread)];
    groups.push_back(std::make_unique<Group>(Group{&in, rank_of_thread, 0}));
    *world = reinterpret_cast<MpiGroup*>(groups.back().get());
    return 0;
  });
}

Group& of(MpiGroup* group) { return *reinterpret_cast<Group*>(group); }

int finalize(MpiGroup*) {
  return call(*job_of_thread, "finalize", rank_of_thread, [&](auto) {
    ++job_of_thread->finalized;
    return 0;
  });
}

void text(int error, char* text, std::size_t size) {
  std::strncpy(text,
               error == injected   ? "an injected error"
               : error == bad_call ? "a bad call"
                                   : "the job has ended",
               size - 1);
  text[size - 1] = '\0';
}

int rank_of(MpiGroup* group, int* rank, int* size) {
  return call(*of(group).job, "rank", of(group).rank, [&](auto) {
    *rank = of(group).rank;
    *size = of(group).job->ranks;
    return 0;
  });
}

int duplicate(MpiGroup* group, MpiGroup** copy) {
  Job& in = *of(group).job;
  return call(in, "duplicate", of(group).rank, [&](auto) {
    auto& groups = in.made[static_cast<std::size_t>(of(group).rank)];
    groups.push_back(std::make_unique<Group>(Group{&in, of(group).rank, static_cast<int>(groups.size())}));
    *copy = reinterpret_cast<MpiGroup*>(groups.back().get());
    return 0;
  });
}

int release(MpiGroup* group) {
  Group& own = of(group);
  Job& in = *own.job;
  return call(in, "release", own.rank, [&](auto) {
    const auto left = in.mail[{own.number, own.rank}].size();
    if (left > 0) in.mismatch += std::to_string(left) + " messages left in a group that is freed\n";
    own.released = true;
    ++in.released;
    return 0;
  });
}

int begin(MpiRequest** request, Request made) {
  if (made.group->released) made.group->job->mismatch += "a call of a group that was freed\n";
  made.delay = static_cast<int>(made.group->job->random() % 4);
  *request = reinterpret_cast<MpiRequest*>(new Request(std::move(made)));
  return 0;
}

int begin_collective(Group& group, const char* name, const MpiTransfer& what, MpiRequest** request) {
  Job& job = *group.job;
  return call(job, name, group.rank, [&](std::optional<How> fault) {
    const bool root = group.rank == what.peer, blocks = what.kind >= CallKind::all_gather;
    const bool all_in = what.kind == CallKind::reduce_scatter || what.kind == CallKind::all_to_all;
    const bool gives = what.kind != CallKind::broadcast || root;
    const bool gets = what.kind == CallKind::reduce ? root : what.kind != CallKind::broadcast || !root;
    const std::size_t bytes = what.count * size_of(what.type), all = bytes * static_cast<std::size_t>(job.ranks);
    Part part{what, {}};
    if (gives) {
      const auto* const begin = static_cast<const std::byte*>(what.from == nullptr ? what.to : what.from);
      part.from.assign(begin, begin + (all_in ? all : bytes));
    }
    const std::uint64_t number = group.collectives++;
    auto& shared = job.collectives[{group.number, number}];
    if (!shared) {
      shared = std::make_shared<Collective>();
      shared->parts.resize(static_cast<std::size_t>(job.ranks));
    }
    const auto named = [](const MpiTransfer& t) { return std::tuple(t.kind, t.count, t.type, t.combine, t.peer); };
    for (const auto& other : shared->parts) {
      if (!other || named(other->what) == named(what)) continue;
      job.mismatch += std::string(name) + " of " + std::to_string(what.count) + " elements at rank " +
                      std::to_string(group.rank) + " is call " + std::to_string(number) + " of group " +
                      std::to_string(group.number) + ", but another rank passes " + std::to_string(other->what.count) +
                      " elements\n";
      return bad_call;
    }
    shared->parts[static_cast<std::size_t>(group.rank)] = std::move(part);
    const bool all_out = blocks && what.kind != CallKind::reduce_scatter;
    Request made{.group = &group,
                 .collective = shared,
                 .to = what.to,
                 .bytes = !gets     ? 0
                          : all_out ? all
                                    : bytes,
                 .fault = fault};
    if (++shared->come == job.ranks) job.collectives.erase({group.number, number});
    return begin(request, std::move(made));
  });
}

int begin_send(Group& group, const MpiTransfer& what, MpiRequest** request) {
  return call(*group.job, "send", group.rank, [&](std::optional<How> fault) {
    const auto* const begin = static_cast<const std::byte*>(what.from);
    const auto sent =
        std::make_shared<Message>(Message{group.rank, what.tag, Bytes(begin, begin + what.count * size_of(what.type))});
    group.job->mail[{group.number, what.peer}].push_back(sent);
    // Small messages are done at once, as with all libraries, and others may be done only when they are received.
    const bool at_once = sent->data.size() <= 512 || group.job->random() % 2 == 0;
    return comm::begin(request, {.group = &group, .sent = at_once ? nullptr : sent, .fault = fault});
  });
}

int begin_receive(Group& group, const MpiTransfer& what, MpiRequest** request) {
  return call(*group.job, "recv", group.rank, [&](std::optional<How> fault) {
    return comm::begin(request, {.group = &group,
                                 .receives = true,
                                 .from = what.peer,
                                 .tag = what.tag,
                                 .to = what.to,
                                 .bytes = what.count * size_of(what.type),
                                 .fault = fault});
  });
}

int begin_transfer(MpiGroup* group, const MpiTransfer* what, MpiRequest** request) {
  constexpr const char* names[] = {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"};
  if (what->kind == CallKind::send) return begin_send(of(group), *what, request);
  if (what->kind == CallKind::recv) return begin_receive(of(group), *what, request);
  return begin_collective(of(group), names[static_cast<std::size_t>(what->kind)], *what, request);
}

int test(MpiRequest** made, int* done) {
  auto& request = *reinterpret_cast<Request*>(*made);
  Group& group = *request.group;
  Job& in = *group.job;
  return call(in, "test", group.rank, [&](std::optional<How> fault) {
    *done = 0;
    if (!fault) fault = request.fault;
    if (fault == How::error_at_test) return injected;
    if (fault == How::never_ends) {
      request.fault = fault;
      return 0;
    }
    if (request.delay > 0) {
      --request.delay;
      return 0;
    }
    if (request.collective) {
      if (request.collective->come < in.ranks) return 0;
      if (request.bytes > 0) {
        const Bytes result = fake::result_of(*request.collective, group.rank);
        std::memcpy(request.to, result.data(), std::min(request.bytes, result.size()));
      }
    } else if (request.sent) {
      if (!request.sent->taken) return 0;
    } else if (request.receives) {
      auto& mail = in.mail[{group.number, group.rank}];
      const auto place = std::ranges::find_if(mail, [&](const std::shared_ptr<Message>& message) {
        return message->tag == request.tag && (request.from < 0 || message->from == request.from);
      });
      if (place == mail.end()) return 0;
      const std::size_t bytes = std::min(request.bytes, (*place)->data.size());
      if (bytes > 0) std::memcpy(request.to, (*place)->data.data(), bytes);
      (*place)->taken = true;
      mail.erase(place);
    }
    *done = 1;
    delete &request;
    *made = nullptr;
    return 0;
  });
}

int cancel(MpiRequest** request) {
  auto& made = *reinterpret_cast<Request*>(*request);
  return call(*made.group->job, "cancel", made.group->rank, [&](auto) {
    delete &made;
    *request = nullptr;
    return 0;
  });
}

constexpr MpiCalls calls = {
    MpiCalls::current_version, init, finalize, text, rank_of, duplicate, release, begin_transfer, test, cancel};

}  // namespace

const MpiCalls* windrow_mpi_calls() { return &calls; }

}  // namespace windrow::comm

namespace windrow::testing {

std::string to_string(const MpiFault& fault) {
  constexpr const char* names[] = {"returns an error", "fails at the test", "never ends", "never returns"};
  return "call " + std::to_string(fault.number) + " of " + fault.function + " at rank " + std::to_string(fault.rank) +
         " " + names[static_cast<int>(fault.how)];
}

FakeMpiJob::FakeMpiJob(int ranks, unsigned seed, const std::vector<MpiFault>& faults) {
  const std::lock_guard lock(comm::job_mutex);
  comm::current = std::make_shared<comm::Job>(ranks, seed, faults);
}

FakeMpiJob::~FakeMpiJob() {
  const std::lock_guard lock(comm::job_mutex);
  std::unique_lock in(comm::current->mutex);
  comm::current->ends = true;
  comm::current->over.notify_all();
  comm::current->over.wait(in, [] { return comm::current->inside == 0; });
  in.unlock();
  comm::current = nullptr;
}

int FakeMpiJob::happened() const {
  const std::lock_guard lock(comm::current->mutex);
  return comm::current->happened;
}
std::string FakeMpiJob::mismatch() const {
  const std::lock_guard lock(comm::current->mutex);
  return comm::current->mismatch;
}
int FakeMpiJob::kept_groups() const {
  const std::lock_guard lock(comm::current->mutex);
  int made = 0;
  for (const auto& of_rank : comm::current->made) made += static_cast<int>(of_rank.size()) - 1;
  return made - comm::current->released;
}
bool FakeMpiJob::finalized() const {
  const std::lock_guard lock(comm::current->mutex);
  return comm::current->finalized == comm::current->ranks;
}

}  // namespace windrow::testing
