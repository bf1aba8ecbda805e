// Messages between members besides their calls: numbers of messages, the calls that they have made, and why they end.
#include <algorithm>
#include <thread>
#include <utility>

#include "ending.h"
#include "mpi/group.h"

namespace windrow::comm {
namespace {

/// A call waits this many times `patience` for its data, as long as all members take part and answer.
constexpr int patience_with_data = 10;

/// By the number of a member's next call. Collectives and exchanges are numbered apart.
std::string last_call(std::uint64_t next) {
  return next == 0 ? "no such call yet" : "last: call " + std::to_string(next - 1);
}

}  // namespace

void MpiGroupState::send_note(int to, const MpiNote& note) {
  sent_.push_back(std::make_unique<Sent>(Sent{.note = note}));
  Sent& sent = *sent_.back();
  sent.note.rank = rank_;
  const MpiTransfer what{.kind = CallKind::send, .from = &sent.note, .count = sizeof sent.note, .peer = to};
  if (calls_.begin(notes_, &what, &sent.request) != 0) sent_.pop_back();
}

void MpiGroupState::listen() {
  begin(notes_, {.kind = CallKind::recv, .to = &incoming_, .count = sizeof incoming_, .peer = -1}, &listening_);
}

/// Drops the notes that have been sent. Returns whether there were some.
bool MpiGroupState::end_sent() {
  const auto ended = [&](const std::unique_ptr<Sent>& sent) {
    int done = 0;
    return calls_.test(&sent->request, &done) != 0 || done != 0;
  };
  return std::erase_if(sent_, ended) > 0;
}

bool MpiGroupState::move_notes() {
  bool changed = end_sent();
  while (arrived(&listening_)) {
    changed = true;
    const MpiNote note = incoming_;
    incoming_ = {};
    listen();
    const int from = static_cast<int>(note.rank);
    switch (note.what) {
      case MpiNote::What::ask:
        if (said_goodbye_) break;  // the member will hear that this one has left
        send_note(from, {.what = MpiNote::What::tell, .numbers = begun_with(from)});
        break;
      case MpiNote::What::tell:
        answers_[static_cast<std::size_t>(from)] = note.numbers;
        break;
      case MpiNote::What::broken:
        stop_with({.why = note.said(),
                   .reported_by = note.numbers[0] != 0                                         ? ReportedBy::aborter
                                  : note.numbers[1] == each_member || note.numbers[1] == rank_ ? ReportedBy::this_member
                                                                                               : ReportedBy::another});
        return true;
      case MpiNote::What::left:
        left_[static_cast<std::size_t>(from)] = note.numbers;
        break;
      case MpiNote::What::goodbye:
        ++goodbyes_;
        break;
      case MpiNote::What::call:
        break;
    }
  }
  return fail_lacking() || changed;
}

/// Whether some member has ended without its part of a call of this kind and number: the lowest one; -1 for none.
int MpiGroupState::lacks(std::size_t kind, std::int64_t number, int peer) const {
  for (int rank = 0; rank < size_; ++rank) {
    const auto& left = left_[static_cast<std::size_t>(rank)];
    if (left && (peer < 0 || peer == rank) && number >= (*left)[kind]) return rank;
  }
  return -1;
}

/// Fails the calls that lack the part of a member that has ended; other calls go on. Their MPI requests never complete.
bool MpiGroupState::fail_lacking() {
  if (std::ranges::none_of(left_, [](const auto& left) { return left.has_value(); })) return false;
  bool changed = false;
  const auto fail_last = [&](auto& calls, int rank) {
    calls.back()->part->fail(without(rank));
    calls.back()->part = nullptr;
    changed = true;
  };
  const auto number_of = [](const auto& calls) { return static_cast<std::int64_t>(calls.back()->part->call.number); };
  for (Series* const series : {&collectives_, &exchanges_}) {
    auto& announced = series->announced;
    for (int rank = 0; !announced.empty() && (rank = lacks(series->kind, number_of(announced))) >= 0;) {
      fail_last(announced, rank);
      unmatched_.push_back(std::move(announced.back()));
      announced.pop_back();
    }
  }
  for (auto& [end, pair] : messages_) {
    const std::size_t other_end = end.first == CallKind::send ? Called::recvs : Called::sends;
    while (!pair.begun.empty() && lacks(other_end, number_of(pair.begun), end.second) >= 0) {
      fail_last(pair.begun, end.second);
      unmatched_.push_back(std::move(pair.begun.back()));
      pair.begun.pop_back();
    }
  }
  return changed;
}

const Breakage& MpiGroupState::without(int rank) {
  const auto place = without_.find(rank);
  if (place != without_.end()) return place->second;
  return without_.emplace(rank, Breakage{.why = "rank " + std::to_string(rank) + " has ended without this call"})
      .first->second;
}

MpiGroupState::Counts MpiGroupState::begun_with(int other) const {
  const auto messages = [&](CallKind kind) {
    const auto place = messages_.find({kind, other});
    return place == messages_.end() ? 0 : static_cast<std::int64_t>(place->second.next);
  };
  return {static_cast<std::int64_t>(collectives_.next), messages(CallKind::send), messages(CallKind::recv),
          static_cast<std::int64_t>(exchanges_.next)};
}

void MpiGroupState::leave(const Member::Numbered& numbered) {
  if (broken()) return;
  own_left_ = numbered;
  const auto count = [&](CallKind kind, int peer) { return static_cast<std::int64_t>(numbered.of(kind, peer)); };
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    send_note(rank, {.what = MpiNote::What::left,
                     .numbers = {count(CallKind::all_reduce, 0), count(CallKind::send, rank),
                                 count(CallKind::recv, rank), count(CallKind::exchange, 0)}});
  }
}

/// Whether all calls of this member, which has left, have ended, and all others have left as well.
bool MpiGroupState::all_ended() const {
  if (busy() || unmatched()) return false;
  for (const auto& [end, count] : *own_left_) {
    const auto& [kind, peer] = end;
    const auto pair = messages_.find(end);
    const std::uint64_t begun = kind == CallKind::all_reduce ? collectives_.next
                                : kind == CallKind::exchange ? exchanges_.next
                                : pair == messages_.end()    ? 0
                                                             : pair->second.next;
    if (begun != count) return false;
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_ && !left_[static_cast<std::size_t>(rank)]) return false;
  }
  return true;
}

/// Takes the next step to the end of the group.
bool MpiGroupState::part() {
  if (!own_left_) return false;
  if (!said_goodbye_) {
    if (!all_ended()) return false;
    said_goodbye_ = true;
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_) send_note(rank, {.what = MpiNote::What::goodbye});
    }
    return true;
  }
  if (goodbyes_ < size_ - 1 || !sent_.empty()) return false;
  if (listening_ != nullptr) require(calls_.cancel(&listening_));
  for (MpiGroup** const group : communicators()) require(calls_.release(std::exchange(*group, nullptr)));
  released_ = true;
  return true;
}

std::optional<MpiGroupState::Awaited> MpiGroupState::oldest() const {
  std::optional<Awaited> oldest;
  const auto see = [&](const Awaited& awaited) {
    if (!oldest || awaited.since < oldest->since) oldest = awaited;
  };
  const auto see_call = [&](const auto& begun, std::size_t kind, int peer, Clock::time_point since) {
    const Call& call = begun.part->call;
    see({since, kind, static_cast<std::int64_t>(call.number), peer, &call});
  };
  const auto see_data = [&](const Begun& call, std::size_t kind) {  // which may have waited for those of other calls
    see_call(call, kind, -1, std::max(call.since, data_ended_));
  };
  for (const Series* const series : {&collectives_, &exchanges_}) {
    const auto& [announced, moving] = std::tie(series->announced, series->moving);
    if (!announced.empty()) see_call(*announced.front(), series->kind, -1, announced.front()->since);
    if (!moving.empty()) see_data(*moving.front(), series->kind);
  }
  for (const auto& [number, call] : scheduled_) see_data(*call, Called::collectives);
  for (const auto& [end, pair] : messages_) {
    const auto other_end = end.first == CallKind::send ? Called::recvs : Called::sends;
    if (pair.begun.empty()) continue;
    see_call(*pair.begun.front(), other_end, end.second, pair.begun.front()->since);
  }
  return oldest;
}

/// Checks the time limits: asks the other members which calls they have made. When they have had time to answer, it
/// logs those that are missing or, after `patience`, breaks the group.
void MpiGroupState::watch() {
  const auto awaited = oldest();
  const auto now = Clock::now();
  if (awaited && asked_for_ != std::tuple(awaited->kind, awaited->number, awaited->peer)) {
    asked_.reset();  // the answers are of an earlier call
    asked_for_ = {awaited->kind, awaited->number, awaited->peer};
    told_since_ = now;
    tell_next_ = options_.tell_after;
  }
  const bool over = awaited && now - awaited->since >= options_.patience;
  if (!awaited || (!over && now - told_since_ < tell_next_)) {
    asked_.reset();
    return;
  }
  if (!asked_) {
    asked_ = now;
    std::ranges::fill(answers_, std::nullopt);
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_ && !left_[static_cast<std::size_t>(rank)]) send_note(rank, {.what = MpiNote::What::ask});
    }
    return;
  }
  std::string silent, behind;
  Waiting waiting{.ranks = {rank_}, .time = now - awaited->since, .what = awaited->call->describe(), .missing = {}};
  // The reporter is the lowest rank that has made this call as well, and answers: it waits as this one does.
  int reporter = rank_;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const auto& left = left_[static_cast<std::size_t>(rank)];
    const auto& answer = left ? left : answers_[static_cast<std::size_t>(rank)];
    const bool concerned = awaited->peer < 0 || awaited->peer == rank;
    if (!answer) {
      waiting.missing.push_back(rank);
      waiting.remarks.push_back("no answer");
      silent += (silent.empty() ? "rank " : ", ") + std::to_string(rank);
    } else if (concerned && (*answer)[awaited->kind] <= awaited->number) {
      waiting.missing.push_back(rank);
      waiting.remarks.push_back(last_call((*answer)[awaited->kind]));
      behind += (behind.empty() ? "rank " : ", rank ") + std::to_string(rank);
      behind += " (" + last_call((*answer)[awaited->kind]) + ")";
    } else if (concerned && !left) {
      reporter = std::min(reporter, rank);
    }
  }
  if (!silent.empty() && now - *asked_ < options_.answer) return;
  if (!over) {
    if (!waiting.missing.empty() && reporter == rank_) log_waiting(waiting);
    tell_next_ *= 2;
    asked_.reset();
    return;
  }
  if (silent.empty() && behind.empty() && (now - awaited->since) / patience_with_data < options_.patience) {
    // All take part, so the data are moving. Members are asked again from time to time.
    if (now - *asked_ >= options_.patience) asked_.reset();
    return;
  }
  const auto waited = silent.empty() && behind.empty() ? patience_with_data * options_.patience : options_.patience;
  std::string why =
      "rank " + std::to_string(rank_) + " has waited " + seconds(waited) + " for " + awaited->call->describe();
  if (!silent.empty()) {
    why += "; " + silent + " did not answer within " + seconds(options_.answer) + " and is dead, stopped or cut off";
  } else if (!behind.empty()) {
    why += "; it is missing at " + behind;
  } else {
    why += "; all members answer, and have called it, but its data have not come";
  }
  break_up({.why = why + "; the group is broken",
            .reported_by = reporter == rank_ ? ReportedBy::this_member : ReportedBy::another},
           reporter);
}

void MpiGroupState::break_up(const Breakage& why, int reporter) {
  if (broken() || released_) return;
  if (said_goodbye_) return stop_with(why);  // nothing is under way, and the others may have freed the group
  MpiNote note{.what = MpiNote::What::broken, .numbers = {why.reported_by == ReportedBy::aborter ? 1 : 0, reporter}};
  note.say(why.why);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) send_note(rank, note);
  }
  // MPI is not called any more after this, so the notes must be on their way.
  const auto until = Clock::now() + std::chrono::milliseconds(50);
  while (!sent_.empty() && Clock::now() < until) {
    end_sent();
    std::this_thread::yield();
  }
  stop_with(why);
}

void MpiGroupState::stop_with(const Breakage& why) {
  if (broken()) return;  // what has begun is kept, but has ended
  broken_ = why;
  if (heard_) heard_(broken_);
  const auto fail = [&](const ExchangePtr& part, bool moves = false) {
    if (moves) part->leave_pieces();
    part->fail(broken_);
  };
  for (Series* const series : {&collectives_, &exchanges_}) {
    for (auto& call : series->announced) fail(call->part);
    for (auto& call : series->moving) fail(call->part, true);
    for (auto& [number, part] : series->waiting) fail(part);
    series->waiting.clear();
  }
  for (auto& [number, call] : scheduled_) fail(call->part, call->moving > 0);
  for (auto& [end, pair] : messages_) {
    for (auto& message : pair.begun) fail(message->part, message->noted);
    for (auto& [number, part] : pair.waiting) fail(part);
    pair.waiting.clear();
  }
  // MPI may still hold the requests of what has begun, and its buffers: they are kept.
}

void MpiGroupState::on_break(Member::Heard heard) {
  if (broken()) return heard(broken_);
  heard_ = std::move(heard);
}

void MpiGroupState::end() {
  if (!broken() && !released_ && listening_ != nullptr) calls_.cancel(&listening_);
}

}  // namespace windrow::comm
