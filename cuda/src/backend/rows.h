// Kernels that compute several steps of a segment in one launch. Pure: knows no device.
//
// A team computes all steps for 16 rows, then for the next 16. Rows do not depend on each other, so teams never wait
// for each other. Products have few columns, or few terms: their matrices lie in shared memory. So a classifier over
// few classes, with its loss and gradients, is one call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "windrow/batching/internal/plan.h"

namespace windrow::cuda {

struct FusedKernel;

/// A part of such a kernel. The kernel's argument has a struct for each part.
struct RowsPart {
  enum class Does : std::uint8_t { fused, product, loss, loss_gradient } does;
  std::size_t first, last;  ///< its steps, as numbers in the segment
  std::size_t number = 0;   ///< of the fused kernel
};

struct RowsKernel {
  std::string name;
  std::string code;
  std::vector<RowsPart> parts;

  /// A team has 256 threads, and computes so many rows at a time.
  static constexpr Index rows_of_team = 16;
  /// The number of threads that compute all rows at once.
  static Index elements(Index rows) { return (rows + rows_of_team - 1) / rows_of_team * 256; }
};

/// The parts of one kernel that begins with that step of the segment. Empty if a kernel would have a single part, or
/// only fused ones.
std::vector<RowsPart> rows_parts(const Segment& segment, std::size_t first);

/// Prints the kernel. Its fused parts have been printed to `fused`.
RowsKernel print_rows(const std::string& name, const Segment& segment, std::vector<RowsPart> parts,
                      const std::vector<FusedKernel>& fused);

}  // namespace windrow::cuda
