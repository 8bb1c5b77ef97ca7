// SPDX-License-Identifier: Apache-2.0
// Our kernels on a CUDA device.
#pragma once

#include "trainer/backends/gpu/kernel_calls.h"

namespace penstock::gpu {

/// Enqueues the call on a cudaStream_t of the current device and returns a cudaError_t: 0 if all is
/// well, cudaErrorInvalidValue for a type of elements that the call has no kernel for. The call may
/// be recorded.
int launch(const KernelCall& call, void* stream) noexcept;

}  // namespace penstock::gpu
