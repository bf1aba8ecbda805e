// Guesses the format of a file, for errors about files of an unexpected format.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <string_view>

namespace windrow {

/// A format that the first bytes of a file suggest. A value; the texts live as long as the program.
struct FileFormat {
  std::string_view name;    ///< "a zip archive"; empty if the format is not known
  std::string_view writer;  ///< ", as torch.save and numpy.savez write", or empty
  std::string_view remedy;  ///< "unzip unpacks it", or empty
  bool text = false;        ///< whether it is a kind of text, such as JSON
};

/// The format of a file with these first bytes; 64 are enough. A file of tensors (tensor_file.h) and plain text have no
/// name here. Threads: any.
FileFormat file_format(std::string_view first_bytes);

}  // namespace windrow
