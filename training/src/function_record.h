// Vertex functions as records. Knows no files and no weights.
#pragma once

#include "windrow/batching/internal/ir.h"
#include "windrow/ops/kernel.h"
#include "windrow/training/record.h"

namespace windrow {

inline const RecordFormat program_format{.name = "windrow program", .newest_version = 1};

/// Without the names of its parameters.
Record record_of(const ir::Function& function);

/// For ir::vertex_function_of(). Throws FileError for a record of another form, and MisuseError for unknown
/// names, such as an operator without a kernel.
ir::Function function_of(const Record& record, const KernelTable<float>& kernels);

}  // namespace windrow
