// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "dataflow/error.h"
#include "dataflow/machine/kernel_file.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();

/// The file names of a version of control groups.
struct GroupVersion {
  std::string_view limit, used;
  /// Keys of memory.stat for the page cache of a group and the groups below it. The kernel frees
  /// the page cache when memory is needed.
  std::array<std::string_view, 2> cache;
};
constexpr GroupVersion kVersion1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_active_file", "total_inactive_file"}};
constexpr GroupVersion kVersion2{"memory.max", "memory.current", {"active_file", "inactive_file"}};

const GroupVersion& files_of(const ControlGroup& group) {
  return group.version == 1 ? kVersion1 : kVersion2;
}

/// "max" and missing files mean no limit.
std::size_t limit_of(const ControlGroup& group) {
  return KernelFile(group.folder / files_of(group).limit).number().value_or(kNoLimit);
}

std::size_t available_in(const ControlGroup& group) {
  const GroupVersion& files = files_of(group);
  const std::size_t limit = limit_of(group);
  const auto used = KernelFile(group.folder / files.used).number();
  if (limit == kNoLimit || !used) return kNoLimit;
  const KernelFile stat(group.folder / "memory.stat");
  std::size_t cache = 0;
  for (const std::string_view key : files.cache) cache += stat.value(key).value_or(0);
  const std::size_t kept = *used - std::min<std::size_t>(*used, cache);
  return limit > kept ? limit - kept : 0;
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
    text += fmt::format("{}{} {:.0f}", text.empty() ? "" : ", or ", flag, fits);
  }
  return text;
}

}  // namespace

std::size_t available_memory(const fs::path& root, std::string_view process) {
  constexpr std::size_t kBytesPerKib = 1024;
  const auto kib = KernelFile(root / "proc/meminfo").value("MemAvailable");
  std::size_t available = kib ? *kib * kBytesPerKib : kNoLimit;
  for (const ControlGroup& group : control_groups(process, "memory", root)) {
    available = std::min(available, available_in(group));
  }
  return available;
}

std::optional<std::size_t> group_memory_limit(const fs::path& root, std::string_view process) {
  // Version 1 writes the largest multiple of a page if there is no limit.
  constexpr std::size_t kNone = std::size_t{1} << 62;
  std::size_t limit = kNone;
  for (const ControlGroup& group : control_groups(process, "memory", root)) {
    limit = std::min(limit, limit_of(group));
  }
  return limit < kNone ? std::optional(limit) : std::nullopt;
}

std::optional<double> seconds_to_fill(double grown, double window_s, double room) {
  constexpr double kLeastGrowth = 16 * 1048576.0;
  if (grown < kLeastGrowth) return std::nullopt;
  return room / grown * window_s;
}

void require_memory(std::span<const MemoryNeed> needs, std::size_t available) {
  const double total = total_of(needs);
  if (!(total > static_cast<double>(available))) return;
  std::string parts;
  for (const MemoryNeed& need : needs) {
    if (need.bytes < total / 1000) continue;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", need.what, size_text(need.bytes));
  }
  std::string recommendations = what_would_fit(needs, static_cast<double>(available));
  if (!recommendations.empty()) recommendations = "what would fit: " + recommendations;
  for (const MemoryNeed& need : needs) {
    if (!need.advice.empty())
      recommendations += (recommendations.empty() ? "" : "; or ") + need.advice;
  }
  if (recommendations.empty()) recommendations = "lower several of these flags";
  throw ConfigError("not enough memory: {}, and {} are available; {}",
                    needs.size() == 1
                        ? fmt::format("{} are {}", needs.front().what, size_text(total))
                        : fmt::format("{} are {} together", parts, size_text(total)),
                    size_text(static_cast<double>(available)), recommendations);
}

}  // namespace penstock
