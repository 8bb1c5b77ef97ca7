// SPDX-License-Identifier: Apache-2.0
// Holds the gradients of one rank in the form that is sent between GPUs: f32 in place, or a 16-bit
// copy.
#pragma once

#include <cstddef>

#include "trainer/backend.h"
#include "trainer/backends/gpu/device.h"

namespace penstock::gpu {

/// The type of the elements in that format.
DType dtype_of(WireFormat format);

class GradientWire {
 public:
  /// Borrows `device`.
  GradientWire(GpuDevice& device, WireFormat format) : device_(device), type_(dtype_of(format)) {}

  /// Makes room for tensors of `count` elements and loads the kernels. Both are forbidden while
  /// recording. The exchange of all weights before the first step therefore makes room for all
  /// gradients.
  void reserve(std::size_t count);
  /// Enqueues the rounding of f32 elements. Returns the tensor to exchange instead of `wide`.
  Tensor narrow(const Tensor& wide, Stream& stream);
  /// Enqueues the conversion of the sums of `narrow(wide)` back to f32.
  void widen(const Tensor& wide, Stream& stream);

 private:
  GpuDevice& device_;
  const DType type_;
  Buffer narrow_;
};

}  // namespace penstock::gpu
