// SPDX-License-Identifier: Apache-2.0
// Cases of pools.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/support/gpu/kernel_case.h"
#include "tests/support/gpu/plain_images.h"

namespace penstock::gpu {
namespace {

PoolShape pool(std::int32_t images, std::int32_t height, std::int32_t width, std::int32_t channels,
               const Window& window) {
  const auto out = [&](std::int32_t side, std::int32_t padding, std::int32_t kernel) {
    return (side + padding - kernel) / window.stride + 1;
  };
  return {.images = images,
          .height = height,
          .width = width,
          .channels = channels,
          .out_height = out(height, window.top + window.bottom, window.kernel_h),
          .out_width = out(width, window.left + window.right, window.kernel_w),
          .window = window};
}

ImageShape in_shape(const PoolShape& shape) { return {shape.height, shape.width, shape.channels}; }
ImageShape out_shape(const PoolShape& shape) {
  return {shape.out_height, shape.out_width, shape.channels};
}
std::size_t inputs(const PoolShape& shape) {
  return static_cast<std::size_t>(shape.images) * in_shape(shape).elements();
}
std::size_t outputs(const PoolShape& shape) {
  return static_cast<std::size_t>(shape.images) * out_shape(shape).elements();
}
/// The largest sum over the windows of one element: each window holds at most this number of
/// elements, which are below 3.
double size_of_sums(const PoolShape& shape) {
  return 3. * shape.window.kernel_h * shape.window.kernel_w;
}

/// The places of the maxima of `x`, as the forward pass stores them.
std::vector<std::uint8_t> places_of(const plain::Images& x, const PoolShape& shape) {
  std::vector<std::uint8_t> places;
  const Window& window = shape.window;
  for (std::int32_t n = 0; n < shape.images; ++n) {
    for (std::int32_t oy = 0; oy < shape.out_height; ++oy) {
      for (std::int32_t ox = 0; ox < shape.out_width; ++ox) {
        for (std::int32_t c = 0; c < shape.channels; ++c) {
          double best = -INFINITY;
          std::int32_t place = 0;
          for (std::int32_t i = 0; i < window.kernel_h * window.kernel_w; ++i) {
            const std::int32_t row = oy * window.stride - window.top + i / window.kernel_w;
            const std::int32_t column = ox * window.stride - window.left + i % window.kernel_w;
            if (row < 0 || row >= shape.height || column < 0 || column >= shape.width) continue;
            const double of = x.channel(n, c)[row * shape.width + column];
            if (of > best) std::tie(best, place) = std::pair(of, i);
          }
          places.push_back(static_cast<std::uint8_t>(place));
        }
      }
    }
  }
  return places;
}

void max_forward(KernelCase& k, DType type, const PoolShape& shape, bool normalises) {
  const auto channels = static_cast<std::size_t>(shape.channels);
  MaxPoolForward call{.shape = shape, .type = type};
  // Without a norm: few distinct values, so that windows have ties.
  call.x = normalises ? k.input(type, inputs(shape), -2, 0.5)
                      : k.whole_numbers(type, inputs(shape), -4, 2);
  call.y = k.output(type, outputs(shape));
  call.index = k.output_bits<std::uint8_t>(outputs(shape));
  if (normalises) {
    call.multiplier = k.floats(channels, 0.5, 2);
    call.addend = k.floats(channels, -0.25, 0.25);
  }
  k.call = call;
  k.formula = [=](Results& r) {
    plain::Images x = images_of(call.x, type, shape.images, in_shape(shape));
    for (std::int32_t n = 0; normalises && n < shape.images; ++n) {
      for (std::int32_t c = 0; c < shape.channels; ++c) {
        for (double& of : std::span(x.channel(n, c), x.plane())) {
          of = std::max(0., of * double{call.multiplier[c]} + double{call.addend[c]});
        }
      }
    }
    plain::Images y(shape.images, out_shape(shape));
    plain::forward(MaxPool{shape.window}, x, y);
    const std::vector<std::uint8_t> places = places_of(x, shape);
    for (std::size_t i = 0; i < outputs(shape); ++i) {
      r.rounded(call.y, type, i, value_at(y, i), normalises ? 7 : 0);
      r.equal(call.index, i, normalises && value_at(y, i) == 0 ? kNoPlace : places[i]);
    }
  };
}

void max_backward(KernelCase& k, DType type, const PoolShape& shape, bool adds) {
  const void* const x = k.whole_numbers(type, inputs(shape), -4, 2);  // of the forward pass
  const std::vector<std::uint8_t> places =
      places_of(images_of(x, type, shape.images, in_shape(shape)), shape);
  const MaxPoolBackward call{k.input(type, outputs(shape)),
                             k.constant(places),
                             adds ? k.both(type, inputs(shape)) : k.output(type, inputs(shape)),
                             adds,
                             shape,
                             type};
  k.call = call;
  k.formula = [=](Results& r) {
    plain::Images dx(shape.images, in_shape(shape));
    plain::backward(MaxPool{shape.window}, images_of(x, type, shape.images, in_shape(shape)),
                    images_of(call.dy, type, shape.images, out_shape(shape)), &dx);
    for (std::size_t i = 0; i < inputs(shape); ++i) {
      r.rounded(call.dx, type, i, value_at(dx, i) + (adds ? value(call.dx, type, i) : 0),
                size_of_sums(shape));
    }
  };
}

void avg_forward(KernelCase& k, DType type, const PoolShape& shape, bool count_padding) {
  const AvgPoolForward call{k.input(type, inputs(shape)), k.output(type, outputs(shape)),
                            count_padding, shape, type};
  k.call = call;
  k.formula = [=](Results& r) {
    plain::Images y(shape.images, out_shape(shape));
    plain::forward(AvgPool{shape.window, count_padding},
                   images_of(call.x, type, shape.images, in_shape(shape)), y);
    for (std::size_t i = 0; i < outputs(shape); ++i) r.rounded(call.y, type, i, value_at(y, i), 3);
  };
}

void avg_backward(KernelCase& k, DType type, const PoolShape& shape, bool count_padding,
                  bool adds) {
  const AvgPoolBackward call{k.input(type, outputs(shape)),
                             adds ? k.both(type, inputs(shape)) : k.output(type, inputs(shape)),
                             count_padding,
                             adds,
                             shape,
                             type};
  k.call = call;
  k.formula = [=](Results& r) {
    plain::Images dx(shape.images, in_shape(shape));
    plain::backward(AvgPool{shape.window, count_padding},
                    plain::Images(shape.images, in_shape(shape)),
                    images_of(call.dy, type, shape.images, out_shape(shape)), &dx);
    for (std::size_t i = 0; i < inputs(shape); ++i) {
      r.rounded(call.dx, type, i, value_at(dx, i) + (adds ? value(call.dx, type, i) : 0),
                size_of_sums(shape));
    }
  };
}

}  // namespace

void add_pool_cases(std::vector<NamedCase>& cases, DType type) {
  // Networks' pools; windows that overlap, that leave gaps, that pad more on one side, and that
  // cover the whole image; and rows of more channels than a block has threads.
  for (const PoolShape& shape :
       {pool(2, 112, 112, 64, {3, 3, 2, 1, 1, 1, 1}), pool(2, 55, 55, 64, {3, 3, 2}),
        pool(2, 28, 28, 192, {3, 3, 1, 1, 1, 1, 1}), pool(8, 7, 7, 2048, {7, 7, 1}),
        pool(2, 7, 9, 3, {3, 3, 2, 1, 1, 1, 1}), pool(3, 5, 4, 17, {3, 2, 1, 0, 1, 2, 0}),
        pool(2, 8, 8, 5, {2, 3, 3, 0, 0, 0, 1}), pool(1, 1, 1, 5, {3, 3, 2, 1, 1, 1, 1}),
        pool(3, 5, 3, 17, {5, 3, 1}), pool(2, 12, 11, 16, {3, 3, 2, 1, 0, 1, 0}),
        pool(1, 7, 7, 8, {3, 3, 1, 1, 1, 1, 1}), pool(2, 6, 9, 3, {2, 1, 3}),
        pool(1, 8, 8, 2056, {2, 2, 2}), pool(1, 5, 6, 8, {2, 3, 2, 1, 2, 0, 1}),
        pool(1, 4, 4, 300, {2, 2, 2})}) {
    const Window& window = shape.window;
    const auto add = [&](std::string_view kernel, std::function<void(KernelCase&)> fill) {
      cases.push_back({fmt::format("{} {} {}x{}x{}x{}_{}x{}s{}", kernel, name_of_type(type),
                                   shape.images, shape.height, shape.width, shape.channels,
                                   window.kernel_h, window.kernel_w, window.stride),
                       type, inputs(shape), std::move(fill)});
    };
    add("MaxPoolForward", [=](KernelCase& k) { max_forward(k, type, shape, false); });
    add("MaxPoolForward_normalised", [=](KernelCase& k) { max_forward(k, type, shape, true); });
    add("MaxPoolBackward", [=](KernelCase& k) { max_backward(k, type, shape, false); });
    add("MaxPoolBackward_added", [=](KernelCase& k) { max_backward(k, type, shape, true); });
    for (const bool counts : {true, false}) {
      const char* const inside = counts ? "" : "_inside";
      add(fmt::format("AvgPoolForward{}", inside),
          [=](KernelCase& k) { avg_forward(k, type, shape, counts); });
      for (const bool adds : {false, true}) {
        if (inputs(shape) > kLargeCase && adds == counts) continue;
        add(fmt::format("AvgPoolBackward{}{}", inside, adds ? "_added" : ""),
            [=](KernelCase& k) { avg_backward(k, type, shape, counts, adds); });
      }
    }
  }
}

}  // namespace penstock::gpu
