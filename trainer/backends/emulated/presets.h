// SPDX-License-Identifier: Apache-2.0
// Published rates of ResNet-50, of version 1 or 1.5, each with its source. No rate is extrapolated:
// if a source used several devices, the rate is their total divided by their number. Other models
// take times in proportion to ResNet-50's; model_time() has the rule.
#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "dataflow/options.h"
#include "trainer/graph.h"

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
     "ResNet-MultiGPU, May 2019)"},
};

/// The time of an image of a model on a device whose rate for ResNet-50 is known.
struct ModelTime {
  double in_resnet50 = 1;     ///< in times of an image of ResNet-50
  std::string_view reason{};  ///< empty: the model is ResNet-50
};

/// `p100_img_per_s` is that of the model's entry. It decides if it is known, whatever the size of
/// the images. Operations decide for other models, unless they are few: small models are bound by
/// memory and by the start of kernels, and their operations say nothing about their time.
inline ModelTime model_time(double p100_img_per_s, const Graph& graph) {
  constexpr double kP100ImgPerS = 219, kMacs = 3.86e9, kLeastMacs = 1e9;  // of ResNet-50
  if (p100_img_per_s == kP100ImgPerS) return {};
  if (p100_img_per_s > 0) {
    return {kP100ImgPerS / p100_img_per_s, "by TensorFlow's rates of one P100 (2017)"};
  }
  const double macs = graph.forward_macs_per_image();
  if (macs < kLeastMacs) return {1, "since it has fewer than 1 GMAC an image"};
  return {macs / kMacs, "by its operations"};
}

/// The names and sources, for the option's table.
inline constexpr auto kPresetValues = [] {
  std::array<OptionValue, std::size(kPresets)> values{};
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = {kPresets[i].name, kPresets[i].source};
  return values;
}();

}  // namespace penstock::emulated
