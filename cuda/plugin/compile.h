// Kernels that are compiled when the program runs.
#pragma once

#include "plugin.h"

namespace windrow::cuda {

bool can_compile();
void compiler_facts(int architecture, CompilerFacts* facts);
int compile(const char* source, int architecture, Compiled* made);
void free_compiled(Compiled* made);

}  // namespace windrow::cuda
