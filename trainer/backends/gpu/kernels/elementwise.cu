// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/kernels/channels.h"
#include "trainer/backends/gpu/kernels/elementwise.h"
#include "trainer/backends/gpu/kernels/lrn.h"

#include "trainer/backends/gpu/kernels/device_launch.cuh"

namespace penstock::gpu {

PENSTOCK_LAUNCHES(ScaleShift)
PENSTOCK_LAUNCHES(ReluBackward)
PENSTOCK_LAUNCHES(ColumnSums)
PENSTOCK_LAUNCHES(ColumnFinish)
PENSTOCK_LAUNCHES(CopyChannels)
PENSTOCK_LAUNCHES(DropoutApply)
PENSTOCK_LAUNCHES(LrnForward)
PENSTOCK_LAUNCHES(LrnBackward)
PENSTOCK_LAUNCHES(Normalise)
PENSTOCK_LAUNCHES(ReorderStem)

}  // namespace penstock::gpu
