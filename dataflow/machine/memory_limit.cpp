// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <utility>

#include "dataflow/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

std::size_t kernel_available(const fs::path& root) {
  std::ifstream file(root / "proc/meminfo");
  std::string key, unit;
  std::size_t kib = 0;
  while (file >> key >> kib) {
    if (key == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return kNoLimit;
}

/// The number in a file; "max" and missing files mean no limit.
std::size_t number_in(const fs::path& path) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : kNoLimit;
}

/// A version of control groups, with its file names.
struct GroupVersion {
  std::string_view folder;  ///< below /sys/fs/cgroup
  std::string_view limit, used;
  /// Keys of memory.stat for the page cache of a group and the groups below it. The kernel frees
  /// the page cache when memory is needed.
  std::array<std::string_view, 2> cache;
  /// True if a line of /proc/self/cgroup, NUMBER:CONTROLLERS:PATH, names the process's own group.
  bool (*is_own)(std::string_view number, std::string_view controllers);
};
constexpr std::array kVersions = {
    GroupVersion{"memory",
                 "memory.limit_in_bytes",
                 "memory.usage_in_bytes",
                 {"total_active_file", "total_inactive_file"},
                 [](std::string_view, std::string_view controllers) {
                   return fmt::format(",{},", controllers).find(",memory,") != std::string::npos;
                 }},
    GroupVersion{"",
                 "memory.max",
                 "memory.current",
                 {"active_file", "inactive_file"},
                 [](std::string_view number, std::string_view) { return number == "0"; }},
};

std::size_t cache_of(const GroupVersion& version, const fs::path& group) {
  std::ifstream file(group / "memory.stat");
  std::string key;
  std::size_t bytes = 0, sum = 0;
  while (file >> key >> bytes) {
    if (key == version.cache[0] || key == version.cache[1]) sum += bytes;
  }
  return sum;
}

std::size_t available_in(const GroupVersion& version, const fs::path& group) {
  const std::size_t limit = number_in(group / version.limit);
  const std::size_t used = number_in(group / version.used);
  if (limit == kNoLimit || used == kNoLimit) return kNoLimit;
  const std::size_t kept = used - std::min(used, cache_of(version, group));
  return limit > kept ? limit - kept : 0;
}

/// The path of the process's own group, relative to the root of groups.
fs::path own_group(const GroupVersion& version, const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line.substr(second + 1, 1) != "/") continue;
    const std::string_view text = line;
    if (version.is_own(text.substr(0, first), text.substr(first + 1, second - first - 1))) {
      return line.substr(second + 2);
    }
  }
  return {};
}

/// "600 MB", "34.4 GB".
std::string size_text(double bytes) {
  constexpr double kLarge = 1e10;
  char text[32];
  if (bytes < kLarge) {
    std::snprintf(text, sizeof text, "%.0f MB", 1e-6 * bytes);
  } else {
    std::snprintf(text, sizeof text, "%.1f GB", 1e-9 * bytes);
  }
  return text;
}

double total_of(std::span<const MemoryNeed> needs) {
  double total = 0;
  for (const MemoryNeed& need : needs) total += need.bytes;
  return total;
}

/// "--prefetch 12, --batch-size 340": each of these changes alone would be enough.
std::string what_would_fit(std::span<const MemoryNeed> needs, double available) {
  std::map<std::string_view, std::pair<double, double>> flags;  // value, proportional bytes
  for (const MemoryNeed& need : needs) {
    for (const MemoryNeed::Factor& factor : need.factors) {
      flags[factor.flag].first = factor.value;
      flags[factor.flag].second += need.bytes;
    }
  }
  std::string text;
  for (const auto& [flag, sums] : flags) {
    const auto [value, bytes] = sums;
    const double fits = std::floor(value * (available - (total_of(needs) - bytes)) / bytes);
    if (fits < 1) continue;
    char number[32];
    std::snprintf(number, sizeof number, "%.0f", fits);
    text += (text.empty() ? "" : ", or ") + std::string(flag) + " " + number;
  }
  return text;
}

}  // namespace

std::size_t available_memory(const fs::path& root) {
  std::size_t available = kernel_available(root);
  for (const GroupVersion& version : kVersions) {
    fs::path group = root / "sys/fs/cgroup" / version.folder;
    available = std::min(available, available_in(version, group));
    for (const fs::path& part : own_group(version, root)) {
      group /= part;
      available = std::min(available, available_in(version, group));
    }
  }
  return available;
}

void require_memory(std::span<const MemoryNeed> needs, std::size_t available) {
  const double total = total_of(needs);
  if (!(total > static_cast<double>(available))) return;
  std::string parts;
  for (const MemoryNeed& need : needs) {
    if (need.bytes < total / 1000) continue;
    parts += (parts.empty() ? "" : ", ") + need.what + " " + size_text(need.bytes);
  }
  std::string recommendations = what_would_fit(needs, static_cast<double>(available));
  if (!recommendations.empty()) recommendations = "what would fit: " + recommendations;
  for (const MemoryNeed& need : needs) {
    if (!need.advice.empty())
      recommendations += (recommendations.empty() ? "" : "; or ") + need.advice;
  }
  if (recommendations.empty()) recommendations = "lower several of these flags";
  throw ConfigError("not enough memory: " +
                    (needs.size() == 1 ? needs.front().what + " are " + size_text(total)
                                       : parts + " are " + size_text(total) + " together") +
                    ", and " + size_text(static_cast<double>(available)) + " are available; " +
                    recommendations);
}

}  // namespace penstock
