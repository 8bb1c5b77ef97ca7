// SPDX-License-Identifier: Apache-2.0
// Cases of pools.
#include <fmt/format.h>

#include "bench/gpu/kernel_case.h"

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

std::size_t inputs(const PoolShape& shape) {
  return static_cast<std::size_t>(shape.images) * static_cast<std::size_t>(shape.height) *
         static_cast<std::size_t>(shape.width) * static_cast<std::size_t>(shape.channels);
}
std::size_t outputs(const PoolShape& shape) {
  return static_cast<std::size_t>(shape.images) * static_cast<std::size_t>(shape.out_height) *
         static_cast<std::size_t>(shape.out_width) * static_cast<std::size_t>(shape.channels);
}

std::string named(std::string_view kernel, DType type, const PoolShape& shape) {
  const Window& window = shape.window;
  return fmt::format("{} {} {}x{}x{}x{}_{}x{}s{}", kernel, name_of_type(type), shape.images,
                     shape.height, shape.width, shape.channels, window.kernel_h, window.kernel_w,
                     window.stride);
}

KernelCase max_forward(DType type, const PoolShape& shape, std::uint64_t seed) {
  CaseBuilder build(named("MaxPoolForward", type, shape), type, seed);
  const OperandId x = build.input(type, inputs(shape), -1, 1);
  const OperandId y = build.output(type, outputs(shape));
  const OperandId index = build.output_bits(outputs(shape));
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return MaxPoolForward{
        .x = at(x), .y = at(y), .index = at.as<std::uint8_t>(index), .shape = shape, .type = type};
  });
}

/// Pools the result of a batch norm and a ReLU of x.
KernelCase max_of_normalised(DType type, const PoolShape& shape, std::uint64_t seed) {
  CaseBuilder build(named("MaxPoolForward_normalised", type, shape), type, seed);
  const auto channels = static_cast<std::size_t>(shape.channels);
  const OperandId x = build.input(type, inputs(shape), -1, 1);
  const OperandId multiplier = build.floats(channels), addend = build.floats(channels);
  const OperandId y = build.output(type, outputs(shape));
  const OperandId index = build.output_bits(outputs(shape));
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return MaxPoolForward{.x = at(x),
                          .y = at(y),
                          .index = at.as<std::uint8_t>(index),
                          .shape = shape,
                          .type = type,
                          .multiplier = at.as<float>(multiplier),
                          .addend = at.as<float>(addend)};
  });
}

/// Uses the places that the host's forward pass finds.
KernelCase max_backward(DType type, const PoolShape& shape, bool accumulate, std::uint64_t seed) {
  CaseBuilder build(named(accumulate ? "MaxPoolBackward_added" : "MaxPoolBackward", type, shape),
                    type, seed);
  const OperandId index =
      build.made([=](Random&) { return run_on_host(filled(max_forward(type, shape, seed)))[2]; });
  const OperandId dy = build.input(type, outputs(shape));
  const OperandId dx =
      accumulate ? build.both(type, inputs(shape)) : build.output(type, inputs(shape));
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return MaxPoolBackward{at(dy), at.as<std::uint8_t>(index), at(dx), accumulate, shape, type};
  });
}

KernelCase avg_forward(DType type, const PoolShape& shape, bool count_padding, std::uint64_t seed) {
  CaseBuilder build(named(count_padding ? "AvgPoolForward" : "AvgPoolForward_inside", type, shape),
                    type, seed);
  const OperandId x = build.input(type, inputs(shape));
  const OperandId y = build.output(type, outputs(shape));
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return AvgPoolForward{at(x), at(y), count_padding, shape, type};
  });
}

KernelCase avg_backward(DType type, const PoolShape& shape, bool count_padding, bool accumulate,
                        std::uint64_t seed) {
  CaseBuilder build(named(fmt::format("AvgPoolBackward{}{}", count_padding ? "" : "_inside",
                                      accumulate ? "_added" : ""),
                          type, shape),
                    type, seed);
  const OperandId dy = build.input(type, outputs(shape));
  const OperandId dx =
      accumulate ? build.both(type, inputs(shape)) : build.output(type, inputs(shape));
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return AvgPoolBackward{at(dy), at(dx), count_padding, accumulate, shape, type};
  });
}

}  // namespace

void add_pool_cases(std::vector<KernelCase>& cases, DType type, std::uint64_t seed) {
  const PoolShape shapes[] = {
      pool(2, 112, 112, 64, {3, 3, 2, 1, 1, 1, 1}), pool(2, 55, 55, 64, {3, 3, 2, 0, 0, 0, 0}),
      pool(2, 28, 28, 192, {3, 3, 1, 1, 1, 1, 1}),  pool(2, 7, 9, 3, {3, 3, 2, 1, 1, 1, 1}),
      pool(3, 5, 4, 17, {3, 2, 1, 0, 1, 2, 0}),     pool(2, 8, 8, 5, {2, 3, 3, 0, 0, 0, 1}),
      pool(1, 1, 1, 5, {3, 3, 2, 1, 1, 1, 1})};
  for (const PoolShape& shape : shapes) {
    cases.push_back(max_forward(type, shape, seed));
    cases.push_back(max_of_normalised(type, shape, seed));
    cases.push_back(max_backward(type, shape, false, seed));
    cases.push_back(max_backward(type, shape, true, seed));
    for (const bool count_padding : {true, false}) {
      cases.push_back(avg_forward(type, shape, count_padding, seed));
      cases.push_back(avg_backward(type, shape, count_padding, !count_padding, seed));
    }
  }
  // The mean over whole images.
  for (const PoolShape& shape :
       {pool(8, 7, 7, 2048, {7, 7, 1, 0, 0, 0, 0}), pool(3, 5, 3, 17, {5, 3, 1, 0, 0, 0, 0})}) {
    cases.push_back(avg_forward(type, shape, true, seed));
    cases.push_back(avg_backward(type, shape, true, false, seed));
  }
}

}  // namespace penstock::gpu
