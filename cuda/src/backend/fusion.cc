#include "backend/fusion.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "backend/printer.h"
#include "windrow/ops/operators.h"

namespace windrow::cuda {
namespace {

/// A kernel has at most so many block steps: a compiler takes long for many, and registers are few.
constexpr Index most_block_steps = 96;

/// The widths and columns that the width of a block divides.
std::vector<Index> measures_of(const Step& step) {
  std::vector<Index> all;
  if (step.does != Step::Does::scatter) all = {step.out.width, step.out.column};
  for (const Place& place : step.in) {
    all.push_back(place.width);
    if (place.in != Place::In::tensor) all.push_back(place.column);
  }
  return all;
}

/// The greatest width that divides the blocks of all steps, and the number of block steps.
struct Blocks {
  Index width = 0, count = 0;
};
Blocks blocks_of(std::span<const Step> steps) {
  Blocks blocks;
  for (const Step& step : steps) {
    for (const Index measure : measures_of(step)) blocks.width = std::gcd(blocks.width, measure);
  }
  if (blocks.width == 0) return blocks;
  for (const Step& step : steps) blocks.count += width_of(step) / blocks.width;
  return blocks;
}

bool overlap(const Place& a, const Place& b) {
  return a.in == b.in && a.number == b.number && a.column < b.column + b.width && b.column < a.column + a.width;
}

/// The steps that follow `first` and multiply the same matrix with other rows, so that one call computes all of them:
/// equal shapes, and results that neither overlap nor are
/// operands.
std::size_t end_of_products(std::span<const Step> steps, std::size_t first) {
  const auto is_product = [](const Step& step) {
    return step.does == Step::Does::kernel && step.op == &op::matmul && step.in[1].in == Place::In::tensor &&
           step.in[0].in != Place::In::tensor && step.in[0].in != Place::In::pull && step.indices.empty();
  };
  const auto alike = [](const Place& a, const Place& b) { return a.width == b.width && a.rate == b.rate; };
  const Step& one = steps[first];
  if (!is_product(one)) return first;
  std::size_t end = first + 1;
  for (; end < steps.size(); ++end) {
    const Step& other = steps[end];
    if (!is_product(other) || other.write != one.write || other.rate != one.rate) break;
    const bool same_matrix = other.in[1].number == one.in[1].number && other.in[1].column == one.in[1].column;
    if (!same_matrix || !alike(one.in[0], other.in[0]) || !alike(one.out, other.out)) break;
    if (overlap(one.out, other.out) || overlap(one.out, other.in[0]) || overlap(one.in[0], other.out)) break;
    if (end - first == 2) break;  // a third one need not be as far from the second as that is from the first
  }
  return end;
}

/// The phase of a segment, for names.
const char* name_of(std::size_t phase) {
  constexpr const char* names[] = {"eager", "level", "lazy", "back_level", "back_lazy"};
  return names[phase];
}

/// "tree_lstm", as a part of the name of a function.
std::string identifier(const std::string& name) {
  std::string made = name.empty() || (name[0] >= '0' && name[0] <= '9') ? "f_" : "";
  for (const char c : name) {
    const bool fits = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    made += fits ? c : '_';
  }
  return made;
}

/// Divides the segments of a plan into parts.
class Fuser {
 public:
  /// Without `may_fuse`, each step is a part.
  Fuser(const Plan& plan, bool may_fuse) : plan_(plan), may_fuse_(may_fuse), users_(plan.types.size()) {}

  FusedPlan fuse() {
    made_.parts.resize(plan_.types.size());
    for (const bool prints : {false, true}) {  // first to find who uses which local
      for (std::size_t t = 0; t < plan_.types.size(); ++t) {
        for (std::size_t p = 0; p < phase_count; ++p) {
          auto& parts = made_.parts[t][p];
          parts.clear();
          for (const Segment& segment : plan_.types[t].phases[p]) parts.push_back(parts_of(t, p, segment, prints));
        }
      }
      if (!prints) find_locals();
    }
    return std::move(made_);
  }

 private:
  std::vector<Part> parts_of(std::size_t type, std::size_t phase, const Segment& segment, bool prints) {
    std::vector<Part> parts;
    const std::span<const Step> steps = segment.steps;
    for (std::size_t first = 0; first < steps.size();) {
      std::size_t last = first;
      while (may_fuse_ && last < steps.size() && can_print(steps[last], segment)) {
        const Blocks blocks = blocks_of(steps.subspan(first, last + 1 - first));
        // A scatter has no other kernel.
        const bool must = last == first && steps[first].does == Step::Does::scatter;
        if (blocks.width == 0 || (blocks.count > most_block_steps && !must)) break;
        ++last;
      }
      Part part{Part::Does::fused, first, last};
      if (last == first) {
        const std::size_t end = may_fuse_ ? end_of_products(steps, first) : first;
        part = end > first + 1 ? Part{Part::Does::products, first, end} : Part{Part::Does::step, first, first + 1};
      } else if (prints) {
        part.number = print(type, phase, steps.subspan(first, last - first));
      }
      if (!prints) note_locals(type, segment, part);
      parts.push_back(part);
      first = part.last;
    }
    return parts;
  }

  void note_locals(std::size_t type, const Segment& segment, const Part& part) {
    ++part_number_;
    for (std::size_t i = part.first; i < part.last; ++i) {
      const Step& step = segment.steps[i];
      const auto note = [&](const Place& place) {
        if (place.in != Place::In::local) return;
        users_[type][place.number].parts.insert(part_number_);
        users_[type][place.number].rate = place.rate;
        // Only a fused part keeps values in variables.
        if (part.does != Part::Does::fused) users_[type][place.number].parts.insert(0);
      };
      for (const Place& place : step.in) note(place);
      if (step.does != Step::Does::scatter) note(step.out);
    }
  }

  void find_locals() {
    for (std::size_t t = 0; t < plan_.types.size(); ++t) {
      made_.locals.emplace_back(plan_.types[t].locals.size());
      for (const auto& [number, user] : users_[t]) {
        if (user.parts.size() > 1 || user.parts.contains(0)) made_.locals[t][number] = user.rate;
      }
    }
  }

  std::size_t print(std::size_t type, std::size_t phase, std::span<const Step> steps) {
    FusedKernel kernel;
    kernel.name =
        identifier(plan_.program.function->name) + "_" + name_of(phase) + "_" + std::to_string(made_.kernels.size());
    kernel.width = blocks_of(steps).width;
    Printer(made_.locals[type], kernel).print(steps);
    made_.kernels.push_back(std::move(kernel));
    return made_.kernels.size() - 1;
  }

  struct Users {
    std::set<std::size_t> parts;
    Rate rate = Rate::vertices;
  };

  const Plan& plan_;
  const bool may_fuse_;
  FusedPlan made_;
  std::size_t part_number_ = 0;
  std::vector<std::map<std::size_t, Users>> users_;  // by type and local
};

}  // namespace

FusedPlan fuse(const Plan& plan, bool may_fuse) { return Fuser(plan, may_fuse).fuse(); }

}  // namespace windrow::cuda
