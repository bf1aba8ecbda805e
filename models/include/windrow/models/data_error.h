// The exception that data readers throw.
#pragma once
#include "windrow/engine/requirements.h"

#include "windrow/engine/error.h"

namespace windrow {

/// Thrown for malformed or missing data. The text is one line: the file, the line and column where known (in bytes,
/// from 1), what is wrong, and what was expected.
class DataError : public Error {
 public:
  using Error::Error;
};

}  // namespace windrow
