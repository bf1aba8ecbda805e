// Plots drawn as SVG. Equal plots give equal bytes.
#pragma once

#include <string>
#include <vector>

#include "batching/result.h"

namespace windrow::perf {

/// Draws the plots one below the other, each with a title, axes with ticks, and a legend.
std::string svg(const std::vector<Plot>& plots);

/// The ticks of an axis from 0 to `most`: four to six multiples of 1, 2 or 5 times a power of ten, the last at `most`
/// or above. Returns 0 and 1 if `most` is not positive.
std::vector<double> linear_ticks(double most);
/// The ticks of a logarithmic axis: from a power of ten at or below `least`, which is above 0, to one at or above
/// `most`. If these are few, also 2 and 5 times each.
std::vector<double> logarithmic_ticks(double least, double most);

}  // namespace windrow::perf
