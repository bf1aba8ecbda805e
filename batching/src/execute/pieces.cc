#include "execute/pieces.h"

#include <algorithm>
#include <utility>

namespace windrow {
namespace {

/// The most pieces of a phase or a batch, over all groups together: groups occupy several workers, too.
constexpr Index most_cuts = 8;

/// Vertices of one type in neighbouring batches have neighbouring rows, so their parts are merged.
void join(std::vector<PhaseRows>& parts, const PhaseRows& more) {
  const auto same =
      std::find_if(parts.begin(), parts.end(), [&](const PhaseRows& part) { return part.type == more.type; });
  if (same == parts.end()) {
    parts.push_back(more);
  } else {
    same->end = more.end;
  }
}

}  // namespace

Index work_of(const Plan& plan, const Layout& layout, const PhaseRows& part) {
  const auto& costs = plan.types[part.type].costs[static_cast<std::size_t>(part.phase)];
  Index work = 0;
  for (Rate rate : {Rate::vertices, Rate::edges}) {
    const Index each = costs[static_cast<std::size_t>(rate)].work;
    if (each > 0) work += each * layout.count(part.type, rate, part.begin, part.end);
  }
  return work;
}

Pieces::Pieces(const Plan& plan, const Layout& layout, Index group, const PieceOptions& options)
    : plan_(plan),
      layout_(layout),
      group_(group),
      options_(options),
      batches_(layout.batches[static_cast<std::size_t>(group)]),
      most_cuts_(std::max<Index>(1, most_cuts / layout.groups)) {}

void Pieces::forward() {
  phase_before(Phase::eager);
  chain(Phase::level, Way::up);
  phase_behind(Phase::lazy, Way::up);
}

void Pieces::backward() {
  close();
  begin_ = end_;
  for (; waited_ < before_.size(); ++waited_) begin_.push_back(before_[waited_].piece);
  end_ = begin_;
  links_.clear();
  before_ = turned(std::move(behind_));
  waited_ = 0;
  std::vector<Stretch> first = turned(cut(Phase::back_eager));
  if (!first.front().parts.empty()) append_phase(std::move(first), 0, wait_until(batch_count()));
  chain(Phase::back_level, Way::down);
  phase_behind(Phase::back_lazy, Way::down);
}

std::vector<std::size_t> Pieces::last() const {
  std::vector<char> awaited(pieces_.size(), 0);
  for (const Piece& piece : pieces_) {
    for (std::size_t other : piece.after) awaited[other] = 1;
  }
  std::vector<std::size_t> last;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (awaited[i] == 0) last.push_back(i);
  }
  return last;
}

std::vector<std::size_t> Pieces::ends_of(std::size_t type, Phase phase) const {
  const auto concerns = [&](const PhaseRows& part) { return part.type == type && part.phase == phase; };
  std::vector<char> before(pieces_.size(), 0);  // whether the piece is an end, or has finished when an end begins
  std::vector<std::size_t> ends;
  for (std::size_t i = pieces_.size(); i-- > 0;) {
    if (before[i] == 0 && std::ranges::any_of(pieces_[i].parts, concerns)) {
      ends.push_back(i);
      before[i] = 1;
    }
    if (before[i] == 0) continue;
    for (std::size_t other : pieces_[i].after) before[other] = 1;
  }
  return ends;
}

PhaseRows Pieces::batch(Phase phase, Index number) const {
  const Layout::BatchRows& batch = batches_[static_cast<std::size_t>(number)];
  return {phase, batch.type, batch.begin, batch.end, number};
}

/// Returns a single stretch, which may have no parts, if the phase has too little work for several.
std::vector<Pieces::Stretch> Pieces::cut(Phase phase) const {
  Stretch whole{0, std::max<Index>(0, batch_count() - 1)};
  Index work = 0;
  for (std::size_t t = 0; t < plan_.types.size(); ++t) {
    const PhaseRows part{phase, t, layout_.begin(t, group_), layout_.begin(t, group_ + 1)};
    const Index more = work_of(plan_, layout_, part);
    if (more > 0) whole.parts.push_back(part);
    work += more;
  }
  const Index count = std::min(work / options_.op_flops, most_cuts_);
  if (count < 2 || (!options_.streaming && !options_.splitting)) return {std::move(whole)};
  const Index worth = work / count;
  std::vector<Stretch> stretches;
  Index room = 0;
  for (Index b = 0; b < batch_count(); ++b) {
    PhaseRows rest = batch(phase, b);
    for (Index more = 0; (more = work_of(plan_, layout_, rest)) > 0;) {
      if (room <= 0) {
        stretches.push_back({b, b});
        room = worth;
      }
      const Index rows = rest.end - rest.begin;
      Index taken = more <= room ? rows : std::max(options_.split_rows, rows * room / more);
      if (rows - taken < options_.split_rows || !options_.splitting) taken = rows;
      const PhaseRows some{phase, rest.type, rest.begin, rest.begin + taken};
      room = taken < rows ? 0 : room - more;
      rest.begin = some.end;
      stretches.back().last = b;
      join(stretches.back().parts, some);
    }
  }
  return stretches;
}

/// The same stretches, for a chain in the opposite direction.
std::vector<Pieces::Stretch> Pieces::turned(std::vector<Stretch> stretches) const {
  std::reverse(stretches.begin(), stretches.end());
  for (Stretch& stretch : stretches) {
    const Index first = batch_count() - 1 - stretch.last;
    stretch.last = batch_count() - 1 - stretch.first;
    stretch.first = first;
  }
  return stretches;
}

std::size_t Pieces::add(std::vector<PhaseRows> parts, std::vector<std::size_t> after, bool chain) {
  pieces_.push_back({std::move(parts), std::move(after), chain});
  return pieces_.size() - 1;
}

// --- The chain

void Pieces::close() {
  if (open_) end_ = links_.back().pieces;
  open_ = false;
}

/// Returns the stretches before the chain that begin with this batch or earlier and were not waited for yet.
std::vector<std::size_t> Pieces::wait_until(Index batch) {
  std::vector<std::size_t> after;
  for (; waited_ < before_.size() && before_[waited_].first <= batch; ++waited_) {
    after.push_back(before_[waited_].piece);
  }
  return after;
}

/// Appends to the open link; closes it when it has enough work for an op.
void Pieces::append(const std::vector<PhaseRows>& parts, Index first, const std::vector<std::size_t>& after) {
  if (!open_) {
    links_.push_back({first, {add({}, end_, true)}, 0});
    open_ = true;
    open_work_ = 0;
  }
  Piece& piece = pieces_[links_.back().pieces.front()];
  piece.parts.insert(piece.parts.end(), parts.begin(), parts.end());
  piece.after.insert(piece.after.end(), after.begin(), after.end());
  links_.back().waited = waited_;
  for (const PhaseRows& part : parts) open_work_ += work_of(plan_, layout_, part);
  if (open_work_ >= options_.op_flops) close();
}

void Pieces::append_side_by_side(std::vector<std::vector<PhaseRows>> parts, Index first,
                                 const std::vector<std::size_t>& after) {
  close();
  Link link{first, {}, waited_};
  for (std::vector<PhaseRows>& some : parts) {
    std::vector<std::size_t> all = end_;
    all.insert(all.end(), after.begin(), after.end());
    link.pieces.push_back(add(std::move(some), std::move(all), true));
  }
  end_ = link.pieces;
  links_.push_back(std::move(link));
}

void Pieces::chain(Phase phase, Way way) {
  for (Index i = 0; i < batch_count(); ++i) {
    if (way == Way::down && options_.ends.contains(batch_count() - i)) close();
    const PhaseRows whole = batch(phase, way == Way::up ? i : batch_count() - 1 - i);
    const Index work = work_of(plan_, layout_, whole), rows = whole.end - whole.begin;
    if (work == 0) continue;
    const Index cuts = std::min({work / options_.op_flops, rows / options_.split_rows, most_cuts_});
    const std::vector<std::size_t> after = wait_until(i);
    if (cuts < 2 || !options_.splitting) {
      append({whole}, i, after);
      continue;
    }
    std::vector<std::vector<PhaseRows>> parts;
    for (Index c = 0; c < cuts; ++c) {
      parts.push_back({{phase, whole.type, whole.begin + rows * c / cuts, whole.begin + rows * (c + 1) / cuts}});
    }
    append_side_by_side(std::move(parts), i, after);
  }
}

// --- Phases that take all batches at once

/// Appends a phase to the chain.
void Pieces::append_phase(std::vector<Stretch> stretches, Index first, const std::vector<std::size_t>& after) {
  std::vector<std::vector<PhaseRows>> parts;
  for (Stretch& stretch : stretches) parts.push_back(std::move(stretch.parts));
  if (parts.size() > 1) return append_side_by_side(std::move(parts), first, after);
  if (!parts.front().empty()) append(parts.front(), first, after);
}

void Pieces::phase_before(Phase phase) {
  std::vector<Stretch> stretches = cut(phase);
  if (stretches.size() == 1 || !options_.streaming) return append_phase(std::move(stretches), 0, {});
  for (Stretch& stretch : stretches) stretch.piece = add(std::move(stretch.parts), begin_, false);
  before_ = std::move(stretches);
}

void Pieces::phase_behind(Phase phase, Way way) {
  std::vector<Stretch> stretches = way == Way::up ? cut(phase) : turned(cut(phase));
  behind_.clear();
  if (stretches.size() == 1 || !options_.streaming) {
    if (stretches.front().parts.empty()) return;
    return append_phase(std::move(stretches), batch_count() - 1, wait_until(batch_count()));
  }
  close();
  for (Stretch& stretch : stretches) {
    const auto link =
        std::find_if(links_.rbegin(), links_.rend(), [&](const Link& one) { return one.first <= stretch.last; });
    std::vector<std::size_t> after = link == links_.rend() ? begin_ : link->pieces;
    for (std::size_t k = link == links_.rend() ? 0 : link->waited;
         k < before_.size() && before_[k].first <= stretch.last; ++k) {
      after.push_back(before_[k].piece);
    }
    stretch.piece = add(std::move(stretch.parts), std::move(after), false);
  }
  behind_ = std::move(stretches);
}

}  // namespace windrow
