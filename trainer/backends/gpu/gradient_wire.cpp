// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/gradient_wire.h"

#include "dataflow/error.h"
#include "trainer/wire_format.h"

namespace penstock::gpu {

DType dtype_of(WireFormat format) {
  if (format == WireFormat::f16) return DType::f16;
  return format == WireFormat::bf16 ? DType::bf16 : DType::f32;
}

void GradientWire::reserve(std::size_t count) {
  if (type_ == DType::f32 || count * size_of(type_) <= narrow_.bytes().size()) return;
  narrow_ = device_.allocate(count * size_of(type_), MemoryKind::device);
  const Buffer wide = device_.allocate(sizeof(float), MemoryKind::device);
  const Tensor one{wide.bytes().data(), 1, DType::f32};
  GpuStream stream(device_.driver());
  narrow(one, stream);
  widen(one, stream);
  GpuEvent done(device_.driver());
  stream.record(done);
  done.wait_until(Time::max());
}

Tensor GradientWire::narrow(const Tensor& wide, Stream& stream) {
  if (type_ == DType::f32 || wide.count == 0) return wide;
  reserve(wide.count);
  const Tensor tensor{narrow_.bytes().data(), wide.count, type_};
  device_.driver().launch(
      GpuStream::of(stream).handle(),
      NarrowWeights{static_cast<const float*>(wide.data), tensor.data, type_, wide.count});
  return tensor;
}

void GradientWire::widen(const Tensor& wide, Stream& stream) {
  if (type_ == DType::f32 || wide.count == 0) return;
  device_.driver().launch(
      GpuStream::of(stream).handle(),
      WidenSums{narrow_.bytes().data(), type_, static_cast<float*>(wide.data), wide.count});
}

}  // namespace penstock::gpu
