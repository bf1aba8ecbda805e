// Records the ops that a thread would push in the body of a Static.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "windrow/engine/internal/push_refusal.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/static.h"

namespace windrow {

/// The shapes to which an operator is applied.
Signature signature_of(const Operands& operands);

/// The ops that a recorder has noted.
struct RecordedOps {
  /// A variable that ops access, and the buffer behind it, if there is one. The recording holds each buffer once.
  struct Item {
    Var var;
    std::shared_ptr<Buffer> buffer;
    bool made = false;        ///< whether the buffer was made in the body
    std::size_t version = 0;  ///< the number of ops up to the last one that writes it
  };
  struct Use {
    std::size_t item;
    AccessKind kind;
  };
  struct Op {
    OpFunction function;
    std::vector<Use> uses;  ///< each item once
    PushOptions options;
    std::optional<std::size_t> overwrites_part_of = {};
    std::vector<std::size_t> in_place = {};  ///< items whose bytes `result` may take over
    std::size_t result = 0;
    bool captured = false;  ///< ReplayedBuffers::may_be_captured
  };
  /// An op that applies an operator.
  struct Applied {
    std::size_t number;  ///< among the ops
    const Operator* op;
    Operands operands;
    Tensor out;
  };
  std::vector<Item> items = {};
  std::vector<Op> ops = {};
  std::vector<Applied> applied = {};  ///< empty unless the recorder keeps them; that keeps the tensors alive
};

/// From its construction to its end or finish(), its thread records the replayable pushes to the engine; other pushes
/// throw. Used by that thread alone.
class Recorder {
 public:
  enum class Keeps { functions, operators };
  explicit Recorder(Engine& engine, Keeps keeps = Keeps::functions);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// The recorder of the calling thread; null if there is none, or if the thread runs an op meanwhile, which pushes as
  /// usual.
  static Recorder* here() { return here_ != nullptr && here_->refusal_->in_force() ? here_ : nullptr; }

  /// A buffer that the body has made, to which nothing has been written.
  void made(const std::shared_ptr<Buffer>& buffer);
  /// Throws MisuseError for another engine, and as Engine::push does.
  void note(Engine& engine, OpFunction function, AccessList accesses, const PushOptions& options,
            const ReplayedBuffers& buffers);
  /// Notes the application that the last noted op makes.
  void note_applied(const Operator& op, const Operands& operands, const Tensor& out);
  /// Holds what a Static in the body returned, until finish().
  const std::vector<Tensor>& keep_results(std::vector<Tensor> results) {
    return results_.emplace_back(std::move(results));
  }
  struct Mark {
    std::size_t items, ops, applied;
  };
  Mark mark() const { return {recording_.items.size(), recording_.ops.size(), recording_.applied.size()}; }
  /// Forgets what was noted since then.
  void forget_since(const Mark& mark);
  /// A number that changes with each noted op that writes the variable: Engine::pushed_version() of what is recorded.
  std::size_t version(const Var& var) const;
  /// The ops noted so far.
  const RecordedOps& noted() const { return recording_; }
  RecordedOps finish();

  void pause();
  void go_on();

 private:
  std::size_t item(const Var& var);
  /// Its number if it is among the items, or else how many there are.
  std::size_t find(const Var& var) const;
  void hold(const std::shared_ptr<Buffer>& buffer);

  /// The recorder of the thread. Each recorder has a refusal.
  static thread_local constinit Recorder* here_;

  Engine& engine_;
  std::deque<std::vector<Tensor>> results_;  // of Statics in the body
  const Keeps keeps_;
  Recorder* outer_ = nullptr;  ///< the previous recorder of the thread, if this one is in an op that runs meanwhile
  std::optional<PushRefusal> refusal_;
  RecordedOps recording_;
};

}  // namespace windrow
