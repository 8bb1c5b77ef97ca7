// SPDX-License-Identifier: Apache-2.0
// Replaces the io_uring reader in builds without liburing.
#include <cerrno>

#include "dataflow/machine/file_reader.h"

namespace penstock {

std::unique_ptr<FileReader> make_uring_reader() {
  errno = ENOSYS;
  return nullptr;
}

}  // namespace penstock
