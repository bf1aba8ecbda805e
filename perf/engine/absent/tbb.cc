// In place of ../tbb.cc where it is not built.
#include "engine/systems.h"

namespace windrow::perf {

std::unique_ptr<System> make_tbb(const Pattern&, int) { return nullptr; }

}  // namespace windrow::perf
