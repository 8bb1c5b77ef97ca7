// SPDX-License-Identifier: Apache-2.0
// The interface between a kernel's body and its block. nvcc compiles the body for the device, and a
// host compiler compiles it for tests. A body is a type with
//
//   static constexpr std::int32_t kThreads;            most threads of a block
//   static constexpr std::int32_t kPerMultiprocessor;  blocks that must fit one multiprocessor
//   template <class Block> static PENSTOCK_DEVICE void run(Block& block, const Call& call);
//
// and Block (DeviceBlock in device_launch.cuh, HostBlock in tests/support/gpu/host_block.h) has
//
//   block.row_block(), block.row_blocks()   index in the grid's first dimension, and its size
//   block.column_block()                    index in the second dimension
//   block.threads()                         number of threads
//   block.for_each_thread(phase)            phase(thread) on every thread; it sees everything that
//                                           earlier phases wrote, in shared or global memory
//   block.template shared<T>()              an uninitialised T in shared memory; one T per body
//   typename Block::template PerThread<T>   state that a thread keeps between phases; state[thread]
//   block.sum(state), block.largest(state)  over all threads, in an order that depends only on the
//                                           number of threads, which is a multiple of 32
//
// Code between phases must be the same for all threads: it must not depend on a thread.
#pragma once

#include <cstdint>

#include "dataflow/device_code.h"

#ifdef __CUDACC__
#define PENSTOCK_DEVICE __device__ __forceinline__
#else
#define PENSTOCK_DEVICE inline
#endif

#ifdef __CUDA_ARCH__
#define PENSTOCK_PRAGMA(text) _Pragma(#text)
#define PENSTOCK_UNROLL PENSTOCK_PRAGMA(unroll)
#define PENSTOCK_UNROLL_BY(times) PENSTOCK_PRAGMA(unroll times)
#else
#define PENSTOCK_UNROLL
#define PENSTOCK_UNROLL_BY(times)
#endif

namespace penstock::gpu {

constexpr std::int32_t kWarp = 32;

template <class T>
PENSTOCK_HOST_DEVICE constexpr T smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T>
PENSTOCK_HOST_DEVICE constexpr T larger(T a, T b) {
  return a < b ? b : a;
}
/// For b > 0; a may be negative.
template <class T>
PENSTOCK_HOST_DEVICE constexpr T divide_up(T a, T b) {
  return a > 0 ? (a + b - 1) / b : a / b;
}

}  // namespace penstock::gpu
