// Checks a program for plan_memory(), and finds what its steps use and depend on.
#include <algorithm>
#include <bit>
#include <string>

#include "lifetimes.h"

namespace windrow {
namespace {

MisuseError plan_error(const std::string& what) { return MisuseError("memory plan: " + what); }

void sort_unique(std::vector<std::uint32_t>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

/// Reads the steps of a program one by one.
class StepReader {
 public:
  explicit StepReader(BufferUses& uses)
      : uses_(uses), last_writer_(uses.root.size(), none), readers_(uses.root.size()) {}

  void read(std::uint32_t number) {
    step_ = number;
    const PlannedStep& step = uses_.program.steps[number];
    std::vector<std::uint32_t> before;
    if (uses_.program.order == StepOrder::serial && number > 0) before.push_back(number - 1);
    for (const std::uint32_t other : step.after) {
      if (other >= number) throw plan_error(of_step("is after step", other) + "; expected an earlier one");
      before.push_back(other);
    }
    const std::vector<std::uint32_t> reads = roots_of(step.reads, "reads"), writes = roots_of(step.writes, "writes");
    for (const std::uint32_t buffer : reads) add_read(buffer, before);
    for (const std::uint32_t buffer : writes) add_write(buffer, before);
    for (const InPlace& in_place : step.in_place) add_overlay(step, in_place);
    sort_unique(before);
    if (!before.empty() && before.back() == number) before.pop_back();  // it reads what it writes
    uses_.before.push_back(std::move(before));
  }

 private:
  static constexpr std::uint32_t none = no_buffer;

  std::string of_step(const std::string& does, std::size_t other) const {
    return "step " + std::to_string(step_) + " " + does + " " + std::to_string(other);
  }

  std::vector<std::uint32_t> roots_of(const std::vector<std::uint32_t>& numbers, const char* does) const {
    std::vector<std::uint32_t> roots;
    for (const std::uint32_t number : numbers) {
      if (number >= uses_.root.size()) {
        throw plan_error(of_step(std::string(does) + " buffer", number) + "; there are " +
                         std::to_string(uses_.root.size()));
      }
      roots.push_back(uses_.root[number]);
    }
    sort_unique(roots);
    return roots;
  }

  void use(std::uint32_t buffer) {
    auto& steps = uses_.steps_of[buffer];
    if (steps.empty() || steps.back() != step_) steps.push_back(step_);
  }

  void add_read(std::uint32_t buffer, std::vector<std::uint32_t>& before) {
    const Held held = uses_.program.buffers[buffer].held;
    if (last_writer_[buffer] != none) {
      before.push_back(last_writer_[buffer]);
    } else if (held != Held::before && held != Held::throughout) {
      throw plan_error(of_step("reads buffer", buffer) + ", which no earlier step writes; expected Held::before");
    }
    readers_[buffer].push_back(step_);
    use(buffer);
  }

  void add_write(std::uint32_t buffer, std::vector<std::uint32_t>& before) {
    if (last_writer_[buffer] != none) before.push_back(last_writer_[buffer]);
    before.insert(before.end(), readers_[buffer].begin(), readers_[buffer].end());
    readers_[buffer].clear();
    last_writer_[buffer] = step_;
    use(buffer);
  }

  void add_overlay(const PlannedStep& step, const InPlace& in_place) {
    const auto has = [](const std::vector<std::uint32_t>& numbers, std::uint32_t number) {
      return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
    };
    if (!has(step.reads, in_place.operand)) {
      throw plan_error(of_step("works in place on buffer", in_place.operand) + ", which it does not read");
    }
    if (!has(step.writes, in_place.result)) {
      throw plan_error(of_step("works in place for buffer", in_place.result) + ", which it does not write");
    }
    const std::uint32_t operand = uses_.root[in_place.operand], result = uses_.root[in_place.result];
    if (operand == result || uses_otherwise(step, in_place.operand) || uses_otherwise(step, in_place.result)) return;
    const auto offset = [&](std::uint32_t view) { return static_cast<std::ptrdiff_t>(uses_.root_offset[view]); };
    uses_.overlays.push_back({.step = step_,
                              .operand = operand,
                              .result = result,
                              .delta = offset(in_place.operand) - offset(in_place.result)});
  }

  /// Whether the step uses another view of the buffer, which an overlay could reach.
  bool uses_otherwise(const PlannedStep& step, std::uint32_t view) const {
    const auto is_other = [&](std::uint32_t number) {
      return number != view && uses_.root[number] == uses_.root[view];
    };
    return std::any_of(step.reads.begin(), step.reads.end(), is_other) ||
           std::any_of(step.writes.begin(), step.writes.end(), is_other);
  }

  BufferUses& uses_;
  std::uint32_t step_ = 0;
  std::vector<std::uint32_t> last_writer_;
  std::vector<std::vector<std::uint32_t>> readers_;  // since the last writer
};

void check_view(const std::vector<PlannedBuffer>& buffers, std::size_t number) {
  const PlannedBuffer& view = buffers[number];
  const std::string name = "buffer " + std::to_string(number);
  if (view.view_of >= number) {
    throw plan_error(name + " is a view of buffer " + std::to_string(view.view_of) + "; expected an earlier one");
  }
  const std::size_t whole = buffers[view.view_of].bytes;
  if (view.view_offset <= whole && view.bytes <= whole - view.view_offset) return;
  throw plan_error(name + " is a view of " + std::to_string(view.bytes) + " bytes from byte " +
                   std::to_string(view.view_offset) + " of buffer " + std::to_string(view.view_of) + ", which has " +
                   std::to_string(whole));
}

}  // namespace

BufferUses::BufferUses(const MemoryProgram& of) : program(of), steps_of(of.buffers.size()) {
  for (std::uint32_t i = 0; i < of.buffers.size(); ++i) {
    const PlannedBuffer& buffer = of.buffers[i];
    const bool is_view = buffer.view_of != no_buffer;
    if (is_view) {
      check_view(of.buffers, i);
    } else if (!std::has_single_bit(buffer.alignment)) {
      throw plan_error("buffer " + std::to_string(i) + " has alignment " + std::to_string(buffer.alignment) +
                       "; expected a power of two");
    }
    root.push_back(is_view ? root[buffer.view_of] : i);
    root_offset.push_back(is_view ? root_offset[buffer.view_of] + buffer.view_offset : 0);
  }
  StepReader reader(*this);
  for (std::uint32_t step = 0; step < of.steps.size(); ++step) reader.read(step);
}

}  // namespace windrow
