// SPDX-License-Identifier: Apache-2.0
// Cases of batch norm's kernels.
#include <fmt/format.h>

#include "bench/gpu/kernel_case.h"

namespace penstock::gpu {
namespace {

class Shape {
 public:
  Shape(DType elements, const MatrixShape& of)
      : type(elements),
        rows(of.rows),
        channels(of.channels),
        blocks(sum_blocks(of.rows, of.channels)),
        count(of.count()),
        per_channel(static_cast<std::size_t>(of.channels)),
        partials(static_cast<std::size_t>(blocks) * 2 * per_channel),
        mask_bytes((of.count() + 7) / 8),
        text_(of.text()) {}
  std::string named(std::string_view kernel) const {
    return fmt::format("{} {} {}", kernel, name_of_type(type), text_);
  }

  const DType type;
  const std::int64_t rows;
  const std::int32_t channels, blocks;
  const std::size_t count, per_channel, partials, mask_bytes;

 private:
  const std::string text_;
};

KernelCase sums(const Shape& s, std::uint64_t seed) {
  CaseBuilder build(s.named("BatchNormSums"), DType::f32, seed);
  const OperandId x = build.input(s.type, s.count);
  const OperandId partial = build.output(DType::f32, s.partials);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return BatchNormSums{at(x), at.as<float>(partial), s.type, s.rows, s.channels};
  });
}

/// Uses sums that the host computes from random rows.
KernelCase finish(const Shape& s, std::uint64_t seed) {
  const auto after_sums = [=](std::size_t operand) {
    return [=](Random&) { return run_on_host(filled(sums(s, seed)))[operand]; };
  };
  CaseBuilder build(s.named("BatchNormFinish"), DType::f32, seed);
  const OperandId pivot = build.made(after_sums(0));
  const OperandId partial = build.made(after_sums(1));
  const OperandId scale = build.floats(s.per_channel, 0.5, 2), shift = build.floats(s.per_channel);
  const OperandId running_mean = build.both(DType::f32, s.per_channel, -1, 1);
  const OperandId running_variance = build.both(DType::f32, s.per_channel, 0.5, 2);
  const OperandId mean = build.output(DType::f32, s.per_channel);
  const OperandId inverse = build.output(DType::f32, s.per_channel);
  const OperandId multiplier = build.output(DType::f32, s.per_channel);
  const OperandId addend = build.output(DType::f32, s.per_channel);
  KernelCase made = build.build([=](const OperandAddresses& at) -> KernelCall {
    return BatchNormFinish{.partial = at.as<float>(partial),
                           .blocks = s.blocks,
                           .pivot = at(pivot),
                           .type = s.type,
                           .rows = s.rows,
                           .channels = s.channels,
                           .scale = at.as<float>(scale),
                           .shift = at.as<float>(shift),
                           .running_mean = at.as<float>(running_mean),
                           .running_variance = at.as<float>(running_variance),
                           .mean = at.as<float>(mean),
                           .inverse_deviation = at.as<float>(inverse),
                           .multiplier = at.as<float>(multiplier),
                           .addend = at.as<float>(addend)};
  });
  // The variance of few rows is a difference of sums that nearly cancel.
  made.tolerance = 1e-4;
  return made;
}

KernelCase from_running(const Shape& s, std::uint64_t seed) {
  CaseBuilder build(s.named("BatchNormFromRunning"), DType::f32, seed);
  const OperandId mean = build.floats(s.per_channel);
  const OperandId variance = build.floats(s.per_channel, 0.5, 2);
  const OperandId scale = build.floats(s.per_channel, 0.5, 2), shift = build.floats(s.per_channel);
  const OperandId multiplier = build.output(DType::f32, s.per_channel);
  const OperandId addend = build.output(DType::f32, s.per_channel);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return BatchNormFromRunning{.running_mean = at.as<float>(mean),
                                .running_variance = at.as<float>(variance),
                                .scale = at.as<float>(scale),
                                .shift = at.as<float>(shift),
                                .multiplier = at.as<float>(multiplier),
                                .addend = at.as<float>(addend),
                                .channels = s.channels};
  });
}

KernelCase backward_sums(const Shape& s, bool masked, std::uint64_t seed) {
  CaseBuilder build(s.named(masked ? "BatchNormBackwardSums_masked" : "BatchNormBackwardSums"),
                    DType::f32, seed);
  const OperandId dy = build.input(s.type, s.count);
  const OperandId mask = masked ? build.random_bits(s.mask_bytes) : kNoOperand;
  const OperandId x = build.input(s.type, s.count);
  const OperandId mean = build.floats(s.per_channel, 0, 1);
  const OperandId inverse = build.floats(s.per_channel, 0.5, 2);
  const OperandId kept = masked ? build.output(s.type, s.count) : kNoOperand;
  const OperandId partial = build.output(DType::f32, s.partials);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return BatchNormBackwardSums{.dy = at(dy),
                                 .mask = at.as<std::uint8_t>(mask),
                                 .x = at(x),
                                 .mean = at.as<float>(mean),
                                 .inverse_deviation = at.as<float>(inverse),
                                 .masked = at(kept),
                                 .partial = at.as<float>(partial),
                                 .type = s.type,
                                 .rows = s.rows,
                                 .channels = s.channels};
  });
}

KernelCase backward_finish(const Shape& s, std::uint64_t seed) {
  CaseBuilder build(s.named("BatchNormBackwardFinish"), DType::f32, seed);
  const OperandId partial = build.floats(s.partials, 0, 1);
  const OperandId scale = build.floats(s.per_channel, 0.5, 2), mean = build.floats(s.per_channel);
  const OperandId inverse = build.floats(s.per_channel, 0.5, 2);
  OperandId outputs[5];
  for (OperandId& output : outputs) output = build.output(DType::f32, s.per_channel);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return BatchNormBackwardFinish{.partial = at.as<float>(partial),
                                   .blocks = s.blocks,
                                   .rows = s.rows,
                                   .channels = s.channels,
                                   .scale = at.as<float>(scale),
                                   .mean = at.as<float>(mean),
                                   .inverse_deviation = at.as<float>(inverse),
                                   .dscale = at.as<float>(outputs[0]),
                                   .dshift = at.as<float>(outputs[1]),
                                   .dy_factor = at.as<float>(outputs[2]),
                                   .x_factor = at.as<float>(outputs[3]),
                                   .constant = at.as<float>(outputs[4])};
  });
}

/// The three factors of one batch norm.
struct Factors {
  OperandId dy = kNoOperand, x = kNoOperand, constant = kNoOperand;
};
Factors factors(CaseBuilder& build, const Shape& s) {
  return {build.floats(s.per_channel), build.floats(s.per_channel), build.floats(s.per_channel)};
}

KernelCase backward_apply(const Shape& s, bool accumulate, bool dual, std::uint64_t seed) {
  CaseBuilder build(s.named(fmt::format("BatchNormBackwardApply{}{}", dual ? "_dual" : "",
                                        accumulate ? "_added" : "")),
                    s.type, seed);
  const OperandId dy = build.input(s.type, s.count), mask = build.random_bits(s.mask_bytes);
  const OperandId x = build.input(s.type, s.count);
  const Factors one = factors(build, s), two = dual ? factors(build, s) : Factors{};
  const OperandId dx = accumulate ? build.both(s.type, s.count) : build.output(s.type, s.count);
  const OperandId x2 = dual ? build.input(s.type, s.count) : kNoOperand;
  const OperandId dx2 = dual ? build.output(s.type, s.count) : kNoOperand;
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return BatchNormBackwardApply{.dy = at(dy),
                                  .mask = at.as<std::uint8_t>(mask),
                                  .x = at(x),
                                  .dy_factor = at.as<float>(one.dy),
                                  .x_factor = at.as<float>(one.x),
                                  .constant = at.as<float>(one.constant),
                                  .dx = at(dx),
                                  .accumulate = accumulate,
                                  .x2 = at(x2),
                                  .dy_factor2 = at.as<float>(two.dy),
                                  .x_factor2 = at.as<float>(two.x),
                                  .constant2 = at.as<float>(two.constant),
                                  .dx2 = at(dx2),
                                  .type = s.type,
                                  .rows = s.rows,
                                  .channels = s.channels};
  });
}

}  // namespace

void add_batch_norm_cases(std::vector<KernelCase>& cases, DType type, std::uint64_t seed) {
  for (const MatrixShape& matrix : kMatrixShapes) {
    const Shape shape(type, matrix);
    cases.push_back(sums(shape, seed));
    cases.push_back(finish(shape, seed));
    cases.push_back(backward_sums(shape, false, seed));
    cases.push_back(backward_sums(shape, true, seed));
    cases.push_back(backward_apply(shape, false, false, seed));
    cases.push_back(backward_apply(shape, true, false, seed));
    cases.push_back(backward_apply(shape, false, true, seed));
    if (type != DType::f32) continue;
    cases.push_back(from_running(shape, seed));
    cases.push_back(backward_finish(shape, seed));
  }
}

}  // namespace penstock::gpu
