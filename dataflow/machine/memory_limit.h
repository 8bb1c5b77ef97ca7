// SPDX-License-Identifier: Apache-2.0
// Finds how much more memory this process may use, and checks needs against it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// The smallest of the kernel's available memory and the room in the process's control groups
/// (versions 1 and 2), in bytes. Unknown limits count as none. `root` is where /proc and /sys are,
/// for tests.
std::size_t available_memory(const std::filesystem::path& root = "/");

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
