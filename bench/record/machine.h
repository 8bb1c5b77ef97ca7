// SPDX-License-Identifier: Apache-2.0
// Queries the machine: processors, CPU time, host name, date.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

namespace penstock {

/// Processors that this process may use: its affinity, limited by its cgroup's quota.
std::int32_t usable_cores();

/// True if this process may use only some of the processors. Launchers bind ranks this way.
bool is_bound_to_processors();

/// CPU time of all threads of this process since it began, in seconds.
double process_cpu_seconds();

/// Time in seconds that runnable threads of this process waited for a core; none: the kernel does
/// not report it.
std::optional<double> process_core_wait_seconds();

/// CPU time in seconds of a thread that has not been joined; 0 if the system does not report it.
double thread_cpu_seconds(std::jthread& thread);

/// Gives the calling thread, and threads that it starts, the lowest priority: nice 19.
void yield_to_other_threads() noexcept;

/// The host name of this machine; "unknown" if the system does not report it.
std::string host_name();

/// The current time in UTC, as ISO 8601.
std::string utc_now();

}  // namespace penstock
