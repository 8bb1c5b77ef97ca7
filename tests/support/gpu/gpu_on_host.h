// SPDX-License-Identifier: Apache-2.0
// The gpu backend on the host: the whole backend except the vendor's library.
#pragma once

#include "trainer/backend.h"

namespace penstock {

/// Its device emulates a GPU of 1 GiB and runs its work as late as possible. Takes gpu's options.
extern constinit const BackendEntry gpu_on_host_backend;
/// gpu:fused=on and gpu:stem_blocks=on by default. fused: with engines for all graphs. hopper: with
/// engines for the graphs that cuDNN supports on Hopper.
extern constinit const BackendEntry gpu_on_host_fused_backend, gpu_on_host_hopper_backend;

}  // namespace penstock
