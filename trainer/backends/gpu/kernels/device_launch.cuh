// SPDX-License-Identifier: Apache-2.0
// Launches the kernel of a call. Calls are instantiated in groups, one .cu file per group, so that
// the groups compile in parallel.
#pragma once

#include <cuda_runtime.h>

#include "trainer/backends/gpu/kernels/device_block.cuh"
#include "trainer/backends/gpu/kernels/geometry.h"
#include "trainer/backends/gpu/kernels/select.h"

namespace penstock::gpu {

/// Returns what cudaGetLastError() says after the launch; cudaErrorInvalidValue if there is no
/// kernel for the call's types.
template <class Call>
cudaError_t launch_on_device(const Call& call, cudaStream_t stream);

/// Threads that a multiprocessor can hold. GPUs that are not for data centres hold fewer.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ != 800 && __CUDA_ARCH__ != 900 && \
    __CUDA_ARCH__ != 1000 && __CUDA_ARCH__ != 1030
constexpr std::int32_t kMultiprocessorThreads = 1536;
#else
constexpr std::int32_t kMultiprocessorThreads = 2048;
#endif

/// The call stays in the memory of the kernel's arguments: code can index it without a copy on the
/// stack.
template <class Body, class Call>
__global__ void __launch_bounds__(Body::kThreads, smaller(Body::kPerMultiprocessor,
                                                          kMultiprocessorThreads / Body::kThreads))
    kernel(const __grid_constant__ Call call) {
  DeviceBlock block;
  Body::run(block, call);
}

template <class Call>
cudaError_t launch_selected(const Call& call, cudaStream_t stream) {
  cudaError_t status = cudaErrorInvalidValue;
  select(call, [&]<class Body>(Selected<Body>, const Geometry& geometry, const Call& chosen) {
    const dim3 grid(static_cast<unsigned>(geometry.row_blocks),
                    static_cast<unsigned>(geometry.column_blocks));
    kernel<Body><<<grid, static_cast<unsigned>(geometry.threads), 0, stream>>>(chosen);
    status = cudaGetLastError();
  });
  return status;
}

}  // namespace penstock::gpu

/// Use in namespace penstock::gpu, after the header that defines the call's select().
#define PENSTOCK_LAUNCHES(Call)                                         \
  template <>                                                           \
  cudaError_t launch_on_device(const Call& call, cudaStream_t stream) { \
    return launch_selected(call, stream);                               \
  }
