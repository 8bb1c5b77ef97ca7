// SPDX-License-Identifier: Apache-2.0
// Our kernels on a CUDA device.
#pragma once

#include "trainer/backends/gpu/kernel_calls.h"

namespace penstock::gpu {

/// Enqueues the call on a cudaStream_t of the current device and returns what cudaGetLastError()
/// then says: 0 if all is well. The call may be recorded.
int launch(const KernelCall& call, void* stream) noexcept;

}  // namespace penstock::gpu
