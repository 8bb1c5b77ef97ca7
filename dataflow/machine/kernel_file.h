// SPDX-License-Identifier: Apache-2.0
// Reads the small text files in which Linux reports its state, below /proc and /sys, and finds the
// control groups of a process. `root` is the folder that has /proc and /sys; tests set another one.
// Any thread may call these functions. They throw only when memory ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// The text of one file, at most 16 MiB. Numbers are those that fit into 64 bits without a sign;
/// other texts, such as "max", are no numbers.
struct KernelFile {
  explicit KernelFile(const std::filesystem::path& path);

  std::string text;
  int error = 0;  ///< the error number if the file could not be read

  /// None if it is empty.
  std::optional<std::string> first_line() const;
  /// The number at the beginning of the text.
  std::optional<std::uint64_t> number() const;
  /// The text after `key` in a file of lines "key value" or "key: value".
  std::optional<std::string> field(std::string_view key) const;
  std::optional<std::uint64_t> value(std::string_view key) const;
  /// Pressure stall information: how long `kind` ("some" or "full") tasks waited, in microseconds.
  std::optional<std::uint64_t> pressure_us(std::string_view kind = "some") const;
};

struct ControlGroup {
  int version = 2;
  std::filesystem::path folder;
};

/// The control groups of a process for one controller, such as "cpu": of version 1, then of version
/// 2, each from its root down to the group of the process. Folders may be missing. `process` is a
/// number or "self". A group outside this process's namespace is not visible: only the groups above
/// it are listed.
std::vector<ControlGroup> control_groups(std::string_view process, std::string_view controller,
                                         const std::filesystem::path& root = "/");

/// The smallest CPU quota of the process's control groups, in cores; none: no quota is visible.
std::optional<double> cpu_quota(std::string_view process, const std::filesystem::path& root = "/");

}  // namespace penstock
