// SPDX-License-Identifier: Apache-2.0
#include "bench/watch/worker_states.h"

#include <linux/futex.h>
#include <sys/syscall.h>

#include <sstream>

#include "dataflow/machine/kernel_file.h"
#include "dataflow/machine/processes.h"

namespace penstock::watch {

std::string_view state_of_worker(std::int32_t pid, std::int64_t parent) {
  static const std::map<long, std::string_view> kCalls{
      {SYS_futex, kWaitsForLock},      {SYS_flock, kWaitsForLock},       {SYS_fcntl, kWaitsForLock},
      {SYS_nanosleep, kSleeps},        {SYS_clock_nanosleep, kSleeps},   {SYS_read, kReadsFiles},
      {SYS_ppoll, kWaitsForNetwork},   {SYS_recvfrom, kWaitsForNetwork},
#ifdef SYS_poll  // not on every processor
      {SYS_select, kWaitsForNetwork},  {SYS_poll, kWaitsForNetwork},
#endif
      {SYS_pselect6, kWaitsForNetwork}};
  const std::string folder = "/proc/" + std::to_string(pid);
  const ProcessStat stat(folder);
  if (!stat.runs() || stat.small_number(ProcessStat::kParent) != parent) return {};
  if (stat.state() == 'R') return kComputes;
  if (stat.state() == 'D') return "waiting for storage";
  // "202 0x7f5e 0x189 ...": the number of the call and its arguments, or "running"
  std::istringstream words(KernelFile(folder + "/syscall").text);
  long call = 0;
  std::uint64_t first = 0, second = 0;
  if (!(words >> call >> std::hex >> first >> second))
    return words.str().starts_with("running") ? kComputes : "";
  if (call == SYS_futex && (second & FUTEX_PRIVATE_FLAG) != 0) return kWaitsForThreads;
  if (!kCalls.contains(call)) return "other system calls";
  // Python before 3.11 sleeps in a select of nothing.
  return first == 0 && kCalls.at(call) == kWaitsForNetwork ? kSleeps : kCalls.at(call);
}

}  // namespace penstock::watch
