// What the plug-in's files contribute to its table: the kernels of all operators, the compiler, and products.
#pragma once

#include "plugin.h"

namespace windrow::cuda {

/// Null if the operator has no kernel.
const KernelEntry* find_kernel(const char* op);

// In compile.cc: see Plugin.
bool can_compile();
void compiler_facts(int architecture, CompilerFacts* facts);
int compile(const char* source, int architecture, Compiled* made);
void free_compiled(Compiled* made);

// In linear.cu.
/// Makes the queue's cuBLAS handle if it has none.
int prepare_products(const Queue& queue);
int multiply(const Queue& queue, const Products& products);

/// The kernels of each file. The last entry is empty.
extern const KernelEntry choices_kernels[], elementwise_kernels[], gradient_norm_kernels[], images_kernels[],
    linear_kernels[], losses_kernels[], rows_kernels[], rowwise_kernels[], scatter_kernels[], segments_kernels[],
    semiring_kernels[], sgd_rows_kernels[], training_step_kernels[];

}  // namespace windrow::cuda
