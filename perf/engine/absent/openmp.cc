// In place of ../openmp.cc where it is not built.
#include "engine/systems.h"

namespace windrow::perf {

std::unique_ptr<System> make_openmp(const Pattern&, int) { return nullptr; }

}  // namespace windrow::perf
