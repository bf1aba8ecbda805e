#include "backend/printer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <set>

#include "windrow/ops/operators.h"

namespace windrow::cuda {
namespace {

/// Scalar operators become functions of the same name.
bool is_scalar(const Operator& op) {
  const auto fits = [](char c) {
    return c == '_' || ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9');
  };
  return !op.scalar.empty() && !op.updates && std::ranges::all_of(op.name.text(), fits);
}

std::string number_text(double value) {
  if (std::isnan(value)) return "(1e38f * 1e38f - 1e38f * 1e38f)";
  if (std::isinf(value)) return value > 0 ? "(1e38f * 1e38f)" : "(-1e38f * 1e38f)";
  char digits[64];  // not by printf, which writes a decimal comma in some locales
  const char* const end = std::to_chars(digits, std::end(digits), std::abs(value), std::chars_format::hex).ptr;
  return std::string("float(") + (std::signbit(value) ? "-0x" : "0x") +
         std::string(digits, static_cast<std::size_t>(end - digits)) + ")";
}

std::string count_text(Index count) { return std::to_string(count) + "ll"; }

}  // namespace

Index width_of(const Step& step) { return step.does == Step::Does::scatter ? step.in[0].width : step.out.width; }

/// Whether the operator is elementwise, except that its second operand is one row.
static bool takes_row(const Operator& op) { return &op == &op::add_bias || &op == &op::mul_row; }

/// The function that computes an elementwise operator.
static std::string function_of(const Operator& op) { return "op_" + std::string(op.name.text()); }

bool can_print(const Step& step, const Segment& segment) {
  const auto own_rows = [&](const Place& place) {
    return place.in == Place::In::nowhere || (place.in != Place::In::tensor && place.rate == segment.rate);
  };
  switch (step.does) {
    case Step::Does::fill:
      return own_rows(step.out);
    case Step::Does::incoming:
      return own_rows(step.out);
    case Step::Does::scatter:
      return own_rows(step.in[0]);
    case Step::Does::gather:  // of plans without slots
    case Step::Does::gather_dot:
    case Step::Does::gather_weighted_sum:
    case Step::Does::incoming_products:
      return false;
    case Step::Does::kernel:
      break;
  }
  if (step.may_lack || !step.indices.empty() || !own_rows(step.out)) return false;
  if (takes_row(*step.op)) return own_rows(step.in[0]) && step.in[1].in == Place::In::tensor;
  return is_scalar(*step.op) && std::ranges::all_of(step.in, own_rows);
}

void Printer::print(std::span<const Step> steps) {
  for (const Step& step : steps) {
    for (Index block = 0; block < width_of(step); block += kernel_.width) print(step, block);
  }
  const std::string name = kernel_.name, width = count_text(kernel_.width);
  std::string& code = kernel_.code;
  code = "struct Arguments_" + name + " {\n  long long rows, first, elements;\n  float* data;\n  const int* words;\n";
  code += "  Place place[" + std::to_string(std::max<std::size_t>(kernel_.places.size(), 1)) + "];\n";
  code += "  long long list[" + std::to_string(std::max<std::size_t>(kernel_.lists.size(), 1)) + "];\n};\n";
  code += "static __device__ inline void " + name + "_row(const Arguments_" + name +
          "& a, long long row, long long c) {\n" + code_ + "}\n";
  code += "extern \"C\" __global__ void __launch_bounds__(256) " + name + "(WINDROW_ARGUMENT(Arguments_" + name +
          ") a) {\n  for (long long i = first_of_thread(); i < a.rows * " + width +
          "; i += all_threads()) {\n    const long long row = row_of(i, " + width + ");\n    " + name +
          "_row(a, row, i - row * " + width + ");\n  }\n}\n";
  code += "#ifdef WINDROW_ON_HOST\nextern \"C\" const unsigned " + name + "_argument_bytes = sizeof(Arguments_" + name +
          ");\nextern \"C\" void " + name + "_accesses(const Arguments_" + name + "& a, void* to, Add* add) {\n";
  for (std::size_t i = 0; i < used_.size(); ++i) {
    const bool one_row = kernel_.places[i].in == Place::In::tensor;
    code += "  access(a.place[" + std::to_string(i) + "], " + (one_row ? "1" : "a.rows") + ", " +
            std::to_string(used_[i].begin) + ", " + std::to_string(used_[i].end) + ", " +
            (used_[i].writes ? "1" : "0") + ", to, add);\n";
  }
  if (!kernel_.lists.empty()) {
    code += "  add(to, a.data, 1, a.elements * 4, 0, 1);\n  add(to, a.words, 1, 4, 0, 0);\n";
  }
  code += "}\n#endif\n\n";
}

void Printer::print(const Step& step, Index block) {
  if (step.does == Step::Does::scatter) return scatter(step, block);
  std::string value = value_of(step, block);
  if (step.write == Write::add) value = load(step.out, block) + " + (" + value + ")";
  store(step.out, block, value);
}

std::string Printer::value_of(const Step& step, Index block) {
  switch (step.does) {
    case Step::Does::fill:
      return number_text(static_cast<double>(step.constant));
    case Step::Does::incoming:
      return incoming(step, block);
    default:
      break;
  }
  if (takes_row(*step.op)) {
    return load(step.in[0], block) + (step.op == &op::add_bias ? " + " : " * ") + load(step.in[1], block);
  }
  std::string call = function_of(*step.op) + "(";
  for (const Place& place : step.in) call += load(place, block) + ", ";
  return call + number_text(step.attributes.values[0]) + ", " + number_text(step.attributes.values[1]) + ")";
}

void Printer::scatter(const Step& step, Index block) {
  const std::string value = load(step.in[0], block);
  loop({RowList::Of::slots, step.state}, "a.data[list[q] + " + count_text(block) + " + c] = " + value);
}

std::string Printer::incoming(const Step& step, Index block) {
  const std::string sum = variable();
  line("LongSum " + sum + ";");
  loop({RowList::Of::gradients, step.state}, sum + ".add(a.data[list[q] + " + count_text(block) + " + c])");
  return sum + ".value()";
}

/// A statement for each element q of the row's part of a list.
void Printer::loop(const RowList& of, const std::string& statement) {
  line("{");
  line("  const int* const list = a.words + a.list[" + std::to_string(number_of(of)) + "];");
  line("  const int last = list[2 * (a.first + row) + 1];");
  line("  for (int q = list[2 * (a.first + row)]; q < last; ++q) " + statement + ";");
  line("}");
}

std::string Printer::load(const Place& place, Index column) {
  if (place.in == Place::In::nowhere) return "0.0f";
  std::string& known = known_[Block{place.in, place.number, place.column + column}];
  if (known.empty()) {
    known = variable();
    line("const float " + known + " = " + element(place, column, false) + ";");
  }
  return known;
}

void Printer::store(const Place& place, Index column, const std::string& value) {
  const std::string made = variable();
  line("const float " + made + " = " + value + ";");
  known_[Block{place.in, place.number, place.column + column}] = made;
  if (in_memory(place)) line(element(place, column, true) + " = " + made + ";");
}

bool Printer::in_memory(const Place& place) const {
  if (place.in == Place::In::nowhere) return false;
  return place.in != Place::In::local || locals_[place.number].has_value();
}

std::string Printer::element(const Place& place, Index column, bool writes) {
  const std::string at = "a.place[" + std::to_string(number_of(place, place.column + column, writes)) + "]";
  const std::string row = place.in == Place::In::tensor ? "" : "row * " + at + ".stride + ";
  return at + ".at[" + row + count_text(place.column + column) + " + c]";
}

std::size_t Printer::number_of(const Place& place, Index column, bool writes) {
  const auto found = std::ranges::find_if(
      kernel_.places, [&](const Place& other) { return other.in == place.in && other.number == place.number; });
  const auto number = static_cast<std::size_t>(found - kernel_.places.begin());
  const Index end = column + kernel_.width;
  if (found == kernel_.places.end()) {
    kernel_.places.push_back(place);
    kernel_.places.back().column = 0;  // the code adds the column
    used_.push_back({column, end, writes});
  }
  Used& used = used_[number];
  used = {std::min(used.begin, column), std::max(used.end, end), used.writes || writes};
  return number;
}

/// The position of a value in the list; appends the value if it is missing.
template <class Value>
static std::size_t position_in(std::vector<Value>& values, const Value& value) {
  const auto found = std::ranges::find(values, value);
  if (found != values.end()) return static_cast<std::size_t>(found - values.begin());
  values.push_back(value);
  return values.size() - 1;
}

std::size_t Printer::number_of(const RowList& list) { return position_in(kernel_.lists, position_in(lists_, list)); }

/// The functions of the elementwise operators that the plan applies.
static std::string functions_of(const Plan& plan) {
  std::string text;
  std::set<std::string> seen;
  for (const TypePlan& type : plan.types) {
    for (const auto& segments : type.phases) {
      for (const Segment& segment : segments) {
        for (const Step& step : segment.steps) {
          if (step.does != Step::Does::kernel || !is_scalar(*step.op)) continue;
          const std::string name = function_of(*step.op);
          if (!seen.insert(name).second) continue;
          text += "static __device__ inline float " + name + "(";
          for (std::size_t i = 0; i < step.op->inputs; ++i) text += std::string("float ") + "xyz"[i] + ", ";
          text += "float a, float b) { (void)a; (void)b; return " + std::string(step.op->scalar) + "; }\n";
        }
      }
    }
  }
  return text;
}

std::string source_of(const FusedPlan& fused, const Plan& plan) {
  if (fused.kernels.empty() && fused.rows.empty()) return "";
  std::string text = R"(// Kernels of a vertex function, printed by Windrow.
struct Place { float* at; long long stride; };
#ifdef WINDROW_ON_HOST
#define WINDROW_ARGUMENT(type) const type&
typedef void Add(void* to, const void* start, long long rows, long long width, long long stride, int writes);
static void access(const Place& place, long long rows, long long begin, long long end, int writes, void* to, Add* add) {
  add(to, place.at + begin, rows, (end - begin) * 4, place.stride * 4, writes);
}
#else
#define WINDROW_ARGUMENT(type) const type
#endif
static __device__ inline long long first_of_thread() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }
static __device__ inline long long all_threads() { return (long long)gridDim.x * blockDim.x; }
// A division of 64 bits takes many times as long.
static __device__ inline long long row_of(long long i, long long width) {
  return i >> 32 == 0 ? (unsigned)i / (unsigned)width : i / width;
}
// Sums of blocks, in float, are added in double, so the error does not grow with the number of addends.
struct LongSum {
  double sum = 0;
  float block = 0;
  int added = 0;
  __device__ inline void add(float value) {
    block += value;
    if (++added < 64) return;
    sum += block;
    block = 0;
    added = 0;
  }
  __device__ inline float value() const { return (float)(sum + block); }
};

)";
  text += functions_of(plan) + "\n";
  for (const FusedKernel& kernel : fused.kernels) text += kernel.code;
  const bool any_levels = std::ranges::any_of(fused.levels, [](const auto& kernel) { return kernel.has_value(); });
  if (any_levels || !fused.rows.empty()) text += team_code;
  if (any_levels && fused.groups) text += tile_code;
  for (const RowsKernel& kernel : fused.rows) text += kernel.code;
  for (const auto& kernel : fused.levels) text += kernel ? kernel->code : "";
  return text;
}

}  // namespace windrow::cuda
