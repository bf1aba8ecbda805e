// What readers of data throw.
#pragma once

#include "windrow/engine/error.h"

namespace windrow {

/// Data that is not what it should be. One line: the file, where it has them line and column (in bytes, from 1), what
/// is wrong, what was expected.
class DataError : public Error {
 public:
  using Error::Error;
};

}  // namespace windrow
