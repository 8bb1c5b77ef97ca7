// SPDX-License-Identifier: Apache-2.0
#include "dataflow/memory_limit.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace penstock {
namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

std::size_t kernel_available() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::size_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return kNoLimit;
}

/// "max" and missing files read as no limit.
std::size_t number_in(const char* path) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : kNoLimit;
}

/// Page cache of the control group, which the kernel gives up when memory is wanted.
std::size_t group_cache() {
  std::ifstream file("/sys/fs/cgroup/memory.stat");
  std::string key;
  std::size_t bytes = 0, sum = 0;
  while (file >> key >> bytes) {
    if (key == "active_file" || key == "inactive_file") sum += bytes;
  }
  return sum;
}

std::size_t group_available() {
  const std::size_t limit = number_in("/sys/fs/cgroup/memory.max");
  const std::size_t used = number_in("/sys/fs/cgroup/memory.current");
  if (limit == kNoLimit || used == kNoLimit) return kNoLimit;
  const std::size_t kept = used - std::min(used, group_cache());
  return limit > kept ? limit - kept : 0;
}

}  // namespace

std::size_t available_memory() { return std::min(kernel_available(), group_available()); }

}  // namespace penstock
