// SPDX-License-Identifier: Apache-2.0
// Launches Penstock's kernels on a CUDA device.
#pragma once

#include "trainer/backends/gpu/kernel_calls.h"

namespace penstock::gpu {

/// Enqueues the call on a cudaStream_t of the current device and returns a cudaError_t: 0 for
/// success, cudaErrorInvalidValue if the call has no kernel for its element type. The call may be
/// recorded.
int launch(const KernelCall& call, void* stream) noexcept;

}  // namespace penstock::gpu
