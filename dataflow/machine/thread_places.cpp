// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/thread_places.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <set>

#include "dataflow/error.h"
#include "dataflow/machine/kernel_file.h"
#include "dataflow/options.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

/// More than any kernel supports.
constexpr std::int64_t kMostCpus = 1 << 16;

[[noreturn]] void refuse(std::string_view text, std::string_view what) {
  throw ConfigError("{} is '{}'; expected numbers and ranges such as 0-3+8, each number once", what,
                    text);
}

std::int64_t parse_cpu(std::string_view text, std::string_view whole, std::string_view what) {
  constexpr std::size_t kDigits = 6;
  const auto number = parse_number<std::uint32_t>(text);
  if (!number || text.size() > kDigits || *number >= kMostCpus) refuse(whole, what);
  return *number;
}

/// The list in one of the kernel's files; empty if the file is missing or empty.
std::vector<std::int32_t> read_list(const fs::path& path) {
  const std::optional<std::string> text = KernelFile(path).first_line();
  return text ? parse_cpu_list(*text, path.native()) : std::vector<std::int32_t>{};
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
    const auto node = static_cast<std::int32_t>(parse_cpu(number, number, "a NUMA node"));
    for (const std::int32_t cpu : read_list(entry.path() / "cpulist")) nodes[cpu] = node;
  }
  return nodes;
}

/// A node's processors, with the first processor of every core before any second one.
std::vector<Cpu> cores_first(std::vector<Cpu> cpus) {
  std::map<std::int32_t, std::int32_t> seen;  // processors seen so far per core
  std::vector<std::pair<std::int32_t, Cpu>> ranked;
  for (const Cpu& cpu : cpus) ranked.emplace_back(seen[cpu.core]++, cpu);
  std::ranges::stable_sort(ranked, {}, [](const auto& entry) { return entry.first; });
  std::ranges::transform(ranked, cpus.begin(), [](const auto& entry) { return entry.second; });
  return cpus;
}

/// Takes one processor of each node in turn, until no node has any left.
std::vector<Cpu> spread(const std::vector<Cpu>& cpus) {
  std::map<std::int32_t, std::vector<Cpu>> by_node;
  for (const Cpu& cpu : cpus) by_node[cpu.node].push_back(cpu);
  for (auto& [node, of_node] : by_node) of_node = cores_first(std::move(of_node));
  std::vector<Cpu> result;
  for (std::size_t turn = 0; result.size() < cpus.size(); ++turn) {
    for (const auto& [node, of_node] : by_node) {
      if (turn < of_node.size()) result.push_back(of_node[turn]);
    }
  }
  return result;
}

std::vector<Cpu> listed(const std::vector<Cpu>& allowed, const std::string& list) {
  std::vector<Cpu> cpus;
  for (const std::int32_t id : parse_cpu_list(list, "queue: option 'cores'")) {
    const auto found = std::ranges::find(allowed, id, &Cpu::id);
    if (found == allowed.end()) {
      std::vector<std::int32_t> ids;
      std::ranges::transform(allowed, std::back_inserter(ids), &Cpu::id);
      throw ConfigError(
          "queue: option 'cores' is '{}', but this process may not run on {}; expected some of {}, "
          "or allow more cores with taskset or the cgroup",
          list, id, fmt::join(ids, ", "));
    }
    cpus.push_back(*found);
  }
  return cpus;
}

std::vector<Cpu> of_nodes(const std::vector<Cpu>& cpus, const std::string& list) {
  const std::vector<std::int32_t> nodes = parse_cpu_list(list, "queue: option 'numa'");
  std::vector<Cpu> result;
  std::ranges::copy_if(cpus, std::back_inserter(result), [&](const Cpu& cpu) {
    return std::ranges::find(nodes, cpu.node) != nodes.end();
  });
  for (const std::int32_t node : nodes) {
    if (std::ranges::find(result, node, &Cpu::node) != result.end()) continue;
    std::set<std::int32_t> known;
    for (const Cpu& cpu : cpus) known.insert(cpu.node);
    throw ConfigError(
        "queue: option 'numa' is '{}', and node {} has no processor that threads may run on; "
        "expected some of {}",
        list, node, fmt::join(known, ", "));
  }
  return result;
}

}  // namespace

std::vector<std::int32_t> parse_cpu_list(std::string_view text, std::string_view what) {
  std::vector<std::int32_t> cpus;
  std::vector<bool> known(kMostCpus);
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(",+", begin), text.size());
    const std::string_view item = text.substr(begin, end - begin);
    const std::size_t dash = item.find('-');
    const std::int64_t first = parse_cpu(item.substr(0, dash), text, what);
    const std::int64_t last =
        dash == std::string_view::npos ? first : parse_cpu(item.substr(dash + 1), text, what);
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

std::vector<Cpu> choose_places(std::int32_t threads, const std::vector<Cpu>& allowed,
                               const PlaceChoice& choice) {
  if (choice.cores.empty() && choice.nodes.empty()) return {};
  const bool in_order = !choice.cores.empty() && choice.cores != "auto";
  std::vector<Cpu> places = in_order ? listed(allowed, choice.cores) : allowed;
  if (!choice.nodes.empty()) places = of_nodes(places, choice.nodes);
  if (!in_order) places = spread(places);
  places.resize(std::min(places.size(), static_cast<std::size_t>(threads)));
  return places;
}

std::string describe_places(const std::vector<Cpu>& places) {
  std::string text;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto& [id, node, core] = places[i];
    text += i == 0 ? fmt::format("thread 0 on core {} (node {})", id, node)
                   : fmt::format(", {} on {} ({})", i, id, node);
  }
  return text;
}

PinnedThread::PinnedThread(const Cpu& cpu) {
  CPU_ZERO(&before_);
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<std::size_t>(cpu.id), &only);
  if (sched_getaffinity(0, sizeof before_, &before_) != 0 ||
      sched_setaffinity(0, sizeof only, &only) != 0) {
    throw ConfigError(
        "cannot pin a thread to core {}: {}; leave the options 'cores' and 'numa' out", cpu.id,
        std::strerror(errno));
  }
}

PinnedThread::~PinnedThread() { sched_setaffinity(0, sizeof before_, &before_); }

}  // namespace penstock
