#include "backend/fusion.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "backend/printer.h"
#include "windrow/ops/operators.h"

namespace windrow::cuda {
namespace {

/// The most block steps of a kernel: more take long to compile and need too many registers.
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

/// Whether two steps multiply different rows with the same matrix, so that one call can compute both. Shapes must be
/// equal, and no result may overlap the other or be an operand.
bool multiply_alike(const Step& one, const Step& other) {
  const auto is_of_rows = [](const Step& step) {
    return is_product(step) && step.in[1].in == Place::In::tensor && step.in[0].in != Place::In::tensor &&
           step.in[0].in != Place::In::pull;
  };
  const auto alike = [](const Place& a, const Place& b) { return a.width == b.width && a.rate == b.rate; };
  return is_of_rows(one) && is_of_rows(other) && one.op == other.op && one.write == other.write &&
         one.rate == other.rate && one.in[1].number == other.in[1].number && one.in[1].column == other.in[1].column &&
         alike(one.in[0], other.in[0]) && alike(one.out, other.out) && !overlap(one.out, other.out) &&
         !overlap(one.out, other.in[0]) && !overlap(one.in[0], other.out);
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
    made_.lists.resize(plan_.types.size());
    each_segment([&](std::size_t type, std::size_t phase, const Segment& segment) {
      const auto in = static_cast<Phase>(phase);
      std::vector<FusedPart>& parts = made_.parts[&segment] =
          parts_of(segment, in != Phase::level && in != Phase::back_level);
      for (const FusedPart& part : parts) note_locals(type, segment, part);
    });
    find_locals();
    each_segment([&](std::size_t type, std::size_t phase, const Segment& segment) {
      for (FusedPart& part : made_.parts[&segment]) {
        if (part.does == FusedPart::Does::fused) part.number = print(type, phase, segment, part.first, part.last);
        if (part.does == FusedPart::Does::rows) part.number = print_rows_of(type, phase, segment, part);
      }
    });
    return std::move(made_);
  }

 private:
  template <class Visit>
  void each_segment(Visit visit) const {
    for (std::size_t t = 0; t < plan_.types.size(); ++t) {
      for (std::size_t p = 0; p < phase_count; ++p) {
        for (const Segment& segment : plan_.types[t].phases[p]) visit(t, p, segment);
      }
    }
  }

  /// `by_rows`: kernels for rows may compute several parts.
  std::vector<FusedPart> parts_of(const Segment& segment, bool by_rows) const {
    std::vector<FusedPart> parts;
    const std::span<const Step> steps = segment.steps;
    for (std::size_t first = 0; first < steps.size(); first = parts.back().last) {
      std::size_t last = first;
      if (may_fuse_ && by_rows) {
        if (const auto of_rows = rows_parts(segment, first); !of_rows.empty()) {
          parts.push_back({FusedPart::Does::rows, first, of_rows.back().last});
          continue;
        }
      }
      while (may_fuse_ && last < steps.size() && can_print(steps[last], segment)) {
        // Moves between vertices have only fused kernels.
        const bool must = last == first && steps[first].op == nullptr && blocks_of(steps.subspan(first, 1)).width > 0;
        if (!must && !can_fuse(steps.subspan(first, last + 1 - first))) break;
        ++last;
      }
      if (last > first) {
        parts.push_back({FusedPart::Does::fused, first, last});
      } else if (may_fuse_ && first + 1 < steps.size() && multiply_alike(steps[first], steps[first + 1])) {
        parts.push_back({FusedPart::Does::products, first, first + 2});
      } else {
        parts.push_back({FusedPart::Does::step, first, first + 1});
      }
    }
    return parts;
  }

  void note_locals(std::size_t type, const Segment& segment, const FusedPart& part) {
    if (part.does == FusedPart::Does::rows) {
      for (const RowsPart& of : rows_parts(segment, part.first)) {
        const bool fused = of.does == RowsPart::Does::fused;
        note_locals(type, segment, {fused ? FusedPart::Does::fused : FusedPart::Does::step, of.first, of.last});
      }
      return;
    }
    ++part_number_;
    for (std::size_t i = part.first; i < part.last; ++i) {
      const Step& step = segment.steps[i];
      const auto note = [&](const Place& place) {
        if (place.in != Place::In::local) return;
        users_[type][place.number].parts.insert(part_number_);
        users_[type][place.number].rate = place.rate;
        // Only a fused part keeps values in variables.
        if (part.does != FusedPart::Does::fused) users_[type][place.number].parts.insert(0);
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

  std::string name_of(std::size_t phase) const {
    return identifier(plan_.program.function->name) + "_" + phase_names[phase] + "_";
  }

  std::size_t print_rows_of(std::size_t type, std::size_t phase, const Segment& segment, const FusedPart& part) {
    std::vector<RowsPart> parts = rows_parts(segment, part.first);
    for (RowsPart& of : parts) {
      if (of.does == RowsPart::Does::fused) of.number = print(type, phase, segment, of.first, of.last);
    }
    const std::string name = name_of(phase) + "rows_" + std::to_string(made_.rows.size());
    made_.rows.push_back(print_rows(name, segment, std::move(parts), made_.kernels));
    return made_.rows.size() - 1;
  }

  std::size_t print(std::size_t type, std::size_t phase, const Segment& segment, std::size_t first, std::size_t last) {
    const auto steps = std::span(segment.steps).subspan(first, last - first);
    FusedKernel kernel;
    kernel.name = name_of(phase) + std::to_string(made_.kernels.size());
    kernel.width = blocks_of(steps).width;
    Printer(made_.locals[type], made_.lists[type], kernel).print(steps);
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

bool is_product(const Step& step) {
  return step.does == Step::Does::kernel && (step.op == &op::matmul || step.op == &op::matmul_nt);
}

bool can_fuse(std::span<const Step> steps) {
  const Blocks blocks = blocks_of(steps);
  return blocks.width != 0 && blocks.count <= most_block_steps;
}

std::size_t words_of_argument(const FusedKernel& kernel) {
  return 5 + 2 * std::max<std::size_t>(kernel.places.size(), 1) + std::max<std::size_t>(kernel.lists.size(), 1);
}

FusedPlan fuse(const Plan& plan, bool may_fuse, const Grid& grid) {
  FusedPlan made = Fuser(plan, may_fuse).fuse();
  made.groups = grid.groups;
  made.levels = {print_levels(plan, made, Phase::level, grid), print_levels(plan, made, Phase::back_level, grid)};
  return made;
}

}  // namespace windrow::cuda
