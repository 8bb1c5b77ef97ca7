// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/kernels/pools.h"

#include "trainer/backends/gpu/kernels/device_launch.cuh"

namespace penstock::gpu {

PENSTOCK_LAUNCHES(AvgPoolForward)
PENSTOCK_LAUNCHES(AvgPoolBackward)
PENSTOCK_LAUNCHES(MaxPoolForward)
PENSTOCK_LAUNCHES(MaxPoolBackward)

}  // namespace penstock::gpu
