// SPDX-License-Identifier: Apache-2.0
// Processes, their descendants and their memory, from /proc. `root` is the folder that has /proc;
// tests set another one. Any thread may call these functions. They throw only when memory ends.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "dataflow/machine/file_descriptor.h"

namespace penstock {

/// fork(2), and in the parent a descriptor that poll(2) finds readable once the child has ended;
/// -1 or an empty descriptor: errno has the reason. Works also in containers that refuse
/// pidfd_open(2). Between fork and exec the child may only make system calls.
pid_t fork_watched(FileDescriptor& end);

/// Ends the sentence "cannot watch a process: REASON; " if fork_watched gave no descriptor.
inline constexpr const char* kWatchAdvice =
    "the system refuses pidfd_open(2) and clone(2) with CLONE_PIDFD: allow them in the seccomp "
    "profile of the container (docker run --security-opt seccomp=unconfined), or use Linux 5.3";

/// The fields of /proc/PID/stat or /proc/PID/task/TID/stat, numbered as in proc(5).
class ProcessStat {
 public:
  explicit ProcessStat(const std::filesystem::path& folder);
  /// False: the process has ended, or the file is damaged.
  explicit operator bool() const { return fields_.size() > kProcessor - kState; }
  bool runs() const { return *this && state() != 'Z' && state() != 'X'; }
  /// Control characters are blanks.
  const std::string& name() const noexcept { return name_; }
  char state() const { return fields_.front().front(); }
  std::uint64_t number(std::size_t field) const;
  std::int32_t small_number(std::size_t field) const;

  static constexpr std::size_t kState = 3, kParent = 4, kMajorFaults = 12, kUserTicks = 14,
                               kSystemTicks = 15, kStart = 22, kProcessor = 39;

 private:
  std::string name_;
  std::vector<std::string> fields_;
};

/// Entries of a folder whose names are numbers; empty if it cannot be read.
std::vector<std::int32_t> numbers_in(const std::filesystem::path& folder);

/// `pid`, whether or not it runs, and its descendants that run. Leaves out the process `without`
/// and its descendants.
std::vector<std::int32_t> process_tree(std::int32_t pid, std::int32_t without = 0,
                                       const std::filesystem::path& root = "/");

/// Memory of the descendants of a process at a moment, by process number. A page that n processes
/// share counts 1/n in each (PSS), or whole if the kernel shows only resident pages. A shell that
/// only starts a command is left out.
struct ProcessMemory {
  std::uint64_t bytes = 0;
  bool is_worker = false;  ///< its parent is in the map too, as of a loader's worker processes
};
using MemoryOfProcesses = std::map<std::int32_t, ProcessMemory>;
MemoryOfProcesses memory_of_descendants(std::int32_t pid, const std::filesystem::path& root = "/");

}  // namespace penstock
