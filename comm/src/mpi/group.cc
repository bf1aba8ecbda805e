#include "mpi/group.h"

#include <algorithm>
#include <utility>

#include "ending.h"

namespace windrow::comm {
namespace {

/// Bytes of numbers that an exchange announces.
constexpr std::size_t eager_exchange = 15 * sizeof(std::int64_t);

/// The most announcements that run ahead of the data.
constexpr std::size_t most_announced = 64;

/// A number that is equal for calls that fit each other, and differs otherwise; not negative.
std::int64_t hash(const Call& call) {
  const bool pair = is_message(call.kind);
  std::vector<Index> numbers;
  numbers.reserve(7 + 2 * call.shapes.size());
  numbers.insert(numbers.end(),
                 {static_cast<Index>(pair ? CallKind::send : call.kind), static_cast<Index>(call.elements)});
  if (!pair) {
    numbers.insert(numbers.end(), {static_cast<Index>(call.combine), call.out_of_place, call.peer, call.priority,
                                   static_cast<Index>(call.part_bytes)});
  }
  for (const Call::Shape& shape : call.shapes) numbers.insert(numbers.end(), {shape.rows, shape.width});
  return fingerprint({reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Index)});
}

/// A number that identifies the reason of a failure, also in other processes; 0 if the reason is not known.
std::int64_t number_of(const std::exception_ptr& origin) {
  if (!origin) return 0;
  try {
    std::rethrow_exception(origin);
  } catch (const std::exception& error) {
    return fingerprint(error.what());
  } catch (...) {
    return 0;
  }
}

MpiType type_of(const Call& call) { return call.elements == Elements::float32 ? MpiType::float32 : MpiType::int32; }

}  // namespace

MpiGroupState::MpiGroupState(const MpiCalls& calls, MpiGroup* world, const MpiOptions& options)
    : calls_(calls), options_(options), queue_(options.window_bytes) {
  require(calls_.rank(world, &rank_, &size_));
  collectives_.eager_bytes = eager_bytes(options_, size_);
  exchanges_.eager_bytes = eager_exchange;
  for (MpiGroup** const group : communicators()) require(calls_.duplicate(world, group));
  answers_.resize(static_cast<std::size_t>(size_));
  left_.resize(static_cast<std::size_t>(size_));
  listen();
}

std::array<MpiGroup**, 10> MpiGroupState::communicators() {
  return {&collectives_.announcements,
          &collectives_.reasons,
          &collectives_.data,
          &exchanges_.announcements,
          &exchanges_.reasons,
          &exchanges_.data,
          &pairs_,
          &notes_,
          &decisions_,
          &parts_};
}

/// Breaks the group by throwing; progress() catches.
void MpiGroupState::require(int error) {
  if (error == 0) return;
  throw CommError(std::string(MpiWatch::last_call()) + " failed at rank " + std::to_string(rank_) + ": " +
                  mpi_text(error));
}

bool MpiGroupState::arrived(MpiRequest** request) {
  int done = 0;
  require(calls_.test(request, &done));
  return done != 0;
}

void MpiGroupState::take(ExchangePtr part) {
  if (broken()) return part->fail(broken_);
  const Call& call = part->call;
  auto& waiting = is_message(call.kind)             ? messages_[{call.kind, call.peer}].waiting
                  : call.kind == CallKind::exchange ? exchanges_.waiting
                                                    : collectives_.waiting;
  waiting.emplace(call.number, std::move(part));
}

bool MpiGroupState::progress() {
  if (broken() || released_) return false;
  try {
    bool changed = false;
    for (Series* const series : {&collectives_, &exchanges_}) {
      changed |= begin_calls(*series);
      changed |= end_calls(*series);
    }
    if (!scheduled_.empty() || !telling_.empty()) {
      changed |= decide();
      changed |= begin_parts();
      changed |= end_parts();
    }
    for (auto& [end, pair] : messages_) changed |= move_messages(end.first, end.second, pair);
    changed |= move_notes();
    changed |= part();
    if (!changed) watch();
    return changed;
  } catch (const std::exception& error) {
    break_up({.why = text_of(error)}, rank_);
    return true;
  }
}

bool MpiGroupState::busy() const {
  if (broken()) return false;
  const auto under_way = [](const auto& each) { return !each.second.waiting.empty() || !each.second.begun.empty(); };
  const auto has_calls = [](const Series& series) {
    return !series.waiting.empty() || !series.announced.empty() || !series.moving.empty();
  };
  return has_calls(collectives_) || has_calls(exchanges_) || !scheduled_.empty() || !telling_.empty() ||
         !sent_.empty() || std::ranges::any_of(messages_, under_way);
}

// Collectives, and exchanges of numbers.

bool MpiGroupState::begin_calls(Series& series) {
  bool changed = false;
  for (auto place = series.waiting.find(series.next);
       place != series.waiting.end() && series.announced.size() < most_announced;
       place = series.waiting.find(series.next)) {
    auto call = std::make_unique<Begun>(Begun{.part = std::move(place->second), .since = Clock::now()});
    series.waiting.erase(place);
    ++series.next;
    if (const int rank = lacks(series.kind, static_cast<std::int64_t>(call->part->call.number)); rank >= 0) {
      call->part->fail(without(rank));
      changed = true;
      continue;
    }
    series.announced.push_back(std::move(call));
    announce(series, *series.announced.back(), hash(series.announced.back()->part->call));
    changed = true;
  }
  return changed;
}

bool MpiGroupState::end_calls(Series& series) {
  bool changed = false;
  while (!series.announced.empty() && arrived(&series.announced.front()->request)) {
    changed = true;
    Begun& call = *series.announced.front();
    if (call.step == Begun::Round::reasons) {
      const auto begun = std::move(series.announced.front());
      series.announced.pop_front();
      begun->part->fail(reason(*begun));
      continue;
    }
    if (agreed(series, call)) {
      const bool moves = !call.part->pieces.empty();
      if (!moves || series.is_eager(call.part->call)) {
        if (moves) end_eager(series, call);
        call.part->done();
        series.announced.pop_front();
        continue;
      }
      call.gathered = nullptr;
      call.step = Begun::Round::data;
      if (call.part->call.scheduled()) {
        schedule(std::move(series.announced.front()));
        series.announced.pop_front();
        continue;
      }
      series.moving.push_back(std::move(series.announced.front()));
      series.announced.pop_front();
      begin_data(series.data, *series.moving.back());
      continue;
    }
    // All members see that the call fails, and tell each other why.
    call.step = Begun::Round::reasons;
    call.reasons.resize(static_cast<std::size_t>(size_) + 1);
    MpiNote& own = call.reasons.back();
    own.rank = rank_;
    own.numbers[0] = hash(call.part->call);
    say_failed(own, *call.part);
    begin(series.reasons, {.kind = CallKind::all_gather, .from = &own, .to = call.reasons.data(), .count = sizeof own},
          &call.request);
  }
  while (!series.moving.empty() &&
         (series.moving.front()->request == nullptr || arrived(&series.moving.front()->request))) {
    changed = true;
    const auto call = std::move(series.moving.front());
    series.moving.pop_front();
    data_ended_ = Clock::now();
    end_data(*call);
    call->part->done();
  }
  return changed;
}

void MpiGroupState::say_failed(MpiNote& note, const Exchange& part) {
  note.numbers[1] = part.failure.empty() ? 0 : 1;
  note.say(part.failure.empty() ? part.call.describe() : part.failure);
  note.numbers[2] = number_of(part.origin);
}

Breakage MpiGroupState::failed(const MpiNote& note, const Exchange& own) {
  const std::int64_t number = note.numbers[2];
  // The operand here may have failed as well, for the same reason or another.
  if (own.origin && (note.rank == rank_ || (number != 0 && number == number_of(own.origin)))) {
    return operand_failed(static_cast<int>(note.rank), note.said(), own.origin);
  }
  const bool known = number != 0 && number == last_failed_.first;
  Breakage failed = operand_failed(static_cast<int>(note.rank), note.said(), known ? last_failed_.second : nullptr);
  last_failed_ = {number, failed.cause};
  return failed;
}

Breakage MpiGroupState::reason(const Begun& call) {
  const MpiNote& own = call.reasons.back();
  for (const MpiNote& note : std::span(call.reasons).first(static_cast<std::size_t>(size_))) {
    if (note.numbers[1] != 0) return failed(note, *call.part);
  }
  for (const MpiNote& note : std::span(call.reasons).first(static_cast<std::size_t>(size_))) {
    const MpiNote& first = call.reasons.front();
    if (note.numbers[0] != first.numbers[0]) {
      return {.why = "rank " + std::to_string(first.rank) + " calls " + first.said() + ", but rank " +
                     std::to_string(note.rank) + " calls " + note.said()};
    }
  }
  return {.why = "members differ; here: " + own.said()};
}

void MpiGroupState::begin_combining(const Call& what, const Span& span, MpiRequest** request) {
  const bool gives = what.kind == CallKind::reduce && what.peer != rank_;
  begin(span.group,
        {.kind = what.kind,
         .from = gives ? span.data.to : span.data.from,
         .to = span.data.to,
         .count = span.count,
         .type = type_of(what),
         .combine = what.combine,
         .peer = what.peer},
        request);
}

void MpiGroupState::begin_data(MpiGroup* group, Begun& call) {
  const Call& what = call.part->call;
  Pieces& pieces = call.part->pieces;
  if (elements(pieces) == 0) return;  // at all members
  if (what.kind < CallKind::all_gather) {
    const ByteRange all = whole(targets_of(*call.part));
    return begin_combining(what, {group, place(call, all, call.in), all.bytes / 4}, &call.request);
  }
  const std::byte* from = pieces[0].data;
  std::byte* to = pieces[1].data;
  if (!pieces[0].dense()) {
    call.in.resize(pieces[0].bytes());
    pack({&pieces[0], 1}, {0, pieces[0].bytes()}, call.in.data());
    from = call.in.data();
  }
  if (!pieces[1].dense()) {
    call.out.resize(pieces[1].bytes());
    to = call.out.data();
  }
  begin(group,
        {.kind = what.kind == CallKind::exchange ? CallKind::all_gather : what.kind,
         .from = from,
         .to = to,
         .count = static_cast<std::size_t>(what.shapes[0].rows * what.shapes[0].width),
         .type = type_of(what),
         .combine = what.combine},
        &call.request);
}

void MpiGroupState::end_data(Begun& call) {
  const Call& what = call.part->call;
  const bool exchanges = what.kind >= CallKind::all_gather;
  const PieceSpan all = call.part->pieces;
  const PieceSpan targets = exchanges ? all.last(1) : targets_of(*call.part);
  if (!exchanges) take_back(call, whole(targets), call.in);
  if (!call.out.empty()) unpack(call.out.data(), targets, whole(targets));
  const bool combines =
      what.kind == CallKind::all_reduce || what.kind == CallKind::reduce || what.kind == CallKind::reduce_scatter;
  if (!combines || what.combine != Combine::mean) return;
  const float share = 1.0f / static_cast<float>(size_);
  if (exchanges || writes(what)) scale(targets, share);
}

// Messages.

bool MpiGroupState::move_messages(CallKind kind, int peer, Pair& pair) {
  constexpr int of_sender = 0, of_receiver = 1;
  bool changed = false;
  for (auto place = pair.waiting.find(pair.next); place != pair.waiting.end(); place = pair.waiting.find(pair.next)) {
    auto message = std::make_unique<Message>(
        Message{.part = std::move(place->second), .since = Clock::now(), .own = {}, .other = {}});
    pair.waiting.erase(place);
    const std::size_t other_end = kind == CallKind::send ? Called::recvs : Called::sends;
    if (lacks(other_end, static_cast<std::int64_t>(pair.next++), peer) >= 0) {
      message->part->fail(without(peer));
      changed = true;
      continue;
    }
    message->own.rank = rank_;
    message->own.numbers[0] = hash(message->part->call);
    say_failed(message->own, *message->part);
    pair.begun.push_back(std::move(message));
    Message& last = *pair.begun.back();
    const int own = kind == CallKind::send ? of_sender : of_receiver;
    begin(pairs_, {.kind = CallKind::send, .from = &last.own, .count = sizeof last.own, .peer = peer, .tag = own},
          &last.sending);
    begin(pairs_, {.kind = CallKind::recv, .to = &last.other, .count = sizeof last.other, .peer = peer, .tag = 1 - own},
          &last.receiving);
    changed = true;
  }
  // Data follow in the order of the notes.
  while (!pair.begun.empty() && move(kind, peer, *pair.begun.front())) {
    pair.begun.pop_front();
    changed = true;
  }
  return changed;
}

/// Returns whether the message has ended.
bool MpiGroupState::move(CallKind kind, int peer, Message& message) {
  constexpr int of_data = 2;
  if (message.sending != nullptr && !arrived(&message.sending)) return false;
  if (message.receiving != nullptr && !arrived(&message.receiving)) return false;
  const Piece* const piece = message.part->pieces.empty() ? nullptr : message.part->pieces.data();
  if (message.noted) {
    if (kind == CallKind::recv && !message.data.empty())
      unpack(message.data.data(), message.part->pieces, whole(message.part->pieces));
    message.part->done();
    return true;
  }
  message.noted = true;
  for (const MpiNote* note : {&message.own, &message.other}) {
    if (note->numbers[1] != 0) {
      message.part->fail(failed(*note, *message.part));
      return true;
    }
  }
  if (message.own.numbers[0] != message.other.numbers[0]) {
    message.part->fail({.why = "rank " + std::to_string(peer) + " calls " + message.other.said()});
    return true;
  }
  std::byte* data = piece->data;
  if (!piece->dense()) {
    message.data.resize(4 * elements(message.part->pieces));
    if (kind == CallKind::send) pack(message.part->pieces, whole(message.part->pieces), message.data.data());
    data = message.data.data();
  }
  const bool sends = kind == CallKind::send;
  begin(pairs_,
        {.kind = kind,
         .from = sends ? data : nullptr,
         .to = sends ? nullptr : data,
         .count = elements(message.part->pieces),
         .type = type_of(message.part->call),
         .peer = peer,
         .tag = of_data},
        sends ? &message.sending : &message.receiving);
  return false;
}

}  // namespace windrow::comm
