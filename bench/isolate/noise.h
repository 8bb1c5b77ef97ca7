// SPDX-License-Identifier: Apache-2.0
// What else happened on the machine while a block was measured, from the kernel's files. What a
// kernel or a container does not show is absent, not zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "bench/isolate/isolation.h"
#include "dataflow/clock.h"

namespace penstock {

/// One look at counters that only grow, and at the frequencies of the moment.
struct NoiseReading {
  Time time{};
  std::uint64_t all_ticks = 0, busy_ticks = 0, steal_ticks = 0;  ///< of all processors since boot
  double own_cpu_s = 0;  ///< of this process and of children that have ended
  std::optional<std::uint64_t> cpu_pressure_us, io_pressure_us;
  std::optional<std::uint64_t> throttles;  ///< periods of the cgroup's quota, and heat events
  std::optional<double> mhz_low, mhz_high;
};

/// `root` stands in for "/" in tests; files are proc(5)'s and sysfs'. Never throws.
NoiseReading read_noise(Time now, double own_cpu_s, const std::filesystem::path& root = "/");

/// CPU time of this process and of its children that have ended, a run's own producer among them.
double own_cpu_seconds();

/// What happened between two readings.
BlockNoise noise_between(const NoiseReading& before, const NoiseReading& after, std::size_t block);

/// Looks at the machine now.
using NoiseMeter = std::function<NoiseReading()>;

}  // namespace penstock
