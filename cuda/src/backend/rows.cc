#include "backend/rows.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "backend/fusion.h"
#include "backend/printer.h"
#include "windrow/ops/operators.h"

namespace windrow::cuda {
namespace {

/// The most columns, or terms, of a product, and the most columns of every other step.
constexpr Index narrow = 32;
/// The most elements of a team's shared memory: every team may have 48 KiB.
constexpr Index most_elements = 12 << 10;
constexpr Index columns_at_once = 4;
/// Elements for the sums of a product, as multiply() uses them.
Index elements_of_sums(Index columns) { return std::min(columns, columns_at_once) * 4 * 257; }

/// A product's matrix, which lies in shared memory as `few` rows of `many` elements.
struct Weights {
  std::size_t tensor;
  Index column, few, many;
  bool by_rows;  ///< whether the tensor has these rows; otherwise they are its columns
  auto operator<=>(const Weights&) const = default;
};

/// The product's result has few columns; otherwise its sums have few terms.
bool has_few_columns(const Step& step) { return step.out.width <= narrow; }

Weights weights_of(const Step& step) {
  const bool is_transposed = step.op == &op::matmul_nt, few_columns = has_few_columns(step);
  const Index terms = step.in[0].width, columns = step.out.width;
  return {step.in[1].number, step.in[1].column, few_columns ? columns : terms, few_columns ? terms : columns,
          is_transposed == few_columns};
}

std::optional<RowsPart::Does> part_of(const Step& step, const Segment& segment) {
  const auto own = [&](const Place& place) {
    return place.in != Place::In::tensor && place.in != Place::In::nowhere && place.rate == segment.rate;
  };
  if (can_print(step, segment)) {
    return width_of(step) <= narrow ? std::optional(RowsPart::Does::fused) : std::nullopt;
  }
  if (step.does != Step::Does::kernel || step.may_lack || step.rate != segment.rate || !own(step.out) ||
      !own(step.in[0])) {
    return std::nullopt;
  }
  if (is_product(step) && step.indices.empty() && step.in[1].in == Place::In::tensor) {
    return std::min(step.in[0].width, step.out.width) <= narrow ? std::optional(RowsPart::Does::product) : std::nullopt;
  }
  if (step.in[0].width > narrow || step.indices.size() != 1) return std::nullopt;
  if (step.op == &op::softmax_cross_entropy) return RowsPart::Does::loss;
  const bool is_gradient = step.op == &op::softmax_cross_entropy_gradient && own(step.in[1]);
  return is_gradient ? std::optional(RowsPart::Does::loss_gradient) : std::nullopt;
}

class RowsPrinter {
 public:
  RowsPrinter(const Segment& segment, const std::vector<FusedKernel>& fused) : segment_(segment), fused_(fused) {}

  void print(RowsKernel& kernel) {
    std::string fields, accesses;
    for (std::size_t i = 0; i < kernel.parts.size(); ++i) add(kernel.parts[i], std::to_string(i), fields, accesses);
    // An array has at least one element.
    const std::string floats = std::to_string(std::max<Index>(1, floats_ + elements_of_sums(columns_)));
    const std::string& name = kernel.name;
    kernel.code = "struct Arguments_" + name + " {\n  long long rows;\n" + fields +
                  "};\nextern \"C\" __global__ void __launch_bounds__(256, 2) " + name +
                  "(WINDROW_ARGUMENT(Arguments_" + name + ") a) {\n  WINDROW_OF_TEAM(" + floats +
                  ");\n  float* const sums = shared + " + std::to_string(floats_) + ";\n" + loads_ +
                  "  for (long long begin = blockIdx.x * " + team_rows() + "; begin < a.rows; begin += gridDim.x * " +
                  team_rows() + ") {\n    const long long left = a.rows - begin, rows = left < " + team_rows() +
                  " ? left : " + team_rows() + ";\n" + body_ +
                  "  }\n}\n#ifdef WINDROW_ON_HOST\nextern \"C\" const unsigned " + name +
                  "_argument_bytes = sizeof(Arguments_" + name + ");\nextern \"C\" void " + name +
                  "_accesses(const Arguments_" + name + "& a, void* to, Add* add) {\n" + accesses + "}\n#endif\n\n";
  }

 private:
  static std::string team_rows() { return std::to_string(RowsKernel::rows_of_team) + "ll"; }

  void add(const RowsPart& part, const std::string& number, std::string& fields, std::string& accesses) {
    const std::string argument = "a.part" + number;
    const Step& step = segment_.steps[part.first];
    const auto accesses_rows = [&](const char* field, const Place& place, bool writes) {
      accesses +=
          "  access(" + argument + "." + field + ", a.rows, 0, " + std::to_string(place.width) + ", 0, to, add);\n";
      if (writes) accesses.replace(accesses.rfind(", 0, to"), 3, ", 1");
    };
    switch (part.does) {
      case RowsPart::Does::fused: {
        const FusedKernel& kernel = fused_[part.number];
        fields += "  Arguments_" + kernel.name + " part" + number + ";\n";
        accesses += "  " + kernel.name + "_accesses(" + argument + ", to, add);\n";
        body_ += "    each_element(rows, Owned<" + two(kernel.width, kernel.width) +
                 ">{0}, [&](long long r, int c) { " + kernel.name + "_row(" + argument + ", begin + r, c); });\n";
        return;
      }
      case RowsPart::Does::product: {
        fields += "  Product part" + number + ";\n";
        accesses_rows("x", step.in[0], false);
        accesses_rows("out", step.out, true);
        const Weights of = weights_of(step);
        accesses += "  access(" + argument + ".y, " + std::to_string(of.by_rows ? of.few : of.many) + ", 0, " +
                    std::to_string(of.by_rows ? of.many : of.few) + ", 0, to, add);\n";
        add_product(step, of, argument);
        return;
      }
      case RowsPart::Does::loss:
      case RowsPart::Does::loss_gradient:
        const bool gradient = part.does == RowsPart::Does::loss_gradient;
        fields += "  CrossEntropy part" + number + ";\n";
        accesses_rows("x", step.in[0], false);
        if (gradient) accesses_rows("g", step.in[1], false);
        accesses_rows("out", step.out, true);
        accesses += "  add(to, " + argument + ".labels, a.rows, 4, " + argument + ".stride * 4, 0);\n";
        body_ += std::string("    cross_entropy") + (gradient ? "_gradient<" : "<") + std::to_string(step.in[0].width) +
                 ">(" + argument + ", begin, rows, " + flag(step) + ");\n";
    }
  }

  static const char* flag(const Step& step) { return step.write == Write::add ? "true" : "false"; }
  static std::string two(Index one, Index other) { return std::to_string(one) + ", " + std::to_string(other); }

  void add_product(const Step& step, const Weights& of, const std::string& argument) {
    const std::string y = "shared + " + std::to_string(place_of(of, argument));
    if (!has_few_columns(step)) {
      body_ +=
          "    spread<" + two(of.few, of.many) + ">(" + argument + ", " + y + ", begin, rows, " + flag(step) + ");\n";
      return;
    }
    columns_ = std::max(columns_, of.few);
    for (Index from = 0; from < of.few; from += columns_at_once) {
      body_ += "    multiply<" + two(std::min(columns_at_once, of.few - from), of.many) + ">(" + argument + ", " + y +
               ", sums, begin, rows, " + std::to_string(from) + ", Owned<" + two(of.few, of.few) + ">{0}, " +
               flag(step) + ");\n";
    }
  }

  /// Where the matrix begins in shared memory: at a multiple of four. `few` rows of `many` elements lie there.
  Index place_of(const Weights& of, const std::string& argument) {
    const auto [found, is_new] = weights_.try_emplace(of, floats_);
    if (!is_new) return found->second;
    loads_ += std::string("  load_") + (of.by_rows ? "rows" : "columns") + "(shared + " + std::to_string(floats_) +
              ", " + argument + ".y, " + two(of.many, of.few) + ", Owned<" + two(of.few, of.few) + ">{0});\n";
    floats_ += (of.few * of.many + 3) / 4 * 4;
    return found->second;
  }

  const Segment& segment_;
  const std::vector<FusedKernel>& fused_;
  std::string loads_, body_;
  std::map<Weights, Index> weights_;
  Index floats_ = 0;   // of shared memory, with matrices
  Index columns_ = 0;  // the most of a product that sums many terms
};

}  // namespace

std::vector<RowsPart> rows_parts(const Segment& segment, std::size_t first) {
  const std::span<const Step> steps = segment.steps;
  std::vector<RowsPart> parts;
  std::set<Weights> matrices;
  Index weights = 0, columns = 0;
  bool all_fused = true;
  for (std::size_t i = first; i < steps.size(); ++i) {
    const std::optional<RowsPart::Does> does = part_of(steps[i], segment);
    if (!does) break;
    if (does == RowsPart::Does::product) {
      const Weights of = weights_of(steps[i]);
      if (matrices.insert(of).second) weights += of.few * of.many + 3;
      if (has_few_columns(steps[i])) columns = std::max(columns, of.few);
      if (weights + elements_of_sums(columns) > most_elements) break;
    }
    const bool is_fused = does == RowsPart::Does::fused;
    all_fused = all_fused && is_fused;
    if (is_fused && !parts.empty() && parts.back().does == *does &&
        can_fuse(steps.subspan(parts.back().first, i + 1 - parts.back().first))) {
      parts.back().last = i + 1;
    } else {
      parts.push_back({*does, i, i + 1});
    }
  }
  if (parts.size() == 1 || all_fused) parts.clear();
  return parts;
}

RowsKernel print_rows(const std::string& name, const Segment& segment, std::vector<RowsPart> parts,
                      const std::vector<FusedKernel>& fused) {
  RowsKernel made{.name = name, .code = {}, .parts = std::move(parts)};
  RowsPrinter(segment, fused).print(made);
  return made;
}

}  // namespace windrow::cuda
