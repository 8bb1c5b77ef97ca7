// SPDX-License-Identifier: Apache-2.0
// Turns run-time values of a call into template parameters of a body.
#pragma once

#include <type_traits>

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

/// Calls use(constants...) with a std::bool_constant for each flag.
template <class Use>
void with_flags(const Use& use) {
  use();
}
template <class Use, class... Rest>
void with_flags(const Use& use, bool flag, Rest... rest) {
  const auto with = [&](auto constant) {
    with_flags([&](auto... others) { use(constant, others...); }, rest...);
  };
  flag ? with(std::true_type{}) : with(std::false_type{});
}

/// Calls use() with the constant kWide or 1.
template <class Use>
void with_width(std::int32_t width, const Use& use) {
  width == kWide ? use(std::integral_constant<int, kWide>{})
                 : use(std::integral_constant<int, 1>{});
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
    with_width(width, [&]<class Width>(Width) {
      launch(Selected<Body<T, Width::value>>{}, geometry, call);
    });
  });
}
/// The same for Body<T, width, flags...>.
template <template <class, int, bool...> class Body, class Call, class Launch, class... Flags>
void select_flags(const Call& call, std::int32_t width, const Geometry& geometry,
                  const Launch& launch, Flags... flags) {
  with_type(call.type, [&]<class T>(T) {
    with_width(width, [&]<class Width>(Width) {
      with_flags(
          [&]<class... Constant>(Constant...) {
            launch(Selected<Body<T, Width::value, Constant::value...>>{}, geometry, call);
          },
          flags...);
    });
  });
}

}  // namespace penstock::gpu
