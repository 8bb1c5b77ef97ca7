// SPDX-License-Identifier: Apache-2.0
#include "bench/run/slot_memory.h"

#include <fmt/format.h>

#include <fstream>
#include <set>
#include <utility>

#include "dataflow/machine/memory_pages.h"

namespace penstock {

void SlotMemory::say_once(const char* sentence) {
  if (!std::exchange(said_, true)) probe_.note(sentence);
}

Buffer SlotMemory::allocate(std::size_t bytes, MemoryKind kind) {
  if (pages_ == "transparent") return device_.allocate(bytes, kind);
  if (!device_.takes_any_memory()) {
    say_once("--huge-pages has no effect: slots that this device copies from are its driver's");
    return device_.allocate(bytes, kind);
  }
  Buffer buffer =
      allocate_pages(bytes, pages_ == "explicit" ? PageChoice::explicit_huge : PageChoice::small);
  if (!buffer.bytes().empty()) return buffer;
  say_once(
      "--huge-pages explicit: the machine has not enough huge pages set apart (vm.nr_hugepages); "
      "the slots have transparent ones");
  return device_.allocate(bytes, kind);
}

void add_slot_map(RunResult& result, const BatchRing& ring) {
  double bytes = 0, huge = 0;
  std::set<std::string> nodes;
  for (std::size_t slot = 0; slot < ring.slots(); ++slot) {
    const std::span<std::byte> memory = ring.memory(slot);
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    std::ifstream smaps("/proc/self/smaps");
    bytes += static_cast<double>(memory.size());
    huge += static_cast<double>(huge_bytes(smaps, begin, begin + memory.size()));
    const std::int32_t node = node_of(memory);
    if (node >= 0) result.facts[fmt::format("slot_{}_node", slot)] = node;
    nodes.insert(node < 0 ? "unknown" : fmt::format("{}", node));
  }
  const double mib = bytes / (1 << 20), percent = 100 * huge / bytes;
  result.facts["slots_mib"] = mib;
  result.facts["slots_huge_page_percent"] = percent;
  result.notes.push_back(fmt::format(
      "slots: {} of {:.1f} MiB, on NUMA node{} {}, {:.0f} % in huge pages (--huge-pages {})",
      ring.slots(), mib / static_cast<double>(ring.slots()), nodes.size() == 1 ? "" : "s",
      fmt::join(nodes, " and "), percent, result.config.huge_pages));
}

}  // namespace penstock
