// SPDX-License-Identifier: Apache-2.0
// Convolutions and their gradients in plain loops over [N, H, W, C], with sums in double. They are
// fast enough to run whole networks on small images in seconds: inner loops run over neighbouring
// channels, and large weights are read once per tile of pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/backends/gpu/dnn_graph.h"

namespace penstock::gpu {

struct ConvolutionSizes {
  std::int64_t images = 0, height = 0, width = 0, channels = 0;  ///< of x
  std::int64_t out_height = 0, out_width = 0, out_channels = 0;  ///< of y
  std::int64_t kernel_height = 0, kernel_width = 0, group_channels = 0;
  DnnWindow window{};

  ConvolutionSizes(const DnnTensor& x, const DnnTensor& w, const DnnTensor& y,
                   const DnnWindow& around);
};

/// x * w.
std::vector<double> convolve(const ConvolutionSizes& shape, std::span<const float> x,
                             std::span<const float> w);
/// The gradient of x.
std::vector<double> convolve_back_to_data(const ConvolutionSizes& shape, std::span<const float> dy,
                                          std::span<const float> w);
/// The gradient of w.
std::vector<double> convolve_back_to_filter(const ConvolutionSizes& shape, std::span<const float> x,
                                            std::span<const float> dy);

}  // namespace penstock::gpu
