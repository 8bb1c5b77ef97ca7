// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>

#include "dataflow/error.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// More than any kernel supports.
constexpr std::int64_t kMostCpus = 1 << 16;

[[noreturn]] void refuse(std::string_view text, std::string_view what) {
  throw ConfigError(std::string(what) + " is '" + std::string(text) +
                    "'; expected numbers and ranges such as 0-3+8, each number once");
}

std::int64_t parse_number(std::string_view text, std::string_view whole, std::string_view what) {
  constexpr std::size_t kDigits = 6;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.empty() || text.size() > kDigits || !std::ranges::all_of(text, is_digit)) {
    refuse(whole, what);
  }
  const std::int64_t number = parse_integer(text, what);
  if (number >= kMostCpus) refuse(whole, what);
  return number;
}

/// The list in one of the kernel's files; empty if the file is missing or empty.
std::vector<std::int32_t> read_list(const fs::path& path) {
  std::ifstream file(path);
  std::string text;
  if (!(file >> text)) return {};
  return parse_cpu_list(text, path.native());
}

/// The node of each processor.
std::map<std::int32_t, std::int32_t> read_nodes(const fs::path& system) {
  constexpr std::string_view kPrefix = "node";
  std::map<std::int32_t, std::int32_t> nodes;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(system / "node", error)) {
    const std::string name = entry.path().filename().string();
    const std::string number = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : "";
    if (number.empty() || number.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto node = static_cast<std::int32_t>(parse_number(number, number, "a NUMA node"));
    for (const std::int32_t cpu : read_list(entry.path() / "cpulist")) nodes[cpu] = node;
  }
  return nodes;
}

}  // namespace

std::vector<std::int32_t> parse_cpu_list(std::string_view text, std::string_view what) {
  std::vector<std::int32_t> cpus;
  std::vector<bool> known(kMostCpus);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(",+", begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    const std::size_t dash = item.find('-');
    const std::int64_t first = parse_number(item.substr(0, dash), text, what);
    const std::int64_t last =
        dash == std::string_view::npos ? first : parse_number(item.substr(dash + 1), text, what);
    if (last < first) refuse(text, what);
    for (std::int64_t cpu = first; cpu <= last; ++cpu) {
      if (known[static_cast<std::size_t>(cpu)]) refuse(text, what);
      known[static_cast<std::size_t>(cpu)] = true;
      cpus.push_back(static_cast<std::int32_t>(cpu));
    }
    begin = end + 1;
  }
  return cpus;
}

std::vector<Cpu> read_cpu_topology(const std::vector<std::int32_t>& cpus, const fs::path& system) {
  const std::map<std::int32_t, std::int32_t> nodes = read_nodes(system);
  std::vector<Cpu> topology;
  for (const std::int32_t id : cpus) {
    const auto node = nodes.find(id);
    const std::vector<std::int32_t> siblings = read_list(
        system / "cpu" / ("cpu" + std::to_string(id)) / "topology" / "thread_siblings_list");
    topology.push_back({.id = id,
                        .node = node == nodes.end() ? 0 : node->second,
                        .core = siblings.empty() ? id : *std::ranges::min_element(siblings)});
  }
  return topology;
}

std::vector<std::int32_t> allowed_cpus() {
  std::vector<std::int32_t> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(static_cast<std::int32_t>(cpu));
  }
  return cpus;
}

}  // namespace penstock
