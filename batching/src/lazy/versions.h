// Versions of parameters: detects whether a parameter has changed since a flush used it, or was frozen or unfrozen.
//
// The engine counts the ops that have written a variable. An op that is pushed with a flush and reads the parameters
// sees the counts that hold for that flush, however far ahead the program pushes.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "parameters/parameter_stores.h"
#include "windrow/memory/buffer.h"
#include "windrow/ops/device.h"

namespace windrow::lazy {

class Versions {
 public:
  /// Versions of some parameters at one moment.
  struct Note {
    std::vector<std::int32_t> parameters;  ///< ascending
    std::source_location from;
    /// By index into `parameters`. Written by the op, read after wait().
    std::vector<std::uint64_t> counts = std::vector<std::uint64_t>(parameters.size());
    std::vector<char> frozen = {};  ///< by index into `parameters`: whether it was frozen when the note was made
  };

  Versions(const Device& device, const ParameterStores& parameters);

  /// Pushes the op that writes the counts.
  std::shared_ptr<const Note> note(std::vector<std::int32_t> parameters, std::source_location from);
  /// Blocks until the counts of all notes are written.
  void wait(std::source_location from);
  struct Change {
    std::int32_t parameter;
    bool of_value;  ///< false: it was frozen or unfrozen
  };
  /// Changes of the parameters of `earlier`; `later` must contain all of them. Call after wait().
  static std::vector<Change> changes(const Note& earlier, const Note& later);

 private:
  const Device device_;
  const ParameterStores& parameters_;
  const Buffer notes_;  // no bytes; its variable is written by each op
};

}  // namespace windrow::lazy
