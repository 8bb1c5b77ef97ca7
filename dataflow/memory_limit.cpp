// SPDX-License-Identifier: Apache-2.0
#include "dataflow/memory_limit.h"

#include <algorithm>
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

/// "max" and missing files read as no limit.
std::size_t number_in(const fs::path& path) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : kNoLimit;
}

/// Page cache of a control group, which the kernel gives up when memory is wanted.
std::size_t group_cache(const fs::path& group) {
  std::ifstream file(group / "memory.stat");
  std::string key;
  std::size_t bytes = 0, sum = 0;
  while (file >> key >> bytes) {
    if (key == "active_file" || key == "inactive_file") sum += bytes;
  }
  return sum;
}

std::size_t group_available(const fs::path& group) {
  const std::size_t limit = number_in(group / "memory.max");
  const std::size_t used = number_in(group / "memory.current");
  if (limit == kNoLimit || used == kNoLimit) return kNoLimit;
  const std::size_t kept = used - std::min(used, group_cache(group));
  return limit > kept ? limit - kept : 0;
}

/// Of the process's own group, relative to the root of groups; "0::/a/b" is the line of version 2.
fs::path own_group(const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) return line.substr(4);
  }
  return {};
}

std::string megabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f MB", 1e-6 * bytes);
  return text;
}

double total_of(std::span<const MemoryNeed> needs) {
  double total = 0;
  for (const MemoryNeed& need : needs) total += need.bytes;
  return total;
}

/// "--prefetch 12, --batch-size 340": each of them alone would be small enough.
std::string what_would_fit(std::span<const MemoryNeed> needs, double available) {
  std::map<std::string_view, std::pair<double, double>> flags;  // value, and bytes that follow it
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
  const fs::path groups = root / "sys/fs/cgroup";
  fs::path group = groups;
  available = std::min(available, group_available(group));
  for (const fs::path& part : own_group(root)) {
    group /= part;
    available = std::min(available, group_available(group));
  }
  return available;
}

void require_memory(std::span<const MemoryNeed> needs, std::size_t available) {
  const double total = total_of(needs);
  if (!(total > static_cast<double>(available))) return;
  std::string parts;
  for (const MemoryNeed& need : needs) {
    if (need.bytes < total / 1000) continue;
    parts += (parts.empty() ? "" : ", ") + need.what + " " + megabytes(need.bytes);
  }
  const std::string fits = what_would_fit(needs, static_cast<double>(available));
  throw ConfigError("not enough memory: " + parts + " are " + megabytes(total) + " together, and " +
                    megabytes(static_cast<double>(available)) + " are available; " +
                    (fits.empty() ? "lower several of these flags" : "what would fit: " + fits));
}

}  // namespace penstock
