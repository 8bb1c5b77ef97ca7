// SPDX-License-Identifier: Apache-2.0
// Turns run-time values of a call into template parameters of a body.
#pragma once

#include "dataflow/batch.h"
#include "trainer/backends/gpu/kernels/element.h"
#include "trainer/backends/gpu/kernels/geometry.h"

namespace penstock::gpu {

/// Calls use(T{}) for f32, f16 or bf16; activations have no other types.
template <class Use>
void with_type(DType type, const Use& use) {
  if (type == DType::f32) use(float{});
  if (type == DType::f16) use(F16{});
  if (type == DType::bf16) use(BF16{});
}

template <bool Value>
struct Flag {
  static constexpr bool value = Value;
};
template <class Use>
void with_flag(bool value, const Use& use) {
  value ? use(Flag<true>{}) : use(Flag<false>{});
}

template <int Value>
struct Number {
  static constexpr int value = Value;
};
/// Calls use(Number<8>{}) if channels are processed in groups of eight, else use(Number<1>{}).
template <class Use>
void with_width(bool wide, const Use& use) {
  wide ? use(Number<8>{}) : use(Number<1>{});
}

/// The argument of both launchers: the body as a type, its geometry and its call.
template <class Body>
struct Selected {};

/// Launches Body<T> for the call's type.
template <template <class> class Body, class Call, class Launch>
void select_typed(const Call& call, const Geometry& geometry, const Launch& launch) {
  with_type(call.type, [&]<class T>(T) { launch(Selected<Body<T>>{}, geometry, call); });
}
/// Launches Body<T, width> for the call's type; the width is kWide or 1.
template <template <class, int> class Body, class Call, class Launch>
void select_wide(const Call& call, std::int32_t width, const Geometry& geometry,
                 const Launch& launch) {
  with_type(call.type, [&]<class T>(T) {
    with_width(width == kWide, [&]<class Width>(Width) {
      launch(Selected<Body<T, Width::value>>{}, geometry, call);
    });
  });
}

}  // namespace penstock::gpu
