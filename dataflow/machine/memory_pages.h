// SPDX-License-Identifier: Apache-2.0
// Allocates host memory with chosen page sizes, moves pages to a NUMA node, and asks the kernel
// what it did. It makes the system calls directly: the few that are needed do not justify a
// library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <span>

#include "dataflow/device.h"

namespace penstock {

/// Pages of the usual size, or 2 MiB pages from the machine's reserved pool.
enum class PageChoice : std::uint8_t { small, explicit_huge };

/// Zeroed memory, aligned to at least 4096 bytes. Empty if the system has no such pages.
Buffer allocate_pages(std::size_t bytes, PageChoice pages);

/// Moves pages to a NUMA node and keeps them there. False: the system refuses; errno has the
/// reason.
bool move_to_node(std::span<std::byte> memory, std::int32_t node) noexcept;

/// The node of the first of these pages; -1 if the kernel does not tell.
std::int32_t node_of(std::span<const std::byte> memory) noexcept;

/// The number of bytes in [begin, end) that are in huge pages of either kind, from text in the form
/// of /proc/self/smaps. The text describes whole mappings. If a mapping extends beyond these
/// addresses, its huge pages count as inside them up to the size of the overlap.
std::uint64_t huge_bytes(std::istream& smaps, std::uintptr_t begin, std::uintptr_t end);

}  // namespace penstock
