// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/kernel_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <sstream>

#include "dataflow/machine/file_descriptor.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{16} << 20;

std::optional<std::uint64_t> number_of(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

/// The path of the process's group, relative to the root of groups. A line of /proc/PID/cgroup is
/// NUMBER:CONTROLLERS:PATH, and version 2 has the number 0.
fs::path own_group(const KernelFile& file, int version, std::string_view controller) {
  std::istringstream lines(file.text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line.substr(second + 1, 1) != "/") continue;
    const bool is_own = version == 2
                            ? line.starts_with("0:")
                            : fmt::format(",{},", line.substr(first + 1, second - first - 1))
                                      .find(fmt::format(",{},", controller)) != std::string::npos;
    if (is_own) return line.substr(second + 2);
  }
  return {};
}

}  // namespace

KernelFile::KernelFile(const fs::path& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) {
    error = errno;
    return;
  }
  std::array<char, 4096> part{};
  while (text.size() < kMostBytes) {
    const ssize_t count = read(file.get(), part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) error = errno;
    if (count <= 0) return;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
}

std::optional<std::string> KernelFile::first_line() const {
  const std::string line = text.substr(0, text.find('\n'));
  return line.empty() ? std::nullopt : std::optional(line);
}

std::optional<std::uint64_t> KernelFile::number() const { return number_of(text); }

std::optional<std::string> KernelFile::field(std::string_view key) const {
  constexpr std::string_view kEnds = " \t:";  // of a key
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key) || line.size() == key.size()) continue;
    if (kEnds.find(line[key.size()]) == std::string_view::npos) continue;
    const std::size_t begin = line.find_first_not_of(kEnds, key.size());
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> KernelFile::value(std::string_view key) const {
  const std::optional<std::string> rest = field(key);
  return rest ? number_of(*rest) : std::nullopt;
}

std::optional<std::uint64_t> KernelFile::pressure_us(std::string_view kind) const {
  // some avg10=0.00 avg60=0.00 avg300=0.00 total=123
  constexpr std::string_view kTotal = "total=";
  const std::string rest = field(kind).value_or("");
  const std::size_t at = rest.find(kTotal);
  if (at == std::string::npos) return std::nullopt;
  return number_of(rest.substr(at + kTotal.size()));
}

std::vector<ControlGroup> control_groups(std::string_view process, std::string_view controller,
                                         const fs::path& root) {
  const fs::path mounted = root / "sys/fs/cgroup";
  const KernelFile file(root / "proc" / process / "cgroup");
  std::error_code missing;
  std::vector<ControlGroup> groups;
  for (const int version : {1, 2}) {
    // Systems with both versions mount version 2 at "unified".
    fs::path folder = version == 1                               ? mounted / controller
                      : fs::exists(mounted / "unified", missing) ? mounted / "unified"
                                                                 : mounted;
    groups.push_back({version, folder});
    for (const fs::path& part : own_group(file, version, controller)) {
      if (part.empty()) continue;
      if (part == "..") break;
      folder /= part;
      groups.push_back({version, folder});
    }
  }
  return groups;
}

std::optional<double> cpu_quota(std::string_view process, const fs::path& root) {
  std::optional<double> quota;
  const auto limit = [&](std::optional<std::uint64_t> share, std::optional<std::uint64_t> period) {
    if (!share || *share == 0 || period.value_or(0) == 0) return;
    const double cores = static_cast<double>(*share) / static_cast<double>(*period);
    quota = std::min(quota.value_or(cores), cores);
  };
  for (const auto& [version, folder] : control_groups(process, "cpu", root)) {
    if (version == 1) {  // -1 stands for no quota
      limit(KernelFile(folder / "cpu.cfs_quota_us").number(),
            KernelFile(folder / "cpu.cfs_period_us").number());
    } else {  // "max 100000" or "150000 100000"
      const KernelFile file(folder / "cpu.max");
      limit(file.number(),
            number_of(file.text.substr(std::min(file.text.find(' '), file.text.size()))));
    }
  }
  return quota;
}

}  // namespace penstock
