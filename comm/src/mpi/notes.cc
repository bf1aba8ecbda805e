// What members of a group tell each other besides their calls: numbers, where they are, and why they end.
#include <algorithm>
#include <thread>
#include <utility>

#include "ending.h"
#include "mpi/group.h"

namespace windrow::comm {
namespace {

/// How many times as long as for a member a call waits for its data, as long as all members take part and answer.
constexpr int patience_with_data = 10;
/// Numbers that the first message of a meeting carries behind their count.
constexpr std::size_t in_first = 15;

}  // namespace

void MpiGroupState::exchange(Numbers numbers, std::promise<Exchanged> result) {
  if (broken()) return result.set_value({.broken = broken_});
  if (const int rank = lacks(Called::meetings, meetings_called_); rank >= 0) {
    ++meetings_called_;
    return result.set_value({.broken = without(rank)});
  }
  auto meeting = std::make_unique<Meeting>(
      Meeting{.since = Clock::now(), .own = std::move(numbers), .all = {}, .result = std::move(result)});
  meeting->number = meetings_called_++;
  meetings_begun_.push_back(std::move(meeting));
}

bool MpiGroupState::move_meeting() {
  if (meetings_begun_.empty()) return false;
  Meeting& meeting = *meetings_begun_.front();
  const auto size = static_cast<std::size_t>(size_);
  if (meeting.request == nullptr) {
    meeting.own.insert(meeting.own.begin(), static_cast<std::int64_t>(meeting.own.size()));
    meeting.own.resize(std::max(meeting.own.size(), in_first + 1));
    meeting.all.resize(size * (in_first + 1));
    require(calls_.all_gather(meetings_, meeting.own.data(), meeting.all.data(), in_first + 1, MpiType::int64,
                              &meeting.request));
    return true;
  }
  if (!arrived(&meeting.request)) return false;
  const auto count = static_cast<std::size_t>(meeting.own[0]);
  if (!meeting.counted) {
    meeting.counted = true;
    for (std::size_t rank = 0; rank < size; ++rank) {
      const std::int64_t other = meeting.all[rank * (in_first + 1)];
      if (other == meeting.own[0]) continue;
      meeting.result.set_value(
          {.broken = {.why = "rank " + std::to_string(rank_) + " passes " + std::to_string(count) +
                             " numbers, but rank " + std::to_string(rank) + " passes " + std::to_string(other)}});
      meetings_begun_.pop_front();
      return true;
    }
    if (count > in_first) {
      meeting.all.resize(size * (count + 1));
      require(calls_.all_gather(meetings_, meeting.own.data(), meeting.all.data(), count + 1, MpiType::int64,
                                &meeting.request));
      return true;
    }
  }
  const std::size_t stride = std::max(count, in_first) + 1;
  Numbers numbers;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const auto from = meeting.all.begin() + static_cast<std::ptrdiff_t>(rank * stride + 1);
    numbers.insert(numbers.end(), from, from + static_cast<std::ptrdiff_t>(count));
  }
  meeting.result.set_value({.numbers = std::move(numbers)});
  meetings_begun_.pop_front();
  return true;
}

void MpiGroupState::send_note(int to, const MpiNote& note) {
  sent_.push_back(std::make_unique<Sent>(Sent{.note = note}));
  Sent& sent = *sent_.back();
  sent.note.rank = rank_;
  if (calls_.send(notes_, &sent.note, sizeof sent.note, MpiType::byte, to, 0, &sent.request) != 0) sent_.pop_back();
}

bool MpiGroupState::move_notes() {
  bool changed = false;
  for (auto place = sent_.begin(); place != sent_.end();) {
    int done = 0;
    const bool ended = calls_.test(&(*place)->request, &done) != 0 || done != 0;
    place = ended ? sent_.erase(place) : place + 1;
    changed |= ended;
  }
  while (arrived(&listening_)) {
    changed = true;
    const MpiNote note = incoming_;
    incoming_ = {};
    require(calls_.receive(notes_, &incoming_, sizeof incoming_, MpiType::byte, -1, 0, &listening_));
    const int from = static_cast<int>(note.rank);
    switch (note.what) {
      case MpiNote::What::ask:
        if (said_goodbye_) break;  // the member will hear that this one has left
        send_note(from, {.what = MpiNote::What::tell, .numbers = begun_with(from)});
        break;
      case MpiNote::What::tell:
        told_[static_cast<std::size_t>(from)] = note.numbers;
        break;
      case MpiNote::What::broken:
        stop_with({.why = note.said(),
                   .told = note.numbers[0] != 0                                         ? Told::by_abort
                           : note.numbers[1] == each_member || note.numbers[1] == rank_ ? Told::here
                                                                                        : Told::elsewhere});
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

/// Fails the calls that a member which has ended will not make; others go on. What MPI has of them never ends.
bool MpiGroupState::fail_lacking() {
  if (std::ranges::none_of(left_, [](const auto& left) { return left.has_value(); })) return false;
  bool changed = false;
  const auto fail_last = [&](auto& calls, int rank) {
    calls.back()->part->fail(without(rank));
    calls.back()->part = nullptr;
    changed = true;
  };
  const auto number_of = [](const auto& calls) { return static_cast<std::int64_t>(calls.back()->part->call.number); };
  for (int rank = 0; !announced_.empty() && (rank = lacks(Called::collectives, number_of(announced_))) >= 0;) {
    fail_last(announced_, rank);
    unmatched_.push_back(std::move(announced_.back()));
    announced_.pop_back();
  }
  for (auto& [end, pair] : messages_) {
    const std::size_t other_end = end.first == Kind::send ? Called::recvs : Called::sends;
    while (!pair.begun.empty() && lacks(other_end, number_of(pair.begun), end.second) >= 0) {
      fail_last(pair.begun, end.second);
      unmatched_.push_back(std::move(pair.begun.back()));
      pair.begun.pop_back();
    }
  }
  for (int rank = 0;
       !meetings_begun_.empty() && (rank = lacks(Called::meetings, meetings_begun_.back()->number)) >= 0;) {
    meetings_begun_.back()->result.set_value({.broken = without(rank)});
    unmatched_.push_back(std::move(meetings_begun_.back()));
    meetings_begun_.pop_back();
    changed = true;
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
  const auto messages = [&](Kind kind) {
    const auto place = messages_.find({kind, other});
    return place == messages_.end() ? 0 : static_cast<std::int64_t>(place->second.next);
  };
  return {static_cast<std::int64_t>(next_), messages(Kind::send), messages(Kind::recv), meetings_called_};
}

void MpiGroupState::leave(const Member::Numbered& numbered) {
  if (broken()) return;
  own_left_ = numbered;
  const auto count = [&](Kind kind, int peer) { return static_cast<std::int64_t>(numbered.of(kind, peer)); };
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    send_note(rank, {.what = MpiNote::What::left,
                     .numbers = {count(Kind::all_reduce, 0), count(Kind::send, rank), count(Kind::recv, rank),
                                 meetings_called_}});
  }
}

/// Whether all calls of this member, which has left, have ended, and all others have left as well.
bool MpiGroupState::all_ended() const {
  if (busy() || unmatched()) return false;
  for (const auto& [end, count] : *own_left_) {
    const auto& [kind, peer] = end;
    const auto pair = messages_.find(end);
    const std::uint64_t begun = kind == Kind::all_reduce ? next_ : pair == messages_.end() ? 0 : pair->second.next;
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
  for (MpiGroup** group : {&announcements_, &reasons_, &data_, &pairs_, &meetings_, &notes_, &decisions_, &parts_}) {
    require(calls_.release(std::exchange(*group, nullptr)));
  }
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
  const auto see_data = [&](const Begun& call) {  // which may have waited for those of other calls
    see_call(call, Called::collectives, -1, std::max(call.since, data_ended_));
  };
  if (!announced_.empty()) see_call(*announced_.front(), Called::collectives, -1, announced_.front()->since);
  if (!moving_.empty()) see_data(*moving_.front());
  for (const auto& [number, call] : scheduled_) see_data(*call);
  for (const auto& [end, pair] : messages_) {
    const auto other_end = end.first == Kind::send ? Called::recvs : Called::sends;
    if (pair.begun.empty()) continue;
    see_call(*pair.begun.front(), other_end, end.second, pair.begun.front()->since);
  }
  if (!meetings_begun_.empty()) {
    const Meeting& meeting = *meetings_begun_.front();
    see({meeting.since, Called::meetings, meeting.number, -1, nullptr});
  }
  return oldest;
}

/// Looks at the time limits: asks the other members where they are, and breaks the group when they had time to answer.
void MpiGroupState::watch() {
  const auto awaited = oldest();
  const auto now = Clock::now();
  if (awaited && asked_for_ != std::tuple(awaited->kind, awaited->number, awaited->peer)) {
    asked_.reset();  // the answers are of an earlier call
    asked_for_ = {awaited->kind, awaited->number, awaited->peer};
  }
  if (!awaited || now - awaited->since < options_.patience) {
    asked_.reset();
    return;
  }
  if (!asked_) {
    asked_ = now;
    std::ranges::fill(told_, std::nullopt);
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_ && !left_[static_cast<std::size_t>(rank)]) send_note(rank, {.what = MpiNote::What::ask});
    }
    return;
  }
  std::string silent, behind;
  // The lowest rank that has made this call as well, and answers: it waits as this one does, so its user hears of it.
  int teller = rank_;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const auto& left = left_[static_cast<std::size_t>(rank)];
    const auto& told = left ? left : told_[static_cast<std::size_t>(rank)];
    const bool concerned = awaited->peer < 0 || awaited->peer == rank;
    if (!told) {
      silent += (silent.empty() ? "rank " : ", ") + std::to_string(rank);
    } else if (concerned && (*told)[awaited->kind] <= awaited->number) {
      behind += (behind.empty() ? "rank " : ", rank ") + std::to_string(rank);
      if (awaited->call != nullptr) behind += ", which is at call " + std::to_string((*told)[awaited->kind]);
    } else if (concerned && !left) {
      teller = std::min(teller, rank);
    }
  }
  if (!silent.empty() && now - *asked_ < options_.answer) return;
  if (silent.empty() && behind.empty() && (now - awaited->since) / patience_with_data < options_.patience) {
    // All take part, so the data are moving. They are asked again from time to time.
    if (now - *asked_ >= options_.patience) asked_.reset();
    return;
  }
  const auto waited = silent.empty() && behind.empty() ? patience_with_data * options_.patience : options_.patience;
  std::string why = "rank " + std::to_string(rank_) + " has waited " + seconds(waited) + " for " +
                    (awaited->call != nullptr ? awaited->call->describe() : "exchange");
  if (!silent.empty()) {
    why += "; " + silent + " did not answer within " + seconds(options_.answer) + " and is dead, stopped or cut off";
  } else if (!behind.empty()) {
    why += "; it is missing at " + behind;
  } else {
    why += "; all members answer, and have called it, but its data have not come";
  }
  break_up({.why = why + "; the group is broken", .told = teller == rank_ ? Told::here : Told::elsewhere}, teller);
}

void MpiGroupState::break_up(const Breakage& why, int teller) {
  if (broken() || released_) return;
  if (said_goodbye_) return stop_with(why);  // nothing is under way, and the others may have freed the group
  MpiNote note{.what = MpiNote::What::broken, .numbers = {why.told == Told::by_abort ? 1 : 0, teller}};
  note.say(why.why);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) send_note(rank, note);
  }
  // MPI is not called any more after this, so the notes must be on their way.
  const auto until = Clock::now() + std::chrono::milliseconds(50);
  while (!sent_.empty() && Clock::now() < until) {
    for (auto place = sent_.begin(); place != sent_.end();) {
      int done = 0;
      const bool ended = calls_.test(&(*place)->request, &done) != 0 || done != 0;
      place = ended ? sent_.erase(place) : place + 1;
    }
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
  for (auto& call : announced_) fail(call->part);
  for (auto& call : moving_) fail(call->part, true);
  for (auto& [number, call] : scheduled_) fail(call->part, call->moving > 0);
  for (auto& [number, part] : waiting_) fail(part);
  waiting_.clear();
  for (auto& [end, pair] : messages_) {
    for (auto& message : pair.begun) fail(message->part, message->noted);
    for (auto& [number, part] : pair.waiting) fail(part);
    pair.waiting.clear();
  }
  for (auto& meeting : meetings_begun_) {
    meeting->result.set_value({.broken = broken_});
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
