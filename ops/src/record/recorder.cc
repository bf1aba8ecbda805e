#include "record/recorder.h"

#include <algorithm>
#include <utility>

namespace windrow {
namespace {

constexpr const char* expected_in_body =
    "not replayable; expected, in the body of a Static, only operators, draws, fills and steps of optimisers. Wait and "
    "push other ops outside of it";

/// The access of an op that lists a variable twice.
AccessKind both(AccessKind a, AccessKind b) { return a == b ? a : AccessKind::mutate; }

/// Throws at the call, as a push would, and not after the body.
void require_pushable(Engine& engine, const OpFunction& function, AccessList accesses, const PushOptions& options) {
  const auto refuse = [&](const std::string& what) {
    throw MisuseError("op '" + std::string(options.name.text()) + "' in the body of a Static " + what);
  };
  if (!function) refuse("has no function; expected one");
  for (const Access& access : accesses) {
    if (!access.var) refuse("names an empty Var; expected one of Engine::new_var");
  }
  try {
    for (const Access& access : accesses) static_cast<void>(engine.version(access.var, options.pushed_at));
    static_cast<void>(engine.lane(options.lane));
  } catch (const MisuseError& e) {
    refuse(std::string("cannot be pushed: ") + e.what());
  }
}

}  // namespace

thread_local constinit Recorder* Recorder::here_ = nullptr;

Recorder::Recorder(Engine& engine, Keeps keeps) : engine_(engine), keeps_(keeps) { go_on(); }
Recorder::~Recorder() {
  if (refusal_) pause();
}

void Recorder::pause() {
  here_ = outer_;
  refusal_.reset();
}
void Recorder::go_on() {
  refusal_.emplace(engine_, expected_in_body);
  outer_ = std::exchange(here_, this);
}

RecordedOps Recorder::finish() {
  pause();
  results_.clear();
  return std::move(recording_);
}

void Recorder::forget_since(const Mark& mark) {
  recording_.applied.erase(recording_.applied.begin() + static_cast<std::ptrdiff_t>(mark.applied),
                           recording_.applied.end());
  recording_.ops.erase(recording_.ops.begin() + static_cast<std::ptrdiff_t>(mark.ops), recording_.ops.end());
  recording_.items.erase(recording_.items.begin() + static_cast<std::ptrdiff_t>(mark.items), recording_.items.end());
  for (RecordedOps::Item& item : recording_.items) item.version = 0;
  for (std::size_t i = 0; i < recording_.ops.size(); ++i) {
    for (const RecordedOps::Use& use : recording_.ops[i].uses) {
      if (use.kind != AccessKind::read) recording_.items[use.item].version = i + 1;
    }
  }
}

std::size_t Recorder::find(const Var& var) const {
  // From the back, because most ops use results of the last ones.
  const auto found = std::find_if(recording_.items.rbegin(), recording_.items.rend(),
                                  [&](const RecordedOps::Item& item) { return item.var == var; });
  if (found == recording_.items.rend()) return recording_.items.size();
  return static_cast<std::size_t>(recording_.items.rend() - found) - 1;
}

std::size_t Recorder::item(const Var& var) {
  const std::size_t number = find(var);
  if (number == recording_.items.size()) recording_.items.push_back({var, nullptr});
  return number;
}

void Recorder::hold(const std::shared_ptr<Buffer>& buffer) {
  RecordedOps::Item& held = recording_.items[item(buffer->var())];
  if (held.buffer == nullptr) held.buffer = buffer;
}

void Recorder::made(const std::shared_ptr<Buffer>& buffer) {
  recording_.items.push_back({buffer->var(), buffer, true});
}

void Recorder::note(Engine& engine, OpFunction function, AccessList accesses, const PushOptions& options,
                    const ReplayedBuffers& buffers) {
  if (&engine != &engine_) {
    throw MisuseError("op '" + std::string(options.name.text()) +
                      "' for another engine in the body of a Static; expected the engine of its device");
  }
  require_pushable(engine, function, accesses, options);
  for (const std::shared_ptr<Buffer>& buffer : buffers.all) hold(buffer);
  RecordedOps::Op noted;
  noted.options = options;
  noted.function = std::move(function);
  for (const Access& access : accesses) {
    const std::size_t number = item(access.var);
    if (access.kind != AccessKind::read) recording_.items[number].version = recording_.ops.size() + 1;
    const auto same = std::ranges::find(noted.uses, number, &RecordedOps::Use::item);
    if (same != noted.uses.end()) {
      same->kind = both(same->kind, access.kind);
    } else {
      noted.uses.push_back({number, access.kind});
    }
  }
  if (buffers.overwritten_in_part) noted.overwrites_part_of = item(buffers.overwritten_in_part);
  for (const Var& operand : buffers.in_place) noted.in_place.push_back(item(operand));
  noted.captured = buffers.may_be_captured;
  if (buffers.result) noted.result = item(buffers.result);
  recording_.ops.push_back(std::move(noted));
}

std::size_t Recorder::version(const Var& var) const {
  const std::size_t number = find(var);
  return number < recording_.items.size() ? recording_.items[number].version : 0;
}

void Recorder::note_applied(const Operator& op, const Operands& operands, const Tensor& out) {
  if (keeps_ == Keeps::operators) recording_.applied.push_back({recording_.ops.size() - 1, &op, operands, out});
}

// ---- pushes of other code (static.h) ----

void push_replayable(Engine& engine, OpFunction function, AccessList accesses, const PushOptions& options,
                     const ReplayedBuffers& buffers) {
  if (Recorder* const recorder = Recorder::here()) {
    return recorder->note(engine, std::move(function), accesses, options, buffers);
  }
  engine.push(std::move(function), accesses, options);
}

Unrecorded::Unrecorded() : recorder_(Recorder::here()) {
  if (recorder_ != nullptr) recorder_->pause();
}
Unrecorded::~Unrecorded() {
  if (recorder_ != nullptr) recorder_->go_on();
}

void refuse_in_recording(const std::string& what) {
  if (Recorder::here() != nullptr) throw MisuseError(what + " in the body of a Static: " + expected_in_body);
}

}  // namespace windrow
