// SPDX-License-Identifier: Apache-2.0
// Marks of the harness as NVTX ranges in their own domain, which Nsight Systems shows beside the
// kernels.
#pragma once

#include "dataflow/mark.h"

namespace penstock::gpu {

/// Null if no tool watches the process; marks then cost nothing.
const MarkFunctions* nvtx_marks() noexcept;

}  // namespace penstock::gpu
