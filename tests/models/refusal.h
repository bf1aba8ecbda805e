// The message with which a reader refuses data.
#pragma once

#include <string>

#include "windrow/models/vocabulary.h"

namespace windrow {

template <class Read>
std::string refusal(Read read) {
  try {
    read();
  } catch (const DataError& error) {
    return error.what();
  }
  return "was read";
}

}  // namespace windrow
