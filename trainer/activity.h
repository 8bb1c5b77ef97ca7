// SPDX-License-Identifier: Apache-2.0
// What a device did, operation by operation, as a vendor's tools tell it: for traces.
#pragma once

#include <cstdint>
#include <string>

#include "dataflow/clock.h"

namespace penstock {

enum class ActivityKind : std::uint8_t { kernel, copy, set, graph };

struct ActivityRecord {
  ActivityKind kind = ActivityKind::kernel;
  std::string name;
  std::int32_t device = 0;
  std::uint32_t stream = 0;  ///< a number that tells streams of one device apart
  Time begin{}, end{};       ///< on the device, mapped to the host's steady clock
  std::uint64_t bytes = 0;   ///< moved by copies, written by sets
};

/// operations: each kernel and copy, also those of recorded programs, which that slows down a
/// little. programs: a recorded program as one; copies outside of it.
enum class ActivityDetail : std::uint8_t { operations, programs };

}  // namespace penstock
