// SPDX-License-Identifier: Apache-2.0
// Computes a DnnGraph in plain loops on the CPU: what the DNN library's plans are compared with,
// and what stands in for them where there is no GPU.
//
// Products and sums are formed in double and rounded to f32, then to the dtype of the tensor that
// takes them, virtual or not. A tensor may be read and written by one graph (y in the place of x)
// unless a convolution does both.
#pragma once

#include <cstddef>
#include <span>

#include "trainer/backends/gpu/dnn_graph.h"

namespace penstock::gpu {

/// Throws std::invalid_argument with the operation and its tensors where the shapes do not fit
/// together, an id is out of range, a dtype is no floating-point one, or a virtual tensor is read
/// before it is written.
void check(const DnnGraph& graph);

/// What becomes of operands of convolutions that are f32.
enum class F32Products { exact, tf32 };

/// `tensors` by index in a graph that passes check(); null for virtual ones. May be called from
/// several threads with different memory.
void interpret(const DnnGraph& graph, std::span<std::byte* const> tensors,
               F32Products products = F32Products::exact);

}  // namespace penstock::gpu
