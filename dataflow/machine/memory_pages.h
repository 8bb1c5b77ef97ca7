// SPDX-License-Identifier: Apache-2.0
// Host memory whose pages are chosen, or moved to a NUMA node; and what the kernel made of it.
// System calls alone: the few that are needed are not worth a library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <span>

#include "dataflow/device.h"

namespace penstock {

/// Pages of the usual size, or of 2 MiB from those that the machine sets apart.
enum class PageChoice : std::uint8_t { small, explicit_huge };

/// Zeros, aligned to 4096 bytes at least. Empty where the system has no such pages.
Buffer allocate_pages(std::size_t bytes, PageChoice pages);

/// Moves pages to a NUMA node, and keeps them there. False: the system refuses, and errno says why.
bool move_to_node(std::span<std::byte> memory, std::int32_t node) noexcept;

/// The node that holds the first of these pages; -1: the kernel does not tell.
std::int32_t node_of(std::span<const std::byte> memory) noexcept;

/// How much of the addresses [begin, end) lies in huge pages of either kind, in bytes, as a text of
/// the form of /proc/self/smaps says. It tells of whole mappings: of one that goes beyond these
/// addresses, huge pages are taken to be here as far as they fit.
std::uint64_t huge_bytes(std::istream& smaps, std::uintptr_t begin, std::uintptr_t end);

}  // namespace penstock
