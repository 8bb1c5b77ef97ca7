// SPDX-License-Identifier: Apache-2.0
// What a kernel's body is written against, so that nvcc compiles it for the device and a host
// compiler for tests. A body is a type with
//
//   static constexpr std::int32_t kThreads;            most threads of a block
//   static constexpr std::int32_t kPerMultiprocessor;  blocks that must fit one multiprocessor
//   template <class Block> static PENSTOCK_DEVICE void run(Block& block, const Call& call);
//
// and Block (DeviceBlock in device_block.cuh, HostBlock in tests/support/gpu/host_block.h) has
//
//   block.row_block(), block.row_blocks()   place in the grid's first dimension, and its size
//   block.column_block()                    place in the second
//   block.threads()
//   block.for_each_thread(phase)            phase(thread) on every thread; all that earlier phases
//                                           wrote, in shared memory or global, is seen
//   block.template shared<T>()              T in memory of the block, not initialised; one T a body
//   typename Block::template PerThread<T>   what a thread keeps from phase to phase; state[thread]
//   block.sum(state), block.largest(state)  over all threads, in an order that depends on nothing
//                                           but their number, which is a multiple of 32
//
// What stands between phases is the same for all threads: it must not depend on one.
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
/// Of b > 0; a may be negative.
template <class T>
PENSTOCK_HOST_DEVICE constexpr T divide_up(T a, T b) {
  return a > 0 ? (a + b - 1) / b : a / b;
}

}  // namespace penstock::gpu
