// The storage of Parameters: values, gradients, and the steps that change the values.
//
// Shared by the Parameters object and all runners and lazy graphs that use it. Entries are never removed or moved, so
// references to them stay valid.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "layout/looked_up.h"
#include "windrow/batching/internal/ir.h"
#include "windrow/batching/parameters.h"
#include "windrow/ops/apply.h"

namespace windrow {

struct MinibatchEnd;
struct StepCheck;
class SkipLog;

class ParameterStore {
 public:
  struct Entry {
    std::string name;
    Tensor value;
    std::optional<Tensor> dense = {};  ///< memory of the gradient, reused by each minibatch
    Gradient gradient = {};            ///< gradient() fills its `rows` from `lookups`
    std::vector<LookedUp> lookups = {};
    bool frozen = false;   ///< plans for training treat it as a constant
    bool depends = false;  ///< the loss can depend on it by lookups, even if this minibatch has none
    std::shared_ptr<const std::string> full_name = {};  ///< for errors: after that of the set, if the set has one
  };

  ParameterStore(const Device& device, std::uint64_t seed, ParametersOptions options);
  /// A replica, whose id is the same; see Parameters.
  ParameterStore(const Device& device, const ParameterStore& of);

  Parameter operator[](std::size_t number) const;
  /// Throws MisuseError for a parameter of another set.
  std::int32_t number_of(const Parameter& parameter) const;
  const Entry& entry(const Parameter& parameter) const {
    return entries_[static_cast<std::size_t>(number_of(parameter))];
  }
  Entry& entry(std::size_t number) { return entries_[number]; }
  const Entry& entry(std::size_t number) const { return entries_[number]; }
  // Reads the id without copying the name, which takes time.
  static std::uint64_t set_of(const Parameter& parameter) { return parameter.set_; }
  static std::size_t place_of(const Parameter& parameter) { return parameter.number_; }
  static ir::ParameterName name_of(const Parameter& parameter) {
    return {parameter.set_, parameter.number_, parameter.name_};
  }

  const Device& device() const { return device_; }
  const std::string& name() const { return options_.name; }
  std::uint64_t id() const { return id_; }
  std::size_t size() const { return entries_.size(); }
  std::uint64_t seed() const { return seed_; }
  std::uint64_t minibatches() const { return minibatches_; }
  std::uint64_t next_minibatch() {
    samples_.clear();
    return minibatches_++;
  }
  bool of_a_group() const { return members_ > 1; }
  /// The number with which dropout draws in the minibatch of that number; it differs between members of a group.
  std::uint64_t draw(std::uint64_t minibatch) const { return minibatch * members_ + rank_; }
  /// See Parameters::number_samples(); empty if the samples have no numbers.
  const std::vector<std::int32_t>& samples() const { return samples_; }
  /// The smallest number that no other lazy graph for training has at present, so that their dropout differs.
  std::size_t enter_graph() {
    const auto place = std::find(graphs_.begin(), graphs_.end(), false);
    const auto number = static_cast<std::size_t>(place - graphs_.begin());
    if (place == graphs_.end()) graphs_.push_back(false);
    graphs_[number] = true;
    return number;
  }
  void leave_graph(std::size_t number) { graphs_[number] = false; }
  bool skips_non_finite() const { return options_.non_finite == NonFinite::skip; }

  void forget_gradients();
  /// Called before a minibatch is differentiated: drops the gradients, unless keep_gradients() was called for this
  /// minibatch.
  void begin_gradients() {
    if (!std::exchange(keeps_gradients_, false)) forget_gradients();
  }
  /// Adds reads of the gradients to which the next minibatch adds, and of the end of the last minibatch.
  void add_kept_gradients(std::vector<Access>& reads) const;
  /// Notes that gradients also come from that minibatch.
  void add_source(std::shared_ptr<const MinibatchEnd> minibatch) { sources_.push_back(std::move(minibatch)); }
  NextStep next_step(std::source_location from) {
    const std::uint64_t number = steps_++;
    return {number, skips_non_finite() ? push_check(number, from) : nullptr, sources_};
  }

 private:
  friend class Parameters;

  Entry& own(const Parameter& parameter) { return entries_[static_cast<std::size_t>(number_of(parameter))]; }
  void require_new(const std::string& name) const;
  Tensor drawn(Index rows, Index width, Initial initial);
  /// The rows of all lookups, added up by row of the table.
  std::optional<Gradient::Rows> summed_lookups(const Entry& entry, std::source_location from) const;
  /// One step of gradient descent while it is pushed.
  struct DescentStep {
    double rate, decay;
    NextStep next;
    std::source_location from;
  };
  std::shared_ptr<const StepCheck> push_check(std::uint64_t number, std::source_location from) const;
  /// Decides on a step: a function that returns why to skip it, or nothing; and the accesses of that function.
  struct Reasons {
    std::function<std::string()> why;
    std::vector<Access> accesses;
  };
  void push_agreed_check(std::uint64_t number, Reasons reasons, const std::shared_ptr<StepCheck>& check,
                         std::source_location from) const;
  void update_rows(const Entry& entry, const DescentStep& step) const;
  void update(const Operator& op, Operands operands, const Tensor& value, const DescentStep& step) const;

  const Device device_;
  const std::uint64_t id_, seed_;
  const ParametersOptions options_;
  Generator generator_;
  std::deque<Entry> entries_;
  std::vector<std::shared_ptr<const MinibatchEnd>> sources_;  // of the gradients
  Parameters::Agree agree_;                                   // for steps along the current gradients; or empty
  std::uint64_t steps_ = 0, minibatches_ = 0;
  std::uint64_t rank_ = 0, members_ = 1;
  std::vector<std::int32_t> samples_;  // numbers of the next minibatch's samples; or empty
  std::vector<bool> graphs_;           // by number: whether a lazy graph has it
  bool keeps_gradients_ = false;       // for the next minibatch
  const std::shared_ptr<SkipLog> skipped_;
};

}  // namespace windrow
