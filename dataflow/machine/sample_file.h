// SPDX-License-Identifier: Apache-2.0
// A file from which samples are read. It is open while it is in scope, and makes the error message
// if the file cannot be read.
#pragma once

#include <cstdint>
#include <string>

#include "dataflow/machine/input_file.h"

namespace penstock {

class SampleFile {
 public:
  /// `flags` of open(2) in addition to O_RDONLY and O_CLOEXEC. Throws DataError with the path.
  explicit SampleFile(const char* path, int flags = 0);

  int descriptor() const noexcept { return file_.descriptor(); }
  /// Size of a file that is to be read whole. Throws DataError if it is empty or larger than 256
  /// MiB, a hundred times the largest photographs.
  std::uint64_t size_to_read() const;
  /// Throws DataError with the path, the problem and what to do.
  [[noreturn]] void refuse(const std::string& problem) const;

 private:
  const char* const path_;
  const InputFile file_;
};

}  // namespace penstock
