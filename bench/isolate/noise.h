// SPDX-License-Identifier: Apache-2.0
// Measures what else happened on the machine during a block, from the kernel's files. Figures that
// a kernel or container does not show are absent, not zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "bench/record/environment.h"
#include "dataflow/clock.h"

namespace penstock::isolate {

/// What happened on the machine around a block and may have disturbed it.
struct BlockNoise {
  std::size_t block = 0;     ///< from 0
  double steal_percent = 0;  ///< of processor time: the hypervisor ran other machines
  std::optional<double> cpu_pressure_percent, io_pressure_percent;  ///< PSI, "some"
  double foreign_cpu_percent = 0;           ///< of all cores: other processes of this machine
  std::optional<double> mhz_low, mhz_high;  ///< of the cores, if the kernel reports them
  bool throttled = false;                   ///< by a cgroup's quota, or by heat
  bool noisy() const noexcept;              ///< any figure exceeds that of a quiet machine
};

/// One reading of counters that only grow, and of the present frequencies.
struct NoiseReading {
  Time time{};
  CpuTicks ticks;
  double own_cpu_s = 0;  ///< of this process and of its children that have ended
  std::optional<std::uint64_t> cpu_pressure_us, io_pressure_us;
  std::optional<std::uint64_t> throttles;  ///< periods throttled by the cgroup's quota, and heat
                                           ///< events
  std::optional<double> mhz_low, mhz_high;
};

/// Reads the files of proc(5) and sysfs. Tests set another `root`. Never throws.
NoiseReading read_noise(Time now, double own_cpu_s, const std::filesystem::path& root = "/");

/// CPU time of this process and of its ended children, including the producer that a run started;
/// and of a caller that has the loader (python/penstock_bench/live.py).
double own_cpu_seconds();

/// What happened between two readings.
BlockNoise noise_between(const NoiseReading& before, const NoiseReading& after, std::size_t block);

/// Reads the state of the machine now.
using NoiseMeter = std::function<NoiseReading()>;

}  // namespace penstock::isolate
