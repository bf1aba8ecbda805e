#include "backend/levels.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "backend/fusion.h"
#include "windrow/ops/operators.h"

namespace windrow::cuda {
namespace {

/// The most columns for which a team sums products at a time: more need too many registers.
constexpr Index most_columns = 8;
constexpr Index threads = 256, rows_of_thread = 4;
/// The same for kernels of groups, whose teams have 8 warps and compute 16 rows at a time.
constexpr Index most_columns_of_tile = 64, most_terms_of_tile = 1024, warps = 8, rows_of_tile = 16;
/// More parts take long to compile.
constexpr std::size_t most_parts = 64;

bool is_product_of_rows(const Step& step) {
  return is_product(step) && step.in[0].width > 0 && !step.may_lack && step.indices.empty() &&
         step.in[1].in == Place::In::tensor && step.in[0].in != Place::In::tensor &&
         step.in[0].rate == Rate::vertices && step.out.rate == Rate::vertices && step.out.in != Place::In::nowhere &&
         step.in[0].in != Place::In::nowhere;
}

class LevelsPrinter {
 public:
  LevelsPrinter(const Plan& plan, const FusedPlan& fused, Phase phase, const Grid& grid)
      : plan_(plan), fused_(fused), phase_(static_cast<std::size_t>(phase)), grid_(grid) {}

  std::optional<LevelsKernel> print() {
    if (grid_.teams == 0 || !find_parts() || !all_aligned()) return std::nullopt;
    if (made_.parts.size() > most_parts || argument_bytes() > grid_.argument_bytes) return std::nullopt;
    made_.name = fused_.kernels[first_fused()].name + (grid_.groups ? "_groups" : "_levels");
    if (!grid_.groups) {
      print_code(grid_.teams);
    } else {
      for (Index teams = 1; teams <= grid_.teams; teams *= 2) {
        print_code(teams);
        if (made_.shared_bytes <= grid_.shared_bytes) break;
      }
      made_.most_groups = grid_.teams / made_.teams;
    }
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
    std::size_t words = 7;
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
    bool same(const Columns& other) const { return begin == other.begin && end == other.end; }
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
      case Place::In::pull:
        return of(plan.regions.size() + plan.locals.size() + place.number);
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
    const std::string from = "shared + " + std::to_string(floats_) + ", a.part" + std::to_string(part) + ".y";
    const std::string by = transposed ? "rows" : "columns";
    if (!grid_.groups) {
      loads_ += "  load_" + by + "(" + from + ", " + two(rows, columns) + ", first);\n";
      floats_ += (rows * columns + 3) / 4 * 4;
    } else {
      loads_ += "  load_weights<" + precision() + ", " + two(rows, columns) + ", " + (transposed ? "true" : "false") +
                ">(" + from + ", first);\n";
      floats_ += rounds() ? (columns + 7) / 8 * 8 * pitch_of(rows, 0) : columns * pitch_of(rows, 4);
    }
    return found->second;
  }

  bool rounds() const { return grid_.precision != Precision::float32; }
  std::string precision() const {
    return grid_.precision == Precision::float32 ? "float32" : grid_.precision == Precision::tf32 ? "tf32" : "bf16";
  }
  static std::string two(Index one, Index other) { return std::to_string(one) + ", " + std::to_string(other); }
  /// Floats from a row to the next one in shared memory: a multiple of eight, and some more that put the rows that a
  /// warp reads at a time into different banks.
  static Index pitch_of(Index terms, Index more) { return (terms + 7) / 8 * 8 + more; }

  void print_code(Index teams) {
    columns_ = (width_ + teams - 1) / teams;
    made_.teams = static_cast<int>((width_ + columns_ - 1) / columns_);
    floats_ = most_ = tile_ = 0;
    loads_.clear();
    weights_.clear();
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
    const Index sums = grid_.groups ? std::min(most_columns_of_tile, most_) * rows_of_tile * warps
                                    : std::min(most_columns, most_) * rows_of_thread * (threads + 1);
    made_.shared_bytes = static_cast<std::size_t>(floats_ + tile_ + sums) * sizeof(float);
    const std::string words = std::to_string(words_of_batch);
    std::string& code = made_.code;
    code = "struct Arguments_" + made_.name +
           " {\n  long long elements;\n  float* data;\n  const int* words;\n  int* arrived;\n  const int* groups;\n"
           "  const int* batches;\n  long long count;\n";
    for (std::size_t i = 0; i < made_.parts.size(); ++i) {
      const LevelsKernel::Part& part = made_.parts[i];
      code += part.product != nullptr ? "  Product" : "  Arguments_" + fused_.kernels[part.number].name;
      code += " part" + std::to_string(i) + ";\n";
    }
    code += "};\nextern \"C\" __global__ void __launch_bounds__(256, 1) " + made_.name +
            "(WINDROW_ARGUMENT(Arguments_" + made_.name + ") a) {\n  WINDROW_SHARED(" +
            std::to_string(floats_ + tile_ + sums) + ");\n  float* const tile = shared + " + std::to_string(floats_) +
            ";\n  float* const sums = tile + " + std::to_string(tile_) +
            ";\n  constexpr int width = " + std::to_string(width_) + ", owned = " + std::to_string(columns_) +
            ", teams = " + std::to_string(made_.teams) +
            ";\n  const int group = blockIdx.x / teams;\n"
            "  const Owned<width, owned> first = {(int)blockIdx.x % teams * owned};\n"
            "  int* const arrived = a.arrived + 2 * group;\n  int expected = 0;\n  (void)tile;\n" +
            loads_ + "  const int* const last = a.batches + " + words + " * a.groups[2 * group + 1];\n" +
            "  for (const int *batch = a.batches + " + words +
            " * a.groups[2 * group], *next = batch; batch < last; batch = next) {\n"
            "    next = batch + " +
            words + " * batch[3];\n";
    for (std::size_t i = 0; i < stages.size(); ++i) {
      if (i > 0 && made_.teams > 1) code += "    wait_for_teams(arrived, expected, teams);\n";
      if (stages[i].empty()) continue;
      code += "    for (const int* b = batch; b < next; b += " + words +
              ") {\n"
              "      const long long begin = b[1], rows = b[2];\n      switch (b[0]) {\n" +
              stages[i] + "      }\n    }\n";
    }
    code += std::string("  }\n") + (made_.teams > 1 ? "  leave(arrived, teams);\n" : "") + "}\n";
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
    std::vector<std::vector<std::size_t>> stages(1);  // the parts of each
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
      stages.back().push_back(i);
      for (const Step& step : steps_[i]) {
        if (step.does == Step::Does::scatter) continue;  // it writes rows of other batches
        if (const auto columns = columns_of(part.type, step.out)) written.push_back(*columns);
      }
      if (part.product == nullptr) continue;
      if (const auto columns = columns_of(part.type, part.product->in[0])) read.push_back(*columns);
    }
    std::vector<std::string> texts;
    for (const auto& parts : stages) texts.push_back(parts.empty() ? "" : stage_text(parts));
    return texts;
  }

  std::string stage_text(const std::vector<std::size_t>& parts) {
    staged_.reset();
    std::string text;
    for (std::size_t k = 0; k < parts.size(); ++k) {
      const std::size_t i = parts[k];
      if (made_.parts[i].product == nullptr) {
        text += fused_text(i);
      } else {
        text += grid_.groups ? tile_text(std::span(parts).subspan(k)) : product_text(i);
      }
    }
    if (!grid_.groups) return text;
    const std::string rows = std::to_string(rows_of_tile);
    return "          for (long long all = b[2], begin = b[1]; all > 0; all -= " + rows + ", begin += " + rows +
           ") {\n          const long long rows = all < " + rows + " ? all : " + rows + ";\n" + text + "          }\n";
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
      text += "          multiply<" + two(std::min(most_columns, columns - from), rows) + ">(a.part" +
              std::to_string(i) + ", shared + " + std::to_string(at) + ", sums, begin, rows, " + std::to_string(from) +
              ", first, " + (step.write == Write::add ? "true" : "false") + ");\n";
    }
    return text;
  }

  /// The product of rows that lie in shared memory, by at most so many terms at a time.
  std::string tile_text(std::span<const std::size_t> parts) {
    const LevelsKernel::Part& part = made_.parts[parts.front()];
    const Columns x = *columns_of(part.type, part.product->in[0]);
    const Index at = weights(parts.front());
    std::string text;
    for (Index begin = x.begin; begin < x.end; begin += most_terms_of_tile) {
      const Columns terms{x.matrix, begin, std::min(begin + most_terms_of_tile, x.end)};
      text += staging_text(parts, terms);
      text += terms_text(parts.front(), at, terms);
    }
    return text;
  }

  /// Copies rows, unless they are there, together with those of further products whose rows are columns of the same
  /// matrix.
  std::string staging_text(std::span<const std::size_t> parts, const Columns& wanted) {
    const LevelsKernel::Part& part = made_.parts[parts.front()];
    const auto divides = [](const Columns& of) { return of.begin % 8 == 0 && of.end % 8 == 0; };
    if (staged_ && staged_->matrix == wanted.matrix &&
        (staged_->same(wanted) ||
         (divides(wanted) && divides(*staged_) && staged_->begin <= wanted.begin && wanted.end <= staged_->end))) {
      return "";
    }
    staged_ = wanted;
    for (const std::size_t other : parts.subspan(1)) {
      if (made_.parts[other].product == nullptr) break;
      const Columns more = *columns_of(part.type, made_.parts[other].product->in[0]);
      const Columns both{wanted.matrix, std::min(staged_->begin, more.begin), std::max(staged_->end, more.end)};
      if (more.matrix != wanted.matrix || !divides(more) || !divides(*staged_) ||
          both.end - both.begin > most_terms_of_tile) {
        break;
      }
      staged_ = both;
    }
    const Index terms = staged_->end - staged_->begin, shift = staged_->begin - part.product->in[0].column;
    tile_ = std::max(tile_, rows_of_tile * pitch_of(terms, 4));
    return "          stage_rows<" + precision() + ", " + std::to_string(terms) + ">(tile, a.part" +
           std::to_string(parts.front()) + ".x, " + std::to_string(shift) + ", begin, rows);\n";
  }

  /// The sums over some terms, whose rows lie in shared memory.
  std::string terms_text(std::size_t i, Index at, const Columns& terms) {
    const Step& step = *made_.parts[i].product;
    const Index first = terms.begin - step.in[0].column, all = pitch_of(step.in[0].width, 0);
    const Index columns = step.out.width / width_ * columns_, pitch = pitch_of(staged_->end - staged_->begin, 4);
    const Index weight = at + (rounds() ? first * 8 : first);
    most_ = std::max(most_, columns);
    std::string text;
    for (Index from = 0; from < columns; from += most_columns_of_tile) {
      text += std::string("          multiply_") + (rounds() ? "fragments<" : "tile<") +
              two(std::min(most_columns_of_tile, columns - from), terms.end - terms.begin) + ", " + two(all, pitch) +
              ">(tile + " + std::to_string(terms.begin - staged_->begin) + ", shared + " + std::to_string(weight) +
              ", sums, a.part" + std::to_string(i) + ", begin, rows, " + std::to_string(from) + ", first, " +
              (step.write == Write::add || first > 0 ? "true" : "false") + ");\n";
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
  Index tile_ = 0;                            // floats of shared memory, with rows
  std::optional<Columns> staged_;             // those rows, in a stage
  std::string loads_;
  std::map<std::tuple<std::size_t, Index, Index, bool>, Index> weights_;  // by tensor, first column, width, transposed
};

}  // namespace

std::optional<LevelsKernel> print_levels(const Plan& plan, const FusedPlan& fused, Phase phase, const Grid& grid) {
  return LevelsPrinter(plan, fused, phase, grid).print();
}

}  // namespace windrow::cuda
