// SPDX-License-Identifier: Apache-2.0
// Where a sweep ran: machine, program and libraries, and what about them makes numbers unreliable.
// The host's name is left out on purpose.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

/// Processor time since boot, in ticks of the kernel, over all processors.
struct CpuTicks {
  std::uint64_t total = 0, steal = 0;  ///< steal: the hypervisor ran others meanwhile
  std::uint64_t busy = 0;              ///< of programs and of the kernel
};
CpuTicks read_cpu_ticks();

struct Environment {
  std::string cpu_model;
  std::int32_t usable_cores = 0;  ///< by affinity and cgroup quota
  std::int32_t online_cores = 0;
  std::uint64_t memory_bytes = 0;
  bool virtual_machine = false;
  std::optional<double> steal_percent;      ///< of all processor time while the sweep ran
  std::optional<std::string> cpu_governor;  ///< of frequency scaling; none: not visible
  double load_average = 0;                  ///< over the minute before the sweep began
  /// Of all processor time just before the first round, used by anyone; none: not looked at.
  std::optional<double> busy_percent{};
  std::string kernel;
  std::vector<std::string> gpus;  ///< names
  std::optional<std::string> gpu_driver;
  std::string version, revision;  ///< of Penstock; revision: of its sources, or "unknown"
  std::string compiler, compiler_flags, build_type;
  std::map<std::string, std::string> libraries;
  std::string date;  ///< UTC, ISO 8601, when the sweep began
};

/// Looks at the machine as it is now.
Environment read_environment();

/// What a reader of the numbers should know about the machine, a sentence each.
std::vector<std::string> warnings_of(const Environment& environment);

/// Shares of processor time between two readings, in per cent: what the hypervisor took, and what
/// programs used.
double steal_percent(const CpuTicks& before, const CpuTicks& after);
double busy_percent(const CpuTicks& before, const CpuTicks& after);

/// A machine whose processors are used no more than this, in per cent, is at rest.
inline constexpr double kAtRestPercent = 5;

}  // namespace penstock
