// SPDX-License-Identifier: Apache-2.0
// Marks small functions that CUDA kernels also call.
#pragma once

#ifdef __CUDACC__
#define PENSTOCK_HOST_DEVICE __host__ __device__
#else
#define PENSTOCK_HOST_DEVICE
#endif
