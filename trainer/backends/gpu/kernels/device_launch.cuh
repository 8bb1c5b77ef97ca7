// SPDX-License-Identifier: Apache-2.0
// Launches the kernel of a call. Calls are instantiated in groups, one .cu file per group, so that
// the groups compile in parallel.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer/backends/gpu/kernels/block.h"
#include "trainer/backends/gpu/kernels/geometry.h"
#include "trainer/backends/gpu/kernels/select.h"

namespace penstock::gpu {

/// The device's implementation of a block (see block.h). Barriers exist only between phases: a
/// kernel with one phase has none.
class DeviceBlock {
 public:
  PENSTOCK_DEVICE std::int32_t row_block() const { return static_cast<std::int32_t>(blockIdx.x); }
  PENSTOCK_DEVICE std::int32_t row_blocks() const { return static_cast<std::int32_t>(gridDim.x); }
  PENSTOCK_DEVICE std::int32_t column_block() const {
    return static_cast<std::int32_t>(blockIdx.y);
  }
  PENSTOCK_DEVICE std::int32_t threads() const { return static_cast<std::int32_t>(blockDim.x); }

  template <class Phase>
  PENSTOCK_DEVICE void for_each_thread(const Phase& phase) {
    barrier();
    phase(static_cast<std::int32_t>(threadIdx.x));
  }

  template <class T>
  PENSTOCK_DEVICE T& shared() {
    __shared__ T memory;
    return memory;
  }

  /// Lives in a register.
  template <class T>
  class PerThread {
   public:
    PENSTOCK_DEVICE explicit PerThread(const DeviceBlock&) {}
    PENSTOCK_DEVICE T& operator[](std::int32_t) { return value_; }
    PENSTOCK_DEVICE const T& operator[](std::int32_t) const { return value_; }

   private:
    T value_{};
  };

  template <class T>
  PENSTOCK_DEVICE T sum(const PerThread<T>& state) {
    return combine(state, [](T a, T b) { return a + b; });
  }
  template <class T>
  PENSTOCK_DEVICE T largest(const PerThread<T>& state) {
    return combine(state, [](T a, T b) { return larger(a, b); });
  }

 private:
  PENSTOCK_DEVICE void barrier() {
    if (used_) __syncthreads();
    used_ = true;
  }
  /// Combines values in a tree over each warp, then over the warps in order.
  template <class T, class Two>
  PENSTOCK_DEVICE T combine(const PerThread<T>& state, const Two& two) {
    __shared__ T warps[kWarp];
    T value = state[0];
    PENSTOCK_UNROLL
    for (std::int32_t far = kWarp / 2; far > 0; far /= 2) {
      value = two(value, __shfl_down_sync(0xffffffffU, value, far));
    }
    barrier();
    if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
    __syncthreads();
    T all = warps[0];
    for (std::int32_t warp = 1; warp < threads() / kWarp; ++warp) all = two(all, warps[warp]);
    return all;
  }

  bool used_ = false;  // whether a phase has run; the compiler folds it away
};

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
