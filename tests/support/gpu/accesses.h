// SPDX-License-Identifier: Apache-2.0
// Derives from an operation's arguments the memory that it reads and writes.
//
// Tables of chunks are read from memory, so call this when the operation is about to run, not when
// it is enqueued. The range of CopyChannels extends from the first to the last row. It includes the
// channels between, which the operation may leave unchanged.
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

/// The names of the structs in KernelCall, such as "ScaleShift".
const std::vector<std::string>& kernel_names();
inline const std::string& name_of(const KernelCall& call) { return kernel_names()[call.index()]; }
Accesses accesses_of(const KernelCall& call);
/// The tensors of a graph that one operation reads and writes.
struct Operands {
  std::vector<DnnTensorId> reads, writes;
};
Operands operands_of(const DnnOperation& operation);
/// Tensors that operations write also count as read if operations read them.
Accesses accesses_of(const DnnGraph& graph, std::span<std::byte* const> tensors);

}  // namespace penstock::gpu
