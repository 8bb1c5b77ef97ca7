// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gpu/host_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "dataflow/error.h"

namespace penstock::gpu {
namespace {

constexpr std::align_val_t kAlignment{256};

}  // namespace

HostMemory::~HostMemory() {
  for (const auto& [data, block] : blocks_) {
    if (!block.foreign) ::operator delete(const_cast<std::byte*>(data), kAlignment);
  }
}

std::byte* HostMemory::allocate(std::size_t bytes, MemoryKind kind) {
  PENSTOCK_ASSERT(kind != MemoryKind::host);
  auto* const data =
      static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), kAlignment));
  std::memset(data, 0xFF, bytes);
  const char* const name = kind == MemoryKind::pinned ? "pinned" : "device";
  add(data, {bytes, kind, fmt::format("{} block {}", name, made_++), false});
  return data;
}

void HostMemory::add(const std::byte* data, Block block) {
  order_.add_block(data, block.bytes, block.name);
  blocks_[data] = std::move(block);
}

void HostMemory::free(std::byte* data) {
  PENSTOCK_ASSERT(blocks_.erase(data) == 1);
  ::operator delete(data, kAlignment);
}

void HostMemory::add_foreign(std::span<const std::byte> memory) {
  add(memory.data(),
      {memory.size(), MemoryKind::pinned, fmt::format("foreign block {}", made_++), true});
}

void HostMemory::forget_foreign(const std::byte* data) {
  const auto found = blocks_.find(data);
  PENSTOCK_ASSERT(found != blocks_.end() && found->second.foreign);
  blocks_.erase(found);
}

std::map<const std::byte*, HostMemory::Block>::const_iterator HostMemory::place(
    const std::byte* data) const {
  auto after = blocks_.upper_bound(data);
  if (after == blocks_.begin()) return blocks_.end();
  const auto last = std::prev(after);
  const bool within = data == last->first || data < last->first + last->second.bytes;
  return within ? last : blocks_.end();
}

const HostMemory::Block* HostMemory::find(const std::byte* data) const {
  const auto found = place(data);
  return found == blocks_.end() ? nullptr : &found->second;
}

void HostMemory::check(const std::string& operation, const Accesses& accesses,
                       bool pageable) const {
  for (const auto* ranges : {&accesses.reads, &accesses.writes}) {
    for (const MemoryRange& range : *ranges) {
      const auto found = place(range.begin);
      if (found == blocks_.end() && pageable) continue;
      if (found == blocks_.end()) {
        throw std::logic_error(fmt::format(
            "{} {} {} bytes at {}, where there is no device or pinned memory (any more); give it "
            "memory of the driver that lives until the work is done",
            operation, ranges == &accesses.reads ? "reads" : "writes", range.bytes,
            static_cast<const void*>(range.begin)));
      }
      const auto offset = static_cast<std::size_t>(range.begin - found->first);
      if (offset + range.bytes > found->second.bytes) {
        throw std::logic_error(fmt::format(
            "{} {} bytes [{}, {}) of {}, which has {} bytes; make the block larger or the work "
            "smaller",
            operation, ranges == &accesses.reads ? "reads" : "writes", offset, offset + range.bytes,
            found->second.name, found->second.bytes));
      }
    }
  }
}

}  // namespace penstock::gpu
