// SPDX-License-Identifier: Apache-2.0
#include "bench/record/machine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "dataflow/machine/kernel_file.h"

namespace penstock {

double process_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto total = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return total(usage.ru_utime) + total(usage.ru_stime);
}

std::optional<double> process_core_wait_seconds() {
  // proc(5) of each thread: ns on a core, ns waiting for one, times it had one.
  std::error_code gone;
  std::optional<double> seconds;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", gone)) {
    std::istringstream file(KernelFile(thread.path() / "schedstat").text);
    std::uint64_t running = 0, waiting = 0;
    if (file >> running >> waiting) {
      seconds = seconds.value_or(0) + 1e-9 * static_cast<double>(waiting);
    }
  }
  return seconds;
}

double thread_cpu_seconds(std::jthread& thread) {
  clockid_t clock{};
  timespec time{};
  if (pthread_getcpuclockid(thread.native_handle(), &clock) != 0) return 0;
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::int32_t usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::int32_t cores = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  if (const std::optional<double> quota = cpu_quota("self")) {
    cores = static_cast<std::int32_t>(std::clamp(*quota, 1.0, static_cast<double>(cores)));
  }
  return cores;
}

bool is_bound_to_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 &&
         CPU_COUNT(&set) < sysconf(_SC_NPROCESSORS_ONLN);
}

void yield_to_other_threads() noexcept {
  constexpr int kLowest = 19;
  // For Linux, "process" 0 is the calling thread. Lowering one's own priority is always allowed.
  setpriority(PRIO_PROCESS, 0, kLowest);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::now()));
}

}  // namespace penstock
