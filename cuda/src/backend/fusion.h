// Fused kernels: segments of a plan as CUDA C++. Pure: knows no device.
//
// A thread computes one column of a row, for all steps of the kernel. The steps' matrices may be wider than that: they
// are divided into blocks of columns of equal width, and the thread has the same column of each block. The result of a
// step stays in a variable for later steps. Results that other kernels need are also written to memory.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/levels.h"
#include "backend/rows.h"
#include "windrow/batching/internal/plan.h"

namespace windrow::cuda {

/// A kernel and the contents of its arguments, which CudaExecution::run_fused() passes.
struct FusedKernel {
  std::string name;
  std::string code;  ///< of the kernel; see source_of()
  Index width = 0;   ///< threads a row
  /// Matrices: their first elements and strides. A tensor is one row that all rows share.
  std::vector<Place> places;
  std::vector<std::size_t> lists;  ///< numbers in FusedPlan::lists of its type
};

/// Size of the struct of its arguments, in words.
std::size_t words_of_argument(const FusedKernel& kernel);

/// For a state, a list of words for each row of the type: where consumers keep the state, or the gradients that they
/// send.
struct RowList {
  enum class Of : std::uint8_t { slots, gradients } of;
  std::size_t state;
  friend bool operator==(const RowList&, const RowList&) = default;
};

/// Whether the step multiplies its rows by a matrix, or by a transposed one.
bool is_product(const Step& step);

/// Whether one fused kernel can compute all these steps, each of which can_print().
bool can_fuse(std::span<const Step> steps);

/// How a segment is computed: parts in their order.
struct FusedPart {
  enum class Does : std::uint8_t {
    fused,     ///< by the kernel `number` of the plan
    step,      ///< by the device's own kernel
    products,  ///< two products with one matrix, in one call
    rows,      ///< by the kernel `number` for several steps of rows
  } does;
  std::size_t first, last;  ///< its steps
  std::size_t number = 0;
};

struct FusedPlan {
  std::vector<FusedKernel> kernels;
  std::vector<RowsKernel> rows;
  std::unordered_map<const Segment*, std::vector<FusedPart>> parts;
  std::vector<std::vector<RowList>> lists;  ///< by type: those that its kernels use
  /// By type and local: its rate if it needs memory because more than one part uses it.
  std::vector<std::vector<std::optional<Rate>>> locals;
  /// For Phase::level and Phase::back_level; empty if such a kernel cannot be printed.
  std::array<std::optional<LevelsKernel>, 2> levels;
  bool groups = false;  ///< see Grid
};

/// Without `may_fuse`, each step is a part: for devices without a compiler.
FusedPlan fuse(const Plan& plan, bool may_fuse, const Grid& grid = {});

/// Code that the kernels for levels and for rows use; in team_code.cc.
extern const char* const team_code;
/// Code that those for levels by groups use besides; in tile_code.cc.
extern const char* const tile_code;
/// The source of all kernels: the structs of their arguments, the operators that they use, and their code.
std::string source_of(const FusedPlan& fused, const Plan& plan);

}  // namespace windrow::cuda
