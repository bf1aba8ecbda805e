// Plots drawn as SVG: the same plots give the same bytes.
#pragma once

#include <string>
#include <vector>

#include "batching/result.h"

namespace windrow::perf {

/// One below the other, each with its title, axes with ticks, and a legend.
std::string svg(const std::vector<Plot>& plots);

/// Where an axis that shows 0 to `most` has its ticks: at 1, 2 or 5 times a power of ten, four to six of them, the last
/// at `most` or above. Of nothing, 0 and 1.
std::vector<double> linear_ticks(double most);
/// From a power of ten at or below `least`, above 0, to one at or above `most`; with 2 and 5 times these where there
/// are few.
std::vector<double> logarithmic_ticks(double least, double most);

}  // namespace windrow::perf
