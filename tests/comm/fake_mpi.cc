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

#include "plugin/mpi_calls.h"
#include "tests/comm/fake_collective.h"

namespace windrow::comm {
namespace {

using testing::MpiFault;
using How = MpiFault::How;
using fake::Bytes;
using fake::Collective;
using fake::Kind;
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

int init(MpiGroup** world) {
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

int finalize() {
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

/// `in` and `out` are how many times `count` elements a rank passes, and gets.
int collective(MpiGroup* g, const char* name, Part part, const void* from, void* to, std::size_t in, std::size_t out,
               MpiRequest** request) {
  Group& group = of(g);
  Job& job = *group.job;
  return call(job, name, group.rank, [&](std::optional<How> fault) {
    const std::size_t bytes = part.count * size_of(part.type);
    if (in > 0) {
      const auto* const begin = static_cast<const std::byte*>(from == nullptr ? to : from);
      part.from.assign(begin, begin + in * bytes);
    }
    const std::uint64_t number = group.collectives++;
    auto& shared = job.collectives[{group.number, number}];
    if (!shared) {
      shared = std::make_shared<Collective>();
      shared->parts.resize(static_cast<std::size_t>(job.ranks));
    }
    for (const auto& other : shared->parts) {
      if (!other || (other->kind == part.kind && other->count == part.count && other->type == part.type &&
                     other->operation == part.operation && other->root == part.root)) {
        continue;
      }
      job.mismatch += std::string(name) + " of " + std::to_string(part.count) + " elements at rank " +
                      std::to_string(group.rank) + " is call " + std::to_string(number) + " of group " +
                      std::to_string(group.number) + ", but another rank passes " + std::to_string(other->count) +
                      " elements\n";
      return bad_call;
    }
    shared->parts[static_cast<std::size_t>(group.rank)] = std::move(part);
    Request made{.group = &group, .collective = shared, .to = to, .bytes = out * bytes, .fault = fault};
    if (++shared->come == job.ranks) job.collectives.erase({group.number, number});
    return begin(request, std::move(made));
  });
}

int all_reduce(MpiGroup* group, const void* from, void* to, std::size_t count, MpiType type, MpiOperation operation,
               MpiRequest** request) {
  return collective(group, "all_reduce", {Kind::all_reduce, count, type, operation, 0, {}}, from, to, 1, 1, request);
}
int reduce(MpiGroup* group, const void* from, void* to, std::size_t count, MpiType type, MpiOperation operation,
           int root, MpiRequest** request) {
  const bool gets = of(group).rank == root;
  return collective(group, "reduce", {Kind::reduce, count, type, operation, root, {}}, from, to, 1, gets ? 1 : 0,
                    request);
}
int broadcast(MpiGroup* group, void* data, std::size_t count, MpiType type, int root, MpiRequest** request) {
  const bool gives = of(group).rank == root;
  return collective(group, "broadcast", {Kind::broadcast, count, type, MpiOperation::sum, root, {}}, data, data,
                    gives ? 1 : 0, gives ? 0 : 1, request);
}
int all_gather(MpiGroup* group, const void* from, void* to, std::size_t count, MpiType type, MpiRequest** request) {
  const auto n = static_cast<std::size_t>(of(group).job->ranks);
  return collective(group, "all_gather", {Kind::all_gather, count, type, MpiOperation::sum, 0, {}}, from, to, 1, n,
                    request);
}
int reduce_scatter(MpiGroup* group, const void* from, void* to, std::size_t count, MpiType type, MpiOperation operation,
                   MpiRequest** request) {
  const auto n = static_cast<std::size_t>(of(group).job->ranks);
  return collective(group, "reduce_scatter", {Kind::reduce_scatter, count, type, operation, 0, {}}, from, to, n, 1,
                    request);
}
int all_to_all(MpiGroup* group, const void* from, void* to, std::size_t count, MpiType type, MpiRequest** request) {
  const auto n = static_cast<std::size_t>(of(group).job->ranks);
  return collective(group, "all_to_all", {Kind::all_to_all, count, type, MpiOperation::sum, 0, {}}, from, to, n, n,
                    request);
}

int send(MpiGroup* g, const void* data, std::size_t count, MpiType type, int to, int tag, MpiRequest** request) {
  Group& group = of(g);
  return call(*group.job, "send", group.rank, [&](std::optional<How> fault) {
    const auto* const begin = static_cast<const std::byte*>(data);
    const auto sent = std::make_shared<Message>(Message{group.rank, tag, Bytes(begin, begin + count * size_of(type))});
    group.job->mail[{group.number, to}].push_back(sent);
    // Small messages are done at once, as with all libraries, and others may be done only when they are received.
    const bool at_once = sent->data.size() <= 512 || group.job->random() % 2 == 0;
    return comm::begin(request, {.group = &group, .sent = at_once ? nullptr : sent, .fault = fault});
  });
}

int receive(MpiGroup* g, void* data, std::size_t count, MpiType type, int from, int tag, MpiRequest** request) {
  Group& group = of(g);
  return call(*group.job, "receive", group.rank, [&](std::optional<How> fault) {
    return comm::begin(request, {.group = &group,
                                 .receives = true,
                                 .from = from,
                                 .tag = tag,
                                 .to = data,
                                 .bytes = count * size_of(type),
                                 .fault = fault});
  });
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

constexpr MpiCalls calls = {MpiCalls::current_version,
                            init,
                            finalize,
                            text,
                            rank_of,
                            duplicate,
                            release,
                            all_reduce,
                            reduce,
                            broadcast,
                            all_gather,
                            reduce_scatter,
                            all_to_all,
                            send,
                            receive,
                            test,
                            cancel};

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
