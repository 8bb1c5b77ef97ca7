// SPDX-License-Identifier: Apache-2.0
// The gpu backend on the host: everything of it but the vendor's library.
#pragma once

#include "trainer/backend.h"

namespace penstock {

/// Its device plays a GPU of 1 GiB whose work is done as late as possible. Takes gpu's options.
extern constinit const BackendEntry gpu_on_host_backend;
/// gpu:fused=on by default, with engines for all graphs, or for those that cuDNN has on Hopper.
extern constinit const BackendEntry gpu_on_host_fused_backend, gpu_on_host_hopper_backend;

}  // namespace penstock
