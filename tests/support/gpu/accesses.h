// SPDX-License-Identifier: Apache-2.0
// The memory that an operation reads and writes, derived from its arguments alone.
//
// Tables of chunks are read from the memory that they lie in, so ask when the operation is about to
// run, not when it is enqueued. Ranges of CopyChannels run from the first to the last row and
// include the channels between, which it may leave alone.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "trainer/backends/gpu/dnn_graph.h"
#include "trainer/backends/gpu/kernel_calls.h"

namespace penstock::gpu {

struct MemoryRange {
  const std::byte* begin = nullptr;
  std::size_t bytes = 0;
  bool operator==(const MemoryRange&) const = default;
};

struct Accesses {
  std::vector<MemoryRange> reads{}, writes{};
  std::size_t bytes() const;
};

/// The struct's name, such as "ScaleShift".
std::string name_of(const KernelCall& call);
Accesses accesses_of(const KernelCall& call);
/// Tensors that operations write count as read, too, where operations read them.
Accesses accesses_of(const DnnGraph& graph, std::span<std::byte* const> tensors);

}  // namespace penstock::gpu
