// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/kernels/batch_norm.h"

#include "trainer/backends/gpu/kernels/device_launch.cuh"

namespace penstock::gpu {

PENSTOCK_LAUNCHES(BatchNormSums)
PENSTOCK_LAUNCHES(BatchNormFinish)
PENSTOCK_LAUNCHES(BatchNormFromRunning)
PENSTOCK_LAUNCHES(BatchNormBackwardSums)
PENSTOCK_LAUNCHES(BatchNormBackwardFinish)
PENSTOCK_LAUNCHES(BatchNormBackwardApply)

}  // namespace penstock::gpu
