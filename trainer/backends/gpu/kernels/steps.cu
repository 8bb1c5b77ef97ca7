// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/kernels/arena.h"
#include "trainer/backends/gpu/kernels/step.h"
#include "trainer/backends/gpu/kernels/update.h"

#include "trainer/backends/gpu/kernels/device_launch.cuh"

namespace penstock::gpu {

PENSTOCK_LAUNCHES(SetStep)
PENSTOCK_LAUNCHES(SetHyper)
PENSTOCK_LAUNCHES(SoftmaxCrossEntropy)
PENSTOCK_LAUNCHES(SummariseStep)
PENSTOCK_LAUNCHES(SummariseUpdate)
PENSTOCK_LAUNCHES(AdaptLossScale)
PENSTOCK_LAUNCHES(NarrowWeights)
PENSTOCK_LAUNCHES(WidenGradients)
PENSTOCK_LAUNCHES(CheckFinite)
PENSTOCK_LAUNCHES(SumSquares)
PENSTOCK_LAUNCHES(FindTrust)
PENSTOCK_LAUNCHES(UpdateWeights)
PENSTOCK_LAUNCHES(SumSlices)
PENSTOCK_LAUNCHES(WidenSums)

}  // namespace penstock::gpu
