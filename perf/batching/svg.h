// Plots drawn as SVG. Equal plots give equal bytes.
#pragma once

#include <string>
#include <vector>

#include "batching/result.h"
#include "chart.h"

namespace windrow::perf {

/// Draws the plots one below the other, each with a title, axes with ticks, and a legend.
std::string svg(const std::vector<Plot>& plots);

using program::linear_ticks;
/// The ticks of a logarithmic axis: from a power of ten at or below `least`, which is above 0, to one at or above
/// `most`. If these are few, also 2 and 5 times each.
std::vector<double> logarithmic_ticks(double least, double most);

}  // namespace windrow::perf
