// SPDX-License-Identifier: Apache-2.0
#include "bench/run/device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "bench/run/run_parts.h"

namespace penstock {
namespace {

/// Adds what each GPU used in one part of the window; an interval without a sample repeats the part
/// before it.
void add_part(const std::map<std::string, double>& facts, std::map<int, MemoryUse>& gpus) {
  for (auto& [number, gpu] : gpus) gpu.mib.push_back(gpu.mib.empty() ? 0 : gpu.mib.back());
  for (const auto& [name, mib] : facts) {
    int number = 0;
    if (!name.ends_with("_memory_mib_max") || std::sscanf(name.c_str(), "gpu%d_", &number) != 1) {
      continue;
    }
    MemoryUse& gpu = gpus[number];
    if (gpu.mib.empty()) gpu.mib.push_back(mib);
    gpu.mib.back() = mib;
    gpu.peak_mib = std::max(gpu.peak_mib, mib);
  }
}

/// The ring, weights, gradients and running statistics of a rank, and its share of what the backend
/// says that activations take.
double allocated_mib(const RunParts& run, const RunParts::Rank& rank) {
  const ParameterSet& set = rank.executable->parameters();
  const std::size_t elements = set.weights.count + set.gradients.count + set.running.count;
  const std::size_t bytes =
      rank.ring->slots() * rank.ring->spec().bytes() + elements * sizeof(float);
  const std::map<std::string, double> facts = run.setup.backend->facts();
  const auto activations = facts.find("activation_mib");
  return static_cast<double>(bytes) / (1 << 20) +
         (activations == facts.end() ? 0
                                     : activations->second / static_cast<double>(run.ranks.size()));
}

}  // namespace

std::vector<MemoryUse> device_memory(const RunParts& run, Time from, Time to, std::size_t parts) {
  constexpr Nanoseconds kSampled = std::chrono::seconds(1);  // by the GPUs' backend
  const auto count =
      std::clamp<std::int64_t>((to - from) / kSampled, 1, static_cast<std::int64_t>(parts));
  std::map<int, MemoryUse> gpus;
  for (std::int64_t part = 0; part < count; ++part) {
    const Nanoseconds length = to - from;
    add_part(run.setup.backend
                 ->condition(from + part * length / count, from + (part + 1) * length / count)
                 .facts,
             gpus);
  }
  std::vector<MemoryUse> uses;
  for (auto& [number, gpu] : gpus) {
    gpu.name = fmt::format("device {}", number);
    uses.push_back(std::move(gpu));
  }
  if (!uses.empty()) return uses;
  for (const RunParts::Rank& rank : run.ranks) {
    const double mib = allocated_mib(run, rank);
    uses.push_back({fmt::format("device {}", uses.size()), mib, {mib}});
  }
  return uses;
}

}  // namespace penstock
