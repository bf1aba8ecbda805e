// The systems there are. Of a peer that WINDROW_PEERS does not name, see perf/CMakeLists.txt, a null is made.
#pragma once

#include "system.h"

namespace windrow::perf {

std::unique_ptr<System> make_windrow(const Pattern& pattern, int workers);
std::unique_ptr<System> make_openmp(const Pattern& pattern, int workers);
std::unique_ptr<System> make_tbb(const Pattern& pattern, int workers);

}  // namespace windrow::perf
