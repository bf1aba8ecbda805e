// The exception that files of training throw.
#pragma once
#include "windrow/engine/requirements.h"

#include "windrow/engine/error.h"

namespace windrow {

/// Thrown when a file cannot be read or written, or holds something other than expected. The text is one line: the
/// file, what is wrong, and what was expected. Control characters in names are escaped.
class FileError : public Error {
 public:
  using Error::Error;
};

}  // namespace windrow
