// SPDX-License-Identifier: Apache-2.0
// Marks as ranges of NVTX, in a domain of our own: what Nsight Systems shows beside the kernels.
#pragma once

#include "dataflow/mark.h"

namespace penstock::gpu {

/// Null unless a tool watches the process: without one there is nothing to tell, at no cost.
const MarkFunctions* nvtx_marks() noexcept;

}  // namespace penstock::gpu
