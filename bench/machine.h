// SPDX-License-Identifier: Apache-2.0
// What a run asks of the machine below it: processors, CPU time, the date.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

namespace penstock {

/// Processors that this process may use: its affinity, cut by its cgroup's quota.
std::int32_t usable_cores();

/// May it use only some of the machine's processors, as launchers bind ranks to cores of their own?
bool is_bound_to_processors();

/// CPU time of all threads of this process, in seconds since it began.
double process_cpu_seconds();

/// What all threads of this process have waited for a core though they could run; none: the kernel
/// does not tell.
std::optional<double> process_core_wait_seconds();

/// CPU time of one thread that has not been joined; 0 where the system does not tell.
double thread_cpu_seconds(std::jthread& thread);

/// The calling thread, and those that it starts, run when no other thread wants to: nice 19.
void yield_to_other_threads() noexcept;

/// As this machine calls itself; "unknown" where it does not tell.
std::string host_name();

/// The present time in UTC, as ISO 8601.
std::string utc_now();

}  // namespace penstock
