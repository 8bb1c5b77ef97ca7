// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/gemm.h"

#include <cublasLt.h>
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "dataflow/random.h"

namespace penstock::gpu {
namespace {

constexpr std::size_t kWorkspace = std::size_t{64} << 20;
constexpr int kWarmUps = 3, kMostRuns = 200;

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(fmt::format("{} says {}", call, cudaGetErrorString(status)));
}
void check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error(fmt::format("{} says {}", call, cublasLtGetStatusString(status)));
}

/// Device memory with elements between -1 and 1. Their 16 bits are small numbers in f16 and in
/// bf16.
class Matrix {
 public:
  Matrix(std::size_t elements, std::uint64_t seed) {
    check(cudaMalloc(&data_, elements * sizeof(std::uint16_t)), "cudaMalloc");
    std::vector<std::uint16_t> pattern(std::size_t{1} << 20);
    Random random(seed);
    for (std::uint16_t& value : pattern) {
      const std::uint64_t bits = random.bits();
      value = static_cast<std::uint16_t>((bits & 0x83ffU) | (10 + (bits >> 32) % 5) << 10);
    }
    for (std::size_t done = 0; done < elements; done += pattern.size()) {
      const std::size_t count = std::min(pattern.size(), elements - done);
      check(cudaMemcpy(static_cast<std::uint16_t*>(data_) + done, pattern.data(),
                       count * sizeof(std::uint16_t), cudaMemcpyHostToDevice),
            "cudaMemcpy");
    }
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  ~Matrix() { cudaFree(data_); }
  void* data() const noexcept { return data_; }

 private:
  void* data_ = nullptr;
};

/// D = A B; all three are square and of one type. Its cuBLAS objects live as long as the process.
class Product {
 public:
  Product(bool bf16, std::int32_t side)
      : a_(count(side), 1), b_(count(side), 2), d_(count(side), 3), workspace_(kWorkspace / 2, 4) {
    const cudaDataType_t type = bf16 ? CUDA_R_16BF : CUDA_R_16F;
    check(cublasLtCreate(&handle_), "cublasLtCreate");
    check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
          "cublasLtMatmulDescCreate");
    const auto rows = static_cast<std::uint64_t>(side);
    check(cublasLtMatrixLayoutCreate(&layout_, type, rows, rows, side),
          "cublasLtMatrixLayoutCreate");
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &kWorkspace, sizeof kWorkspace),
          "cublasLtMatmulPreferenceSetAttribute");
    int found = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, layout_, layout_, layout_, layout_,
                                         preference, 1, &best_, &found),
          "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0) throw std::runtime_error("cublasLt has no algorithm for it");
    check(cudaEventCreate(&begin_), "cudaEventCreate");
    check(cudaEventCreate(&end_), "cudaEventCreate");
  }

  /// Runs one product. Returns its time in seconds.
  double time() {
    const float one = 1, zero = 0;
    check(cudaEventRecord(begin_), "cudaEventRecord");
    check(cublasLtMatmul(handle_, operation_, &one, a_.data(), layout_, b_.data(), layout_, &zero,
                         d_.data(), layout_, d_.data(), layout_, &best_.algo, workspace_.data(),
                         kWorkspace, nullptr),
          "cublasLtMatmul");
    check(cudaEventRecord(end_), "cudaEventRecord");
    check(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
    return double{milliseconds} * 1e-3;
  }

 private:
  static std::size_t count(std::int32_t side) {
    return static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
  }

  const Matrix a_, b_, d_, workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t layout_ = nullptr;
  cublasLtMatmulHeuristicResult_t best_{};
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

double median_rate(bool bf16, std::int32_t side, double seconds) {
  Product product(bf16, side);
  for (int i = 0; i < kWarmUps; ++i) product.time();
  std::vector<double> times;
  for (double total = 0; total < seconds && times.size() < kMostRuns; total += times.back()) {
    times.push_back(product.time());
  }
  if (times.empty()) times.push_back(product.time());
  std::ranges::nth_element(times, times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2));
  const double operations = 2.0 * side * side * side;
  return operations / times[times.size() / 2] * 1e-12;
}

}  // namespace
}  // namespace penstock::gpu

extern "C" __attribute__((visibility("default"))) std::int32_t penstock_gpu_gemm(
    std::int32_t bf16, std::int32_t side, double seconds, double* tflops, char* error,
    std::size_t size) {
  try {
    *tflops = penstock::gpu::median_rate(bf16 != 0, side, seconds);
    return 0;
  } catch (const std::exception& failure) {
    if (size > 0) *fmt::format_to_n(error, size - 1, "{}", failure.what()).out = '\0';
    return 1;
  }
}
