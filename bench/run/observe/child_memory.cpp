// SPDX-License-Identifier: Apache-2.0
#include "bench/run/observe/child_memory.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "dataflow/machine/memory_limit.h"

namespace penstock {

MemoryOfProcesses child_memory() {
  siginfo_t info{};
  const bool has_children = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
  return has_children ? memory_of_descendants(getpid()) : MemoryOfProcesses{};
}

std::string add_child_memory(const MemoryOfProcesses& before, const MemoryOfProcesses& after,
                             double window_s, double room, std::map<std::string, double>& facts) {
  struct Sum {
    double processes = 0, bytes = 0, grown = 0, compared = 0;
  } all, workers;
  for (const auto& [pid, now] : after) {
    const auto old = before.find(pid);
    const auto bytes = static_cast<double>(now.bytes);
    for (Sum* const sum : {&all, now.is_worker ? &workers : nullptr}) {
      if (sum == nullptr) continue;
      sum->processes += 1;
      sum->bytes += bytes;
      if (old == before.end()) continue;  // a process that began in the window is not a leak
      sum->compared += 1;
      sum->grown += bytes - static_cast<double>(old->second.bytes);
    }
  }
  if (after.empty() || !(window_s > 0)) return "";
  constexpr double kMinute = 60, kMb = 1e6;
  facts["child_processes"] = all.processes;
  facts["child_memory_bytes"] = all.bytes;
  // A few pages within milliseconds would be gigabytes a minute.
  constexpr double kShortest_s = 1;
  if (window_s < kShortest_s) all.compared = workers.compared = all.grown = 0;
  if (all.compared > 0) facts["child_growth_bytes_per_min"] = all.grown * kMinute / window_s;
  if (workers.processes > 0) {
    facts["worker_processes"] = workers.processes;
    facts["worker_memory_bytes"] = workers.bytes / workers.processes;
  }
  if (workers.compared > 0) {
    facts["worker_growth_bytes_per_min"] = workers.grown / workers.compared * kMinute / window_s;
  }
  const std::optional<double> left = seconds_to_fill(all.grown, window_s, room);
  if (!left || *left >= kSecondsToFillSoon) return "";
  return fmt::format(
      "the {:.0f} child processes hold {:.0f} MB and grow by {:.0f} MB a minute, which fills the "
      "memory that is left ({:.0f} MB) in {:.0f} min; measure longer to see whether that goes on",
      all.processes, all.bytes / kMb, all.grown / kMb * kMinute / window_s, room / kMb,
      *left / kMinute);
}

}  // namespace penstock
