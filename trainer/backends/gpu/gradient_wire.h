// SPDX-License-Identifier: Apache-2.0
// The gradients of one rank as they travel between GPUs: f32 where they lie, or 16 bits in memory
// beside them.
#pragma once

#include <cstddef>

#include "trainer/backend.h"
#include "trainer/backends/gpu/device.h"

namespace penstock::gpu {

/// The type of such elements.
DType dtype_of(WireFormat format);

class GradientWire {
 public:
  /// `device` is borrowed.
  GradientWire(GpuDevice& device, WireFormat format) : device_(device), type_(dtype_of(format)) {}

  /// Makes room for tensors of `count` elements and loads the kernels, both of which must not
  /// happen in a recording: the exchange of all weights, before the first step, makes room for all
  /// gradients.
  void reserve(std::size_t count);
  /// Enqueues the rounding of f32 elements; what is to be exchanged in their place.
  Tensor narrow(const Tensor& wide, Stream& stream);
  /// Enqueues the way back of the sums of `narrow(wide)`.
  void widen(const Tensor& wide, Stream& stream);

 private:
  GpuDevice& device_;
  const DType type_;
  Buffer narrow_;
};

}  // namespace penstock::gpu
