// SPDX-License-Identifier: Apache-2.0
#include "feeders/bell.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "dataflow/error.h"

namespace penstock {

Bell::Bell() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!fd_) throw ConfigError("cannot open an eventfd; is the process out of descriptors?");
}

void Bell::ring() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(fd_.get(), &one, sizeof one);
}

void Bell::reset() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = read(fd_.get(), &count, sizeof count);
}

}  // namespace penstock
