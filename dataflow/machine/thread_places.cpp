// SPDX-License-Identifier: Apache-2.0
#include "dataflow/machine/thread_places.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <set>

#include "dataflow/error.h"

namespace penstock {
namespace {

std::string list_of(const std::vector<std::int32_t>& numbers) {
  std::string text;
  for (const std::int32_t number : numbers) {
    if (!text.empty()) text += ", ";
    text += std::to_string(number);
  }
  return text;
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
      throw ConfigError("queue: option 'cores' is '" + list +
                        "', but this process may not run on " + std::to_string(id) +
                        "; expected some of " + list_of(ids) +
                        ", or allow more cores with taskset or the cgroup");
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
    throw ConfigError("queue: option 'numa' is '" + list + "', and node " + std::to_string(node) +
                      " has no processor that threads may run on; expected some of " +
                      list_of({known.begin(), known.end()}));
  }
  return result;
}

}  // namespace

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
    const Cpu& cpu = places[i];
    text += i == 0 ? "thread " : ", ";
    text += std::to_string(i);
    text += i == 0 ? " on core " : " on ";
    text += std::to_string(cpu.id);
    text += i == 0 ? " (node " : " (";
    text += std::to_string(cpu.node);
    text += ')';
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
    throw ConfigError("cannot pin a thread to core " + std::to_string(cpu.id) + ": " +
                      std::strerror(errno) + "; leave the options 'cores' and 'numa' out");
  }
}

PinnedThread::~PinnedThread() { sched_setaffinity(0, sizeof before_, &before_); }

}  // namespace penstock
