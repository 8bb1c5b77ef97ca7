// SPDX-License-Identifier: Apache-2.0
// For builds without liburing.
#include <cerrno>

#include "dataflow/io/file_reader.h"

namespace penstock {

std::unique_ptr<FileReader> make_uring_reader() {
  errno = ENOSYS;
  return nullptr;
}

}  // namespace penstock
