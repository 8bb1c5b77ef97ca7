// SPDX-License-Identifier: Apache-2.0
// Cases of element-wise kernels, and of sums over columns.
#include <fmt/format.h>

#include "bench/gpu/kernel_case.h"

namespace penstock::gpu {
namespace {

std::size_t bits_for(const MatrixShape& shape) { return (shape.count() + 7) / 8; }

std::string named(std::string_view kernel, DType type, const MatrixShape& shape) {
  return fmt::format("{} {} {}", kernel, name_of_type(type), shape.text());
}

/// `dual`: the residual has its own factors. `place`: y is x, as for adding a bias.
KernelCase scale_shift(DType type, const MatrixShape& shape, bool residual, bool dual, bool place,
                       std::uint64_t seed) {
  CaseBuilder build(named(place      ? "ScaleShift_bias"
                          : dual     ? "ScaleShift_dual"
                          : residual ? "ScaleShift_residual"
                                     : "ScaleShift",
                          type, shape),
                    type, seed);
  const auto channels = static_cast<std::size_t>(shape.channels);
  const OperandId x = place ? build.both(type, shape.count()) : build.input(type, shape.count());
  const OperandId multiplier = place ? kNoOperand : build.floats(channels);
  const OperandId addend = build.floats(channels);
  const OperandId other = residual ? build.input(type, shape.count()) : kNoOperand;
  const OperandId other_multiplier = dual ? build.floats(channels) : kNoOperand;
  const OperandId other_addend = dual ? build.floats(channels) : kNoOperand;
  const OperandId y = place ? x : build.output(type, shape.count());
  const OperandId mask = place ? kNoOperand : build.output_bits(bits_for(shape));
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return ScaleShift{.x = at(x),
                      .multiplier = at.as<float>(multiplier),
                      .addend = at.as<float>(addend),
                      .residual = at(other),
                      .residual_multiplier = at.as<float>(other_multiplier),
                      .residual_addend = at.as<float>(other_addend),
                      .y = at(y),
                      .mask = at.as<std::uint8_t>(mask),
                      .relu = true,
                      .type = type,
                      .rows = shape.rows,
                      .channels = shape.channels};
  });
}

/// Masks by the mask's bits, or by the sign of y.
KernelCase relu_backward(DType type, const MatrixShape& shape, bool by_mask, bool accumulate,
                         std::uint64_t seed) {
  CaseBuilder build(
      named(fmt::format("ReluBackward{}{}", by_mask ? "_mask" : "_y", accumulate ? "_added" : ""),
            type, shape),
      type, seed);
  const OperandId dy = build.input(type, shape.count());
  const OperandId mask = by_mask ? build.random_bits(bits_for(shape)) : kNoOperand;
  const OperandId y = by_mask ? kNoOperand : build.input(type, shape.count());
  const OperandId dx =
      accumulate ? build.both(type, shape.count()) : build.output(type, shape.count());
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return ReluBackward{.dy = at(dy),
                        .mask = at.as<std::uint8_t>(mask),
                        .y = at(y),
                        .dx = at(dx),
                        .accumulate = accumulate,
                        .type = type,
                        .count = static_cast<std::int64_t>(shape.count())};
  });
}

KernelCase column_sums(DType type, const MatrixShape& shape, std::uint64_t seed) {
  CaseBuilder build(named("ColumnSums", type, shape), DType::f32, seed);
  const auto blocks = static_cast<std::size_t>(sum_blocks(shape.rows, shape.channels));
  const OperandId dy = build.input(type, shape.count());
  const OperandId partial =
      build.output(DType::f32, blocks * static_cast<std::size_t>(shape.channels));
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return ColumnSums{.dy = at(dy),
                      .partial = at.as<float>(partial),
                      .type = type,
                      .rows = shape.rows,
                      .channels = shape.channels};
  });
}

KernelCase column_finish(const MatrixShape& shape, std::uint64_t seed) {
  CaseBuilder build(named("ColumnFinish", DType::f32, shape), DType::f32, seed);
  const std::int32_t blocks = sum_blocks(shape.rows, shape.channels);
  const auto channels = static_cast<std::size_t>(shape.channels);
  const OperandId partial = build.floats(static_cast<std::size_t>(blocks) * channels, 0, 1);
  const OperandId sums = build.output(DType::f32, channels);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return ColumnFinish{.partial = at.as<float>(partial),
                        .blocks = blocks,
                        .channels = shape.channels,
                        .sums = at.as<float>(sums)};
  });
}

/// Copies into a wider tensor, as a concatenation does, or out of it, as its backward pass does.
KernelCase copy_channels(DType type, const MatrixShape& shape, bool widen, bool accumulate,
                         std::uint64_t seed) {
  CaseBuilder build(named(fmt::format("CopyChannels{}{}", widen ? "_widen" : "_narrow",
                                      accumulate ? "_added" : ""),
                          type, shape),
                    type, seed);
  const std::int32_t wide = shape.channels + 24, first = 8;
  const auto wide_count = static_cast<std::size_t>(shape.rows * wide);
  const OperandId from = build.input(type, widen ? shape.count() : wide_count);
  const std::size_t to_count = widen ? wide_count : shape.count();
  const OperandId to = accumulate ? build.both(type, to_count) : build.output(type, to_count);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return CopyChannels{.from = at(from),
                        .to = at(to),
                        .rows = shape.rows,
                        .channels = shape.channels,
                        .from_channels = widen ? shape.channels : wide,
                        .from_first = widen ? 0 : first,
                        .to_channels = widen ? wide : shape.channels,
                        .to_first = widen ? first : 0,
                        .zero_rest = widen && !accumulate,
                        .accumulate = accumulate,
                        .type = type};
  });
}

KernelCase lrn_forward(DType type, const MatrixShape& shape, std::uint64_t seed) {
  CaseBuilder build(named("LrnForward", type, shape), type, seed);
  const OperandId x = build.input(type, shape.count());
  const OperandId y = build.output(type, shape.count());
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return LrnForward{at(x), at(y), Lrn{5, 0.5F, 0.75F, 1}, type, shape.rows, shape.channels};
  });
}

KernelCase lrn_backward(DType type, const MatrixShape& shape, std::uint64_t seed) {
  CaseBuilder build(named("LrnBackward_added", type, shape), type, seed);
  const OperandId x = build.input(type, shape.count()), dy = build.input(type, shape.count());
  const OperandId dx = build.both(type, shape.count());
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return LrnBackward{.x = at(x),
                       .dy = at(dy),
                       .dx = at(dx),
                       .accumulate = true,
                       .lrn = {5, 0.5F, 0.75F, 1},
                       .type = type,
                       .rows = shape.rows,
                       .channels = shape.channels};
  });
}

}  // namespace

void add_elementwise_cases(std::vector<KernelCase>& cases, DType type, std::uint64_t seed) {
  for (const MatrixShape& shape : kMatrixShapes) {
    cases.push_back(scale_shift(type, shape, false, false, false, seed));
    cases.push_back(scale_shift(type, shape, true, false, false, seed));
    cases.push_back(scale_shift(type, shape, true, true, false, seed));
    cases.push_back(scale_shift(type, shape, false, false, true, seed));
    cases.push_back(relu_backward(type, shape, true, false, seed));
    cases.push_back(relu_backward(type, shape, true, true, seed));
    cases.push_back(relu_backward(type, shape, false, false, seed));
    cases.push_back(column_sums(type, shape, seed));
    if (type == DType::f32) cases.push_back(column_finish(shape, seed));
    cases.push_back(copy_channels(type, shape, true, false, seed));
    cases.push_back(copy_channels(type, shape, true, true, seed));
    cases.push_back(copy_channels(type, shape, false, false, seed));
    if (shape.count() > 100'000) continue;  // LRN networks have few channels and are small
    cases.push_back(lrn_forward(type, shape, seed));
    cases.push_back(lrn_backward(type, shape, seed));
  }
}

}  // namespace penstock::gpu
