// SPDX-License-Identifier: Apache-2.0
// Measures the rate of a large matrix product. It is in a separate library,
// libpenstock_gpu_gemm.so, so that the program that opens it does not link to CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::gpu {

/// Multiplies two matrices of side x side random elements for about `seconds`. Sets *tflops to the
/// median rate of one product, with sums in f32. `bf16` 1: elements are bf16; 0: f16. Returns 0, or
/// 1 with a text in `error`, which has `size` bytes. Uses the current device.
using GemmFunction = std::int32_t(std::int32_t bf16, std::int32_t side, double seconds,
                                  double* tflops, char* error, std::size_t size);
constexpr const char* kGemmLibrary = "libpenstock_gpu_gemm.so";
constexpr const char* kGemmFunction = "penstock_gpu_gemm";

}  // namespace penstock::gpu
