#include "backend/levels.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "backend/fusion.h"
#include "windrow/ops/operators.h"

namespace windrow::cuda {
namespace {

/// The most columns for which a team sums products at a time: more need too many registers.
constexpr Index most_columns = 8;
constexpr Index threads = 256, rows_of_thread = 4;
/// More parts take long to compile.
constexpr std::size_t most_parts = 64;

bool is_product_of_rows(const Step& step) {
  return is_product(step) && !step.may_lack && step.indices.empty() && step.in[1].in == Place::In::tensor &&
         step.in[0].in != Place::In::tensor && step.in[0].rate == Rate::vertices && step.out.rate == Rate::vertices &&
         step.out.in != Place::In::nowhere && step.in[0].in != Place::In::nowhere;
}

class LevelsPrinter {
 public:
  LevelsPrinter(const Plan& plan, const FusedPlan& fused, Phase phase, const Grid& grid)
      : plan_(plan), fused_(fused), phase_(static_cast<std::size_t>(phase)), grid_(grid) {}

  std::optional<LevelsKernel> print() {
    if (grid_.teams == 0 || !find_parts() || !all_aligned()) return std::nullopt;
    if (made_.parts.size() > most_parts || argument_bytes() > grid_.argument_bytes) return std::nullopt;
    columns_ = (width_ + grid_.teams - 1) / grid_.teams;
    made_.teams = static_cast<int>((width_ + columns_ - 1) / columns_);
    made_.name = fused_.kernels[first_fused()].name + "_levels";
    print_code();
    if (made_.shared_bytes > grid_.shared_bytes) return std::nullopt;
    return std::move(made_);
  }

 private:
  const std::vector<Segment>& segments(std::size_t type) const { return plan_.types[type].phases[phase_]; }

  /// Returns whether the levels contain what such a kernel computes, and nothing else.
  bool find_parts() {
    for (std::size_t t = 0; t < plan_.types.size(); ++t) {
      for (const Segment& segment : segments(t)) {
        if (segment.rate != Rate::vertices || plan_.types[t].per_edge > 0) return false;
        for (const FusedPart& part : fused_.parts.at(&segment)) {
          if (part.does == FusedPart::Does::fused) {
            const Index width = fused_.kernels[part.number].width;
            if (width_ != 0 && width_ != width) return false;
            width_ = width;
            made_.parts.push_back({t, nullptr, part.number});
            steps_.emplace_back(std::span(segment.steps).subspan(part.first, part.last - part.first));
            continue;
          }
          for (std::size_t i = part.first; i < part.last; ++i) {
            if (!is_product_of_rows(segment.steps[i])) return false;
            made_.parts.push_back({t, &segment.steps[i]});
            steps_.emplace_back(std::span(segment.steps).subspan(i, 1));
          }
        }
      }
    }
    return width_ != 0;
  }

  std::size_t argument_bytes() const {
    std::size_t words = 6;
    for (const LevelsKernel::Part& part : made_.parts) {
      words += part.product != nullptr ? 6 : words_of_argument(fused_.kernels[part.number]);
    }
    return words * sizeof(std::uint64_t);
  }

  std::size_t first_fused() const {
    return std::ranges::find(made_.parts, nullptr, &LevelsKernel::Part::product)->number;
  }

  /// Whether column c of each result, and of each slot, belongs to the team of column c modulo the width.
  bool all_aligned() const {
    const auto fits = [&](Index column) { return column < 0 || column % width_ == 0; };
    for (const LevelsKernel::Part& part : made_.parts) {
      if (part.product == nullptr) continue;
      if (!fits(part.product->out.column) || !fits(part.product->out.width)) return false;
    }
    return std::ranges::all_of(plan_.types, [&](const TypePlan& type) {
      const auto fit = [&](const ChildSlots& slots) { return std::ranges::all_of(slots.column, fits); };
      return std::ranges::all_of(type.states, fit) && std::ranges::all_of(type.gradients, fit);
    });
  }

  /// Identifies columns of a type's matrix, however the place refers to them.
  struct Columns {
    std::size_t matrix;
    Index begin, end;
    bool overlaps(const Columns& other) const {
      return matrix == other.matrix && begin < other.end && other.begin < end;
    }
  };
  std::optional<Columns> columns_of(std::size_t type, const Place& place) const {
    const TypePlan& plan = plan_.types[type];
    const auto of = [&](std::size_t matrix) { return Columns{matrix, place.column, place.column + place.width}; };
    switch (place.in) {
      case Place::In::arena:
        return of(place.number);
      case Place::In::state:
        return of(plan.states[place.number].region);
      case Place::In::state_gradient:
        return of(plan.gradients[place.number].region);
      case Place::In::local:
        return of(plan.regions.size() + place.number);
      default:
        return std::nullopt;
    }
  }

  static bool overlap(const std::vector<Columns>& some, const std::optional<Columns>& one) {
    return one && std::ranges::any_of(some, [&](const Columns& other) { return other.overlaps(*one); });
  }

  /// Where a team's columns of a product's matrix begin in shared memory: at a multiple of four.
  Index weights(std::size_t part) {
    const Step& step = *made_.parts[part].product;
    const bool transposed = step.op == &op::matmul_nt;
    const auto [found, is_new] =
        weights_.try_emplace({step.in[1].number, step.in[1].column, step.out.width, transposed}, floats_);
    if (!is_new) return found->second;
    const Index rows = step.in[0].width, columns = step.out.width / width_ * columns_;
    loads_ += std::string("  load_") + (transposed ? "rows" : "columns") + "(shared + " + std::to_string(floats_) +
              ", a.part" + std::to_string(part) + ".y, " + std::to_string(rows) + ", " + std::to_string(columns) +
              ", first);\n";
    floats_ += (rows * columns + 3) / 4 * 4;
    return found->second;
  }

  void print_code() {
    std::vector<std::string> stages;  // the cases of each
    for (std::size_t first = 0; first < made_.parts.size();) {
      const std::size_t type = made_.parts[first].type;
      std::size_t last = first;
      while (last < made_.parts.size() && made_.parts[last].type == type) ++last;
      const std::vector<std::string> of_type = stages_of(first, last);
      stages.resize(std::max(stages.size(), of_type.size()));
      for (std::size_t i = 0; i < of_type.size(); ++i) {
        if (of_type[i].empty()) continue;
        stages[i] += "        case " + std::to_string(type) + ":\n" + of_type[i] + "          break;\n";
      }
      first = last;
    }
    made_.barriers = stages.size() - 1;
    const Index sums = std::min(most_columns, most_) * rows_of_thread * (threads + 1);
    made_.shared_bytes = static_cast<std::size_t>(floats_ + sums) * sizeof(float);
    const std::string words = std::to_string(words_of_batch);
    std::string& code = made_.code;
    code = "struct Arguments_" + made_.name +
           " {\n  long long elements;\n  float* data;\n  const int* words;\n  int* arrived;\n  const int* batches;\n"
           "  long long count;\n";
    for (std::size_t i = 0; i < made_.parts.size(); ++i) {
      const LevelsKernel::Part& part = made_.parts[i];
      code += part.product != nullptr ? "  Product" : "  Arguments_" + fused_.kernels[part.number].name;
      code += " part" + std::to_string(i) + ";\n";
    }
    code += "};\nextern \"C\" __global__ void __launch_bounds__(256, 1) " + made_.name +
            "(WINDROW_ARGUMENT(Arguments_" + made_.name + ") a) {\n  WINDROW_SHARED(" + std::to_string(floats_ + sums) +
            ");\n  float* const sums = shared + " + std::to_string(floats_) +
            ";\n  constexpr int width = " + std::to_string(width_) + ", owned = " + std::to_string(columns_) +
            ";\n  const Owned<width, owned> first = {(int)blockIdx.x * owned};\n  int expected = 0;\n" + loads_ +
            "  for (const int *batch = a.batches, *next = batch; batch < a.batches + " + words +
            " * a.count; batch = next) {\n"
            "    next = batch + " +
            words + " * batch[3];\n";
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (i > 0) code += "    wait_for_teams(a.arrived, expected);\n";
      if (stages[i].empty()) continue;
      code += "    for (const int* b = batch; b < next; b += " + words +
              ") {\n"
              "      const long long begin = b[1], rows = b[2];\n      switch (b[0]) {\n" +
              stages[i] + "      }\n    }\n";
    }
    code += "  }\n  leave(a.arrived);\n}\n";
    code += "#ifdef WINDROW_ON_HOST\nextern \"C\" const unsigned " + made_.name +
            "_argument_bytes = sizeof(Arguments_" + made_.name + ");\nextern \"C\" void " + made_.name +
            "_accesses(const Arguments_" + made_.name +
            "& a, void* to, Add* add) {\n  add(to, a.data, 1, a.elements * 4, 0, 1);\n"
            "  add(to, a.batches, 1, 4 * " +
            words + " * a.count, 0, 0);\n  add(to, a.arrived, 1, 8, 0, 1);\n";
    for (std::size_t i = 0; i < made_.parts.size(); ++i) {
      const LevelsKernel::Part& part = made_.parts[i];
      if (part.product == nullptr) {
        code += "  " + fused_.kernels[part.number].name + "_accesses(a.part" + std::to_string(i) + ", to, add);\n";
      } else {
        Index rows = part.product->in[0].width, width = part.product->out.width;
        if (part.product->op == &op::matmul_nt) std::swap(rows, width);
        code += "  access(a.part" + std::to_string(i) + ".y, " + std::to_string(rows) + ", 0, " +
                std::to_string(width) + ", 0, to, add);\n";
      }
    }
    code += "}\n#endif\n\n";
  }

  /// The work for a batch of a type, divided where teams wait for each other. Before the first part, other teams may
  /// have written anything.
  std::vector<std::string> stages_of(std::size_t first, std::size_t last) {
    std::vector<std::string> stages(1);
    bool anything = true;
    std::vector<Columns> written, read;  // since the last barrier; read: by products
    for (std::size_t i = first; i < last; ++i) {
      const LevelsKernel::Part& part = made_.parts[i];
      bool waits = false;
      if (part.product != nullptr) {
        waits = anything || overlap(written, columns_of(part.type, part.product->in[0]));
      }
      for (const Step& step : steps_[i]) {
        waits = waits || (step.does != Step::Does::scatter && overlap(read, columns_of(part.type, step.out)));
      }
      if (waits) {
        stages.emplace_back();
        anything = false;
        written.clear();
        read.clear();
      }
      stages.back() += part.product != nullptr ? product_text(i) : fused_text(i);
      for (const Step& step : steps_[i]) {
        if (step.does == Step::Does::scatter) continue;  // it writes rows of other batches
        if (const auto columns = columns_of(part.type, step.out)) written.push_back(*columns);
      }
      if (part.product == nullptr) continue;
      if (const auto columns = columns_of(part.type, part.product->in[0])) read.push_back(*columns);
    }
    return stages;
  }

  std::string fused_text(std::size_t i) const {
    return "          each_element(rows, first, [&](long long r, int c) { " +
           fused_.kernels[made_.parts[i].number].name + "_row(a.part" + std::to_string(i) + ", begin + r, c); });\n";
  }

  std::string product_text(std::size_t i) {
    const Step& step = *made_.parts[i].product;
    const Index at = weights(i), rows = step.in[0].width, columns = step.out.width / width_ * columns_;
    most_ = std::max(most_, columns);
    std::string text;
    for (Index from = 0; from < columns; from += most_columns) {
      text += "          multiply<" + std::to_string(std::min(most_columns, columns - from)) + ", " +
              std::to_string(rows) + ">(a.part" + std::to_string(i) + ", shared + " + std::to_string(at) +
              ", sums, begin, rows, " + std::to_string(from) + ", first, " +
              (step.write == Write::add ? "true" : "false") + ");\n";
    }
    return text;
  }

  const Plan& plan_;
  const FusedPlan& fused_;
  const std::size_t phase_;
  const Grid grid_;
  LevelsKernel made_;
  std::vector<std::span<const Step>> steps_;  // by part
  Index width_ = 0, columns_ = 0;             // columns of a block, and how many of them a team owns
  Index floats_ = 0;                          // of shared memory, with matrices
  Index most_ = 0;                            // the most columns of a product that a team owns
  std::string loads_;
  std::map<std::tuple<std::size_t, Index, Index, bool>, Index> weights_;  // by tensor, first column, width, transposed
};

}  // namespace

std::optional<LevelsKernel> print_levels(const Plan& plan, const FusedPlan& fused, Phase phase, const Grid& grid) {
  return LevelsPrinter(plan, fused, phase, grid).print();
}

}  // namespace windrow::cuda
