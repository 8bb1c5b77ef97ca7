// SPDX-License-Identifier: Apache-2.0
// A file that samples are read from, open while it is in scope, with what is said of one that
// cannot be read.
#pragma once

#include <cstdint>
#include <string>

#include "dataflow/io/input_file.h"

namespace penstock {

class SampleFile {
 public:
  /// `flags` of open(2) besides O_RDONLY and O_CLOEXEC. Throws DataError, with the path.
  explicit SampleFile(const char* path, int flags = 0);

  int descriptor() const noexcept { return file_.descriptor(); }
  /// Bytes of a file that is read whole. Throws DataError if it is empty or beyond 256 MiB, a
  /// hundred times the largest photographs.
  std::uint64_t size_to_read() const;
  /// Throws DataError: path, problem, and what to do.
  [[noreturn]] void refuse(const std::string& problem) const;

 private:
  const char* const path_;
  const InputFile file_;
};

}  // namespace penstock
