// SPDX-License-Identifier: Apache-2.0
// Computes a DnnGraph in plain loops on the CPU. Tests compare the DNN library's plans with it, and
// use it instead of them if there is no GPU.
//
// Products and sums are computed in double and rounded to f32, then to the dtype of the tensor that
// holds them, virtual or not. One graph may read and write the same tensor (y in the place of x),
// unless a convolution does both.
#pragma once

#include <cstddef>
#include <span>

#include "trainer/backends/gpu/dnn_graph.h"

namespace penstock::gpu {

/// Throws std::invalid_argument with the operation and its tensors if shapes do not match, an id is
/// out of range, a dtype is not floating-point, or a virtual tensor is read before it is written.
void check(const DnnGraph& graph);

/// How f32 operands of convolutions are rounded.
enum class F32Products { exact, tf32 };

/// `tensors` is indexed like the tensors of a graph that passes check(); null for virtual ones.
/// Several threads may call it with different memory.
void interpret(const DnnGraph& graph, std::span<std::byte* const> tensors,
               F32Products products = F32Products::exact);

}  // namespace penstock::gpu
