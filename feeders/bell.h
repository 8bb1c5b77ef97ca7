// SPDX-License-Identifier: Apache-2.0
// Wakes a thread that waits for descriptors. Thread-safety: any thread.
#pragma once

#include "dataflow/shared_memory/descriptor.h"

namespace penstock {

class Bell {
 public:
  /// Throws ConfigError where the process is out of descriptors.
  Bell();
  /// Readable from ring() to reset().
  int fd() const noexcept { return fd_.get(); }
  void ring() noexcept;
  void reset() noexcept;

 private:
  const Descriptor fd_;  // an eventfd
};

}  // namespace penstock
