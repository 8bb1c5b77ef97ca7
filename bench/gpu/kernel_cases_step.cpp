// SPDX-License-Identifier: Apache-2.0
// Cases of kernels that run once per step: pixels, dropout, loss, and the short copies of weights.
#include <fmt/format.h>

#include <array>
#include <span>

#include "bench/gpu/kernel_case.h"

namespace penstock::gpu {
namespace {

struct Pixels {
  std::int32_t images, height, width, channels, padded, valid;
};

KernelCase normalise(DType from, DType type, const Pixels& pixels, std::uint64_t seed) {
  CaseBuilder build(
      fmt::format("Normalise {}_to_{} {}x{}x{}x{}_{}", name_of_type(from), name_of_type(type),
                  pixels.images, pixels.height, pixels.width, pixels.channels, pixels.padded),
      type, seed);
  const std::int64_t per_image = std::int64_t{pixels.height} * pixels.width;
  const auto rows = static_cast<std::size_t>(pixels.images * per_image);
  const std::size_t count = rows * static_cast<std::size_t>(pixels.channels);
  const OperandId x =
      from == DType::u8 ? build.random_bits(count) : build.input(from, count, 0, 255);
  const OperandId y = build.output(type, rows * static_cast<std::size_t>(pixels.padded));
  const OperandId scalars = build.scalars(pixels.valid);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return Normalise{.pixels = at(x),
                     .from = from,
                     .to = at(y),
                     .type = type,
                     .images = pixels.images,
                     .pixels_per_image = per_image,
                     .channels = pixels.channels,
                     .padded_channels = pixels.padded,
                     .factor = {0.017F, 0.018F, 0.0174F, 1},
                     .offset = {-2.1F, -2.0F, -1.8F, 0},
                     .scalars = at.as<StepScalars>(scalars)};
  });
}

KernelCase dropout(DType type, std::int32_t images, std::int32_t channels, std::int64_t pixels,
                   bool accumulate, std::uint64_t seed) {
  CaseBuilder build(fmt::format("DropoutApply{} {} {}x{}x{}", accumulate ? "_added" : "",
                                name_of_type(type), images, pixels, channels),
                    type, seed);
  const auto count = static_cast<std::size_t>(images * channels * pixels);
  const OperandId x = build.input(type, count);
  const OperandId y = accumulate ? build.both(type, count) : build.output(type, count);
  const OperandId scalars = build.scalars(images);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return DropoutApply{.x = at(x),
                        .y = at(y),
                        .accumulate = accumulate,
                        .seed = seed,
                        .node = 3,
                        .rate = 0.4F,
                        .scalars = at.as<StepScalars>(scalars),
                        .type = type,
                        .images = images,
                        .channels = channels,
                        .pixels_per_image = pixels};
  });
}

KernelCase cross_entropy(DType type, std::int32_t images, std::int32_t classes, std::int32_t valid,
                         std::uint64_t seed) {
  CaseBuilder build(
      fmt::format("SoftmaxCrossEntropy {} {}x{}", name_of_type(type), images, classes), type, seed);
  const auto rows = static_cast<std::size_t>(images);
  const std::size_t count = rows * static_cast<std::size_t>(classes);
  const OperandId logits = build.input(type, count, -8, 8);
  const OperandId labels = build.integers(rows, static_cast<std::uint32_t>(classes));
  const OperandId dlogits = build.output(type, count), loss = build.output(DType::f32, rows);
  const OperandId above = build.output_bits(rows * sizeof(std::int32_t));
  const OperandId scalars = build.scalars(valid);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return SoftmaxCrossEntropy{.logits = at(logits),
                               .labels = at.as<std::int32_t>(labels),
                               .dlogits = at(dlogits),
                               .loss = at.as<float>(loss),
                               .above = at.as<std::int32_t>(above),
                               .scalars = at.as<StepScalars>(scalars),
                               .type = type,
                               .images = images,
                               .classes = classes};
  });
}

KernelCase narrow(DType type, std::size_t count, std::uint64_t seed) {
  CaseBuilder build(fmt::format("NarrowWeights {} {}", name_of_type(type), count), type, seed);
  const OperandId from = build.floats(count);
  const OperandId to = build.output(type, count);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return NarrowWeights{at.as<float>(from), at(to), type, count};
  });
}

KernelCase widen(DType type, std::uint64_t seed) {
  CaseBuilder build(fmt::format("WidenGradients {}", name_of_type(type)), DType::f32, seed);
  const std::array chunks{ArenaChunk{0, kChunkElements, true},
                          ArenaChunk{kChunkElements, 1000, false},
                          ArenaChunk{kChunkElements + 1000, 37, true},
                          ArenaChunk{kChunkElements + 1037, kChunkElements, true}};
  const std::size_t count = std::size_t{2} * kChunkElements + 1037;
  const OperandId table = build.constant(std::span<const ArenaChunk>(chunks));
  const OperandId from = build.input(type, count);
  const OperandId to = build.both(DType::f32, count);
  const OperandId scalars = build.scalars(1);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return WidenGradients{.narrow = at(from),
                          .type = type,
                          .wide = at.as<float>(to),
                          .chunks = at.as<ArenaChunk>(table),
                          .chunk_count = static_cast<std::int32_t>(chunks.size()),
                          .scalars = at.as<StepScalars>(scalars)};
  });
}

}  // namespace

void add_step_cases(std::vector<KernelCase>& cases, DType type, std::uint64_t seed) {
  for (const Pixels& pixels :
       {Pixels{2, 224, 224, 3, 4, 2}, Pixels{3, 17, 15, 3, 8, 2}, Pixels{2, 9, 7, 1, 1, 2},
        Pixels{2, 5, 5, 3, 3, 1}, Pixels{1, 4, 3, 17, 17, 1}}) {
    for (const DType from : {DType::u8, DType::f16, DType::f32}) {
      cases.push_back(normalise(from, type, pixels, seed));
    }
  }
  for (const bool accumulate : {false, true}) {
    cases.push_back(dropout(type, 8, 4096, 1, accumulate, seed));
    cases.push_back(dropout(type, 3, 17, 15, accumulate, seed));
  }
  cases.push_back(cross_entropy(type, 64, 1000, 64, seed));
  cases.push_back(cross_entropy(type, 5, 7, 3, seed));
  cases.push_back(cross_entropy(type, 2, 1, 2, seed));
  if (type == DType::f32) return;
  for (const std::size_t count : {std::size_t{1}, std::size_t{1003}, std::size_t{2'359'296}}) {
    cases.push_back(narrow(type, count, seed));
  }
  cases.push_back(widen(type, seed));
}

}  // namespace penstock::gpu
