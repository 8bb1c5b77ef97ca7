// SPDX-License-Identifier: Apache-2.0
// Published rates of ResNet-50, each with its source. No rate is extrapolated: if a source used
// several devices, the rate is their total divided by their number.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "dataflow/options.h"

namespace penstock::emulated {

struct Preset {
  std::string_view name;
  double img_per_s = 0;       ///< of one device
  std::int32_t batch = 0;     ///< images of a step, if the source states a step's time; else 0
  std::string_view source{};  ///< the published rate and its source
};

/// MLPerf Storage and DLIO state a step's time, so these rates are batch / computation_time. They
/// are well below the rates of the same GPUs in training benchmarks, which are listed after them.
inline constexpr Preset kPresets[] = {
    {"h100-mlperf-storage", 400 / 0.224, 400,
     "1785.7 img/s: batch 400 in 0.224 s (MLPerf Storage, resnet50_h100.yaml)"},
    {"a100-mlperf-storage", 400 / 0.435, 400,
     "919.5 img/s: batch 400 in 0.435 s (MLPerf Storage, resnet50_a100.yaml)"},
    {"v100-dlio", 64 / 0.195, 64,
     "328.2 img/s: batch 64 in 0.195 s (DLIO benchmark, resnet50_v100.yaml)"},
    {"a100-80gb-amp", 2470, 0,
     "2470 img/s: 1 GPU, mixed precision (NVIDIA DeepLearningExamples, PyTorch 21.03)"},
    {"a100-80gb-amp-of-8", 16621 / 8.0, 0,
     "2077.6 img/s: 16621 by 8 GPUs of a DGX A100, mixed precision (NVIDIA DeepLearningExamples, "
     "PyTorch 21.03)"},
    {"a100-80gb-tf32", 938, 0,
     "938 img/s: 1 GPU, TF32 (NVIDIA DeepLearningExamples, PyTorch 21.03)"},
    {"a100-80gb-tf32-of-8", 7248 / 8.0, 0,
     "906 img/s: 7248 by 8 GPUs of a DGX A100, TF32 (NVIDIA DeepLearningExamples, PyTorch 21.03)"},
    {"v100-16gb-amp", 1200, 0,
     "1200 img/s: 1 GPU, mixed precision (NVIDIA DeepLearningExamples, PyTorch 21.03)"},
    {"v100-16gb-amp-of-8", 8322 / 8.0, 0,
     "1040.3 img/s: 8322 by 8 GPUs of a DGX-1, mixed precision (NVIDIA DeepLearningExamples, "
     "PyTorch 21.03)"},
    {"v100-16gb-fp32", 367, 0,
     "367 img/s: 1 GPU, FP32 (NVIDIA DeepLearningExamples, PyTorch 21.03)"},
    {"v100-16gb-fp32-of-8", 2855 / 8.0, 0,
     "356.9 img/s: 2855 by 8 GPUs of a DGX-1, FP32 (NVIDIA DeepLearningExamples, PyTorch 21.03)"},
    {"p100-tensorpack", 228, 0,
     "228 img/s: 1 GPU, replicated (tensorpack/benchmarks, ResNet-MultiGPU, Sep 2017)"},
    {"p100-tensorpack-of-8", 1612 / 8.0, 0,
     "201.5 img/s: 1612 by 8 GPUs, replicated (tensorpack/benchmarks, ResNet-MultiGPU, Sep 2017)"},
    {"v100-tensorpack-of-8", 2844 / 8.0, 0,
     "355.5 img/s: 2844 by 8 GPUs, fp32, replicated (tensorpack/benchmarks, ResNet-MultiGPU, May "
     "2019)"},
    {"v100-tensorpack-fp16-of-8", 9225 / 8.0, 0,
     "1153.1 img/s: 9225 by 8 GPUs, replicated, fp16, batch 128, XLA (tensorpack/benchmarks, "
     "ResNet-MultiGPU, "
     "May 2019)"},
};

/// The names and sources, for the option's table.
inline constexpr auto kPresetValues = [] {
  std::array<OptionValue, std::size(kPresets)> values{};
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = {kPresets[i].name, kPresets[i].source};
  return values;
}();

}  // namespace penstock::emulated
