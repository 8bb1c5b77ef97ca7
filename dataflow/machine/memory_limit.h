// SPDX-License-Identifier: Apache-2.0
// Finds how much more memory this process may use, and checks needs against it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// The smallest of the kernel's available memory and the room in the process's control groups
/// (versions 1 and 2), in bytes. Unknown limits count as none. `root` is where /proc and /sys are,
/// for tests; `process` is a process number, or this process.
std::size_t available_memory(const std::filesystem::path& root = "/",
                             std::string_view process = "self");

/// The smallest memory limit of the process's control groups, in bytes; none: no limit is visible.
std::optional<std::size_t> group_memory_limit(const std::filesystem::path& root = "/",
                                              std::string_view process = "self");

/// Seconds until processes fill `room` bytes if they go on as in a window in which they grew by
/// `grown` bytes; empty: they grew by less than 16 MiB, which says nothing.
std::optional<double> seconds_to_fill(double grown, double window_s, double room);
/// A shorter time is worth a warning.
inline constexpr double kSecondsToFillSoon = 7200;

/// Memory that is about to be allocated. `bytes` is proportional to the value of each flag.
struct MemoryNeed {
  struct Factor {
    std::string_view flag;
    double value = 1;
  };
  std::string what;
  double bytes = 0;
  std::vector<Factor> factors{};
  std::string advice{};  ///< another way to save memory
};

/// Throws ConfigError if `needs` together exceed `available` bytes. The message names each need,
/// the largest value of each flag with which they would fit, and their advice.
void require_memory(std::span<const MemoryNeed> needs, std::size_t available = available_memory());

}  // namespace penstock
