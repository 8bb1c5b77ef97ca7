// SPDX-License-Identifier: Apache-2.0
// Describes where a sweep ran: machine, program, libraries, and conditions that make numbers
// unreliable. It deliberately leaves out the host name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

/// Processor time since boot in kernel ticks, summed over all processors.
struct CpuTicks {
  std::uint64_t total = 0, steal = 0;  ///< steal: taken by the hypervisor for other guests
  std::uint64_t busy = 0;              ///< used by programs and by the kernel
};
/// Zeros if the kernel does not show them. `root` has /proc and /sys, here and below.
CpuTicks read_cpu_ticks(const std::filesystem::path& root = "/");

/// The governor of a processor's frequency; none: not visible.
std::optional<std::string> read_governor(std::int32_t processor,
                                         const std::filesystem::path& root = "/");

/// How often heat made a core slower since boot, summed over all cores; none: not visible.
std::optional<std::uint64_t> read_heat_throttles(const std::filesystem::path& root = "/");

struct Environment {
  std::string cpu_model;
  std::int32_t usable_cores = 0;  ///< limited by affinity and cgroup quota
  std::int32_t online_cores = 0;
  std::uint64_t memory_bytes = 0;
  bool virtual_machine = false;
  std::optional<double> steal_percent;      ///< share of all processor time during the sweep
  std::optional<std::string> cpu_governor;  ///< CPU frequency governor; none: not visible
  double load_average = 0;                  ///< over the minute before the sweep began
  /// Share of processor time in use by all processes just before the first round; none: not
  /// measured.
  std::optional<double> busy_percent{};
  std::string kernel;
  std::vector<std::string> gpus;  ///< names
  std::optional<std::string> gpu_driver;
  std::string version, revision;  ///< revision: of Penstock's sources, or "unknown"
  std::string compiler, compiler_flags, build_type;
  std::map<std::string, std::string> libraries;
  std::string date;  ///< UTC, ISO 8601, when the sweep began
};

/// Reads the current state of the machine.
Environment read_environment();

/// One sentence for each condition of the machine that makes the numbers less reliable.
std::vector<std::string> warnings_of(const Environment& environment);

/// Other programs or the hypervisor's other guests took processor time, as far as is known.
bool was_busy(const Environment& environment);

/// Shares of processor time between two readings, in per cent: taken by the hypervisor, and used by
/// programs and the kernel.
double steal_percent(const CpuTicks& before, const CpuTicks& after);
double busy_percent(const CpuTicks& before, const CpuTicks& after);

/// A machine is at rest if at most this share of its processor time is used, in per cent.
inline constexpr double kAtRestPercent = 5;

}  // namespace penstock
