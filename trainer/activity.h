// SPDX-License-Identifier: Apache-2.0
// Records of what a device did, one per operation, as the vendor's profiling library reports them.
// Traces use them.
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
  std::uint32_t stream = 0;  ///< a number that distinguishes the streams of one device
  Time begin{}, end{};       ///< on the device, mapped to the host's steady clock
  std::uint64_t bytes = 0;   ///< bytes that a copy moves or a set writes
};

/// operations: each kernel and each copy, also inside recorded programs; this slows down those
/// programs a little. programs: a recorded program is one record; copies outside of it have their
/// own.
enum class ActivityDetail : std::uint8_t { operations, programs };

}  // namespace penstock
