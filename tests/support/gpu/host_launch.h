// SPDX-License-Identifier: Apache-2.0
// The gpu backend's kernels, run on the host: the same bodies, grids and blocks as on the device.
#pragma once

#include "trainer/backends/gpu/kernel_calls.h"

namespace penstock::gpu {

/// Runs the call on the calling thread and returns when it is done. Its pointers are to the host's
/// memory.
void launch_on_host(const KernelCall& call);

}  // namespace penstock::gpu
