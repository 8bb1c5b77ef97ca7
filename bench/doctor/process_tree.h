// SPDX-License-Identifier: Apache-2.0
// Reads a running training from outside: its processes, its control groups and the machine, from
// the kernel's files. Nothing is stopped, traced or written. A figure that cannot be read is
// absent, and `Reasons` says why.
//
// One thread makes and uses a TreeReader. `root` is the folder that has /proc and /sys; tests set
// another one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "bench/record/environment.h"
#include "dataflow/clock.h"

namespace penstock::doctor {

/// Counters of a thread since it began.
struct ThreadReading {
  char state = '?';  ///< of proc(5): R runnable, S asleep, D in disk sleep
  std::int32_t processor = -1;
  std::uint64_t cpu_ns = 0;
  std::uint64_t core_wait_ns = 0;  ///< runnable, without a core; 0 if not known
  std::uint64_t preemptions = 0;   ///< involuntary context switches
};

/// Counters of a process since it began, and its memory now.
struct ProcessReading {
  std::int32_t parent = 0;
  std::uint64_t start_ticks = 0;  ///< since boot; tells apart processes with one number
  std::string name;               ///< control characters are blanks
  std::map<std::int32_t, ThreadReading> threads{};
  std::uint64_t rss_bytes = 0, swap_bytes = 0, major_faults = 0;
  std::optional<std::uint64_t> read_bytes{};  ///< from storage, not from the page cache
};

/// Read once for each process.
struct ProcessFacts {
  std::vector<std::int32_t> allowed_processors;
  std::optional<std::uint64_t> open_files, open_files_limit;
  std::string thread_settings;  ///< "OMP_NUM_THREADS=8"; empty: none is set, or not known
  std::map<std::string, std::uint64_t> shared_files;  ///< in /dev/shm: bytes mapped, by inode
};

/// Time that tasks waited, in microseconds since boot: the "some" of pressure stall information.
struct Pressure {
  std::optional<std::uint64_t> cpu_us, io_us, memory_us;
};

struct MachineReading {
  CpuTicks ticks;
  Pressure machine, group;  ///< group: of the root process
  std::optional<std::uint64_t> heat_throttles;
  std::optional<std::uint64_t> quota_periods, quota_throttles;  ///< of the groups with a CPU quota
  std::optional<std::uint64_t> memory_bytes, available_bytes, swap_used_bytes;
  std::optional<std::uint64_t> uptime_s;
};

struct Reading {
  Time time{};
  std::map<std::int32_t, ProcessReading> processes;  ///< the root and its descendants
  MachineReading machine;
};

/// Read once, when the window begins.
struct MachineFacts {
  std::int32_t online_processors = 0;
  std::optional<double> quota_cores;
  std::optional<std::uint64_t> group_memory_bytes;  ///< limit; none: no limit is visible
  std::uint64_t room_bytes = 0;  ///< what the tree may still allocate: groups and MemAvailable
  std::optional<std::pair<std::uint64_t, std::uint64_t>> shm_bytes;  ///< size and free
  std::set<std::string> governors;                                   ///< empty: not visible
  std::map<std::int32_t, std::int32_t> nodes;  ///< NUMA node of each processor
  std::vector<std::int32_t> gpu_nodes;         ///< -1: the kernel does not know
};

/// Why a figure is not known, by the name of the figure: "read_bytes" -> "process 12 (python3):
/// Permission denied".
using Reasons = std::map<std::string, std::string>;

/// What was seen in the window.
struct Observation {
  std::int32_t root_pid = 0;
  Reading first, last;
  bool ended = false;  ///< the root process ended in the window
  std::int32_t samples = 0;
  /// In how many samples any thread of the process was in disk sleep.
  std::map<std::int32_t, std::int32_t> disk_sleeps;
  std::map<std::int32_t, std::int32_t> runs_on;  ///< samples of runnable threads, by processor
  std::map<std::int32_t, ProcessFacts> facts;
  MachineFacts machine;
  Reasons reasons;
};

class TreeReader {
 public:
  /// `self` is left out of the tree: this process, which may be a descendant.
  TreeReader(std::int32_t pid, std::int32_t self, std::filesystem::path root = "/");

  /// No processes if the root process does not exist or has ended. Later calls also read the facts
  /// of new processes.
  Reading read(Time now);
  MachineFacts read_machine();

  const std::map<std::int32_t, ProcessFacts>& facts() const noexcept { return facts_; }
  const Reasons& reasons() const noexcept { return reasons_; }

 private:
  std::optional<ProcessReading> read_process(std::int32_t pid);
  ProcessFacts read_facts(std::int32_t pid);
  void read_groups(MachineReading& machine) const;
  void give_reason(const std::string& figure, std::int32_t pid, int error);

  const std::int32_t pid_, self_;
  const std::filesystem::path root_;
  std::map<std::int32_t, ProcessFacts> facts_;
  Reasons reasons_;
};

/// Reads the tree of `pid` about ten times in `window`, with long pauses. Ends early after a stop
/// request, or when the process ends. Throws ConfigError if there is no such process, or if it ends
/// before two readings.
Observation observe(std::int32_t pid, TreeReader reader, Nanoseconds window, Clock& clock,
                    const std::stop_token& stop);

}  // namespace penstock::doctor
