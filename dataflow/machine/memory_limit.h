// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// The smallest of what the kernel calls available and what the process's control groups leave, in
/// bytes; groups of version 1 and 2. Unknown limits count as none. `root` is where /proc and /sys
/// are, for tests.
std::size_t available_memory(const std::filesystem::path& root = "/");

/// Memory that is about to be taken: `bytes`, proportional to the value of each of the flags.
struct MemoryNeed {
  struct Factor {
    std::string_view flag;
    double value = 1;
  };
  std::string what;
  double bytes = 0;
  std::vector<Factor> factors{};
  std::string advice{};  ///< what else would help
};

/// Throws ConfigError if `needs` are together more than `available` bytes: with each of them, with
/// the largest value of each flag at which they would fit, and with their advice.
void require_memory(std::span<const MemoryNeed> needs, std::size_t available = available_memory());

}  // namespace penstock
