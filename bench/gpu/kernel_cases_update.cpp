// SPDX-License-Identifier: Apache-2.0
// Cases of scalars, results, the update of weights, and sums over replicas.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>

#include "bench/gpu/kernel_case.h"

namespace penstock::gpu {
namespace {

KernelCase set_step(std::uint64_t seed) {
  CaseBuilder build("SetStep", DType::f32, seed);
  const OperandId scalars = build.output_bits(sizeof(StepScalars));
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return SetStep{at.as<StepScalars>(scalars), 5, 31, 128};
  });
}

KernelCase set_hyper(std::uint64_t seed) {
  CaseBuilder build("SetHyper", DType::f32, seed);
  const OperandId scalars = build.output_bits(sizeof(StepScalars));
  KernelCase made = build.build([=](const OperandAddresses& at) -> KernelCall {
    return SetHyper{at.as<StepScalars>(scalars), Hyper{0.5F, 1e-4F, 2, 11}};
  });
  made.repeats = false;
  made.tolerance = 4.0 / sizeof(StepScalars);  // the struct has 4 bytes of padding
  return made;
}

KernelCase summarise_step(std::int32_t images, std::int32_t valid, std::uint64_t seed) {
  CaseBuilder build(fmt::format("SummariseStep {}", images), DType::f32, seed);
  const OperandId loss = build.floats(static_cast<std::size_t>(images), 0, 8);
  const OperandId above = build.integers(static_cast<std::size_t>(images), 20);
  const OperandId scalars = build.scalars(valid), result = build.output_result();
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return SummariseStep{at.as<float>(loss), at.as<std::int32_t>(above), images,
                         at.as<StepScalars>(scalars), at.as<StepResult>(result)};
  });
}

/// Has one infinite element, or none.
KernelCase check_finite(std::size_t count, bool finite, std::uint64_t seed) {
  CaseBuilder build(fmt::format("CheckFinite{} {}", finite ? "" : "_infinite", count), DType::f32,
                    seed);
  const OperandId from = build.made([=](Random& random) {
    Bytes values = random_elements(DType::f32, count, random, -1, 1);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    if (!finite) std::memcpy(values.data() + count / 2 * sizeof(float), &kInfinity, sizeof(float));
    return values;
  });
  const OperandId partial = build.output_bits(kFiniteBlocks * sizeof(std::int32_t));
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return CheckFinite{at.as<float>(from), count, at.as<std::int32_t>(partial)};
  });
}

constexpr std::array kChunks{
    ArenaChunk{0, kChunkElements, true}, ArenaChunk{kChunkElements, 64, false},
    ArenaChunk{kChunkElements + 64, 999, true}, ArenaChunk{kChunkElements + 1063, 1, false}};
constexpr std::size_t kWeights = kChunkElements + 1064;

struct Rule {
  std::string_view name;
  UpdateRule rule;
  std::array<double, 3> constants;
};

/// `finite`: the flag that says whether the gradients are finite.
KernelCase update(const Rule& rule, bool finite, std::uint64_t seed) {
  CaseBuilder build(fmt::format("UpdateWeights {}{}", rule.name, finite ? "" : "_not_finite"),
                    DType::f32, seed);
  const OperandId chunks = build.constant(std::span<const ArenaChunk>(kChunks));
  const OperandId weights = build.both(DType::f32, kWeights, -1, 1);
  const OperandId gradients = build.floats(kWeights);
  const OperandId state[2] = {build.both(DType::f32, kWeights, -1, 1),
                              build.both(DType::f32, kWeights, 0.5, 1)};
  std::vector<std::int32_t> flags(kFiniteBlocks, 1);
  if (!finite) flags[kFiniteBlocks / 2] = 0;
  const OperandId are_finite = build.constant(std::span<const std::int32_t>(flags));
  const OperandId squares = build.output(DType::f32, kChunks.size());
  const OperandId scalars = build.scalars(1);
  const OperandId trust = build.floats(kChunks.size(), 0, 1);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return UpdateWeights{.rule = rule.rule,
                         .constants = {rule.constants[0], rule.constants[1], rule.constants[2]},
                         .weights = at.as<float>(weights),
                         .gradients = at.as<float>(gradients),
                         .state = {at.as<float>(state[0]), at.as<float>(state[1])},
                         .gradient_scale = 0.5F,
                         .chunks = at.as<ArenaChunk>(chunks),
                         .chunk_count = static_cast<std::int32_t>(kChunks.size()),
                         .scalars = at.as<StepScalars>(scalars),
                         .finite = at.as<std::int32_t>(are_finite),
                         .squares = at.as<float>(squares),
                         .trust = at.as<float>(trust)};
  });
}

KernelCase sum_squares(std::uint64_t seed) {
  CaseBuilder build("SumSquares", DType::f32, seed);
  const OperandId chunks = build.constant(std::span<const ArenaChunk>(kChunks));
  const OperandId weights = build.floats(kWeights), gradients = build.floats(kWeights);
  const OperandId scalars = build.scalars(1);
  const OperandId squares = build.output(DType::f32, 2 * kChunks.size());
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return SumSquares{.weights = at.as<float>(weights),
                      .gradients = at.as<float>(gradients),
                      .gradient_scale = 0.5F,
                      .chunks = at.as<ArenaChunk>(chunks),
                      .chunk_count = static_cast<std::int32_t>(kChunks.size()),
                      .scalars = at.as<StepScalars>(scalars),
                      .squares = at.as<float>(squares)};
  });
}

/// Two tensors: one with the first chunk, one with the other chunks.
KernelCase find_trust(std::uint64_t seed) {
  static constexpr std::array kTensors{
      ArenaTensor{0, 1, true, true},
      ArenaTensor{1, static_cast<std::int32_t>(kChunks.size()) - 1, true, false}};
  CaseBuilder build("FindTrust", DType::f32, seed);
  const OperandId tensors = build.constant(std::span<const ArenaTensor>(kTensors));
  const OperandId squares = build.floats(2 * kChunks.size(), 1, 4);
  const OperandId scalars = build.scalars(1);
  const OperandId trust = build.output(DType::f32, kChunks.size());
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return FindTrust{.eta = 0.001,
                     .epsilon = 1e-6,
                     .tensors = at.as<ArenaTensor>(tensors),
                     .tensor_count = static_cast<std::int32_t>(kTensors.size()),
                     .chunk_count = static_cast<std::int32_t>(kChunks.size()),
                     .squares = at.as<float>(squares),
                     .scalars = at.as<StepScalars>(scalars),
                     .trust = at.as<float>(trust)};
  });
}

KernelCase summarise_update(std::int32_t chunks, std::uint64_t seed) {
  CaseBuilder build(fmt::format("SummariseUpdate {}", chunks), DType::f32, seed);
  const OperandId squares = build.floats(static_cast<std::size_t>(chunks), 0, 4);
  const OperandId scalars = build.scalars(1), result = build.output_result();
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return SummariseUpdate{.squares = at.as<float>(squares),
                           .chunk_count = chunks,
                           .scalars = at.as<StepScalars>(scalars),
                           .result = at.as<StepResult>(result)};
  });
}

KernelCase adapt_loss_scale(bool finite, std::uint64_t seed) {
  CaseBuilder build(fmt::format("AdaptLossScale{}", finite ? "" : "_not_finite"), DType::f32, seed);
  std::vector<std::int32_t> flags(kFiniteBlocks, 1);
  if (!finite) flags.back() = 0;
  const OperandId are_finite = build.constant(std::span<const std::int32_t>(flags));
  static_assert(sizeof(StepScalars) % sizeof(float) == 0);
  const OperandId scalars = build.both(DType::f32, sizeof(StepScalars) / sizeof(float), 1, 2);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return AdaptLossScale{at.as<std::int32_t>(are_finite), 1.5F, at.as<StepScalars>(scalars)};
  });
}

KernelCase sum_slices(DType type, std::int32_t ranks, std::int32_t root, std::uint64_t seed) {
  CaseBuilder build(
      fmt::format("SumSlices {} {}{}", name_of_type(type), ranks, root < 0 ? "" : "_to_root"), type,
      seed);
  constexpr std::size_t kFirst = 12, kCount = 100'003;
  std::array<OperandId, kMaxRanks> tensors{};
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    tensors[static_cast<std::size_t>(rank)] = build.both(type, kFirst + kCount, -1, 1);
  }
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    SumSlices call{.ranks = ranks, .root = root, .first = kFirst, .count = kCount, .type = type};
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      call.tensors[rank] = at(tensors[static_cast<std::size_t>(rank)]);
    }
    return call;
  });
}

KernelCase widen_sums(DType type, std::uint64_t seed) {
  CaseBuilder build(fmt::format("WidenSums {}", name_of_type(type)), DType::f32, seed);
  constexpr std::size_t kCount = 100'003;
  const OperandId from = build.input(type, kCount);
  const OperandId to = build.output(DType::f32, kCount);
  return build.build([=](const OperandAddresses& at) -> KernelCall {
    return WidenSums{at(from), type, at.as<float>(to), kCount};
  });
}

}  // namespace

void add_update_cases(std::vector<KernelCase>& cases, std::uint64_t seed) {
  cases.push_back(set_step(seed));
  cases.push_back(set_hyper(seed));
  cases.push_back(summarise_step(256, 256, seed));
  cases.push_back(summarise_step(37, 30, seed));
  for (const std::size_t count : {std::size_t{100}, std::size_t{2'000'003}}) {
    cases.push_back(check_finite(count, true, seed));
    cases.push_back(check_finite(count, false, seed));
  }
  for (const Rule& rule :
       {Rule{"sgd", UpdateRule::sgd, {}}, Rule{"momentum", UpdateRule::momentum, {0.9}},
        Rule{"nesterov", UpdateRule::nesterov, {0.9}},
        Rule{"rmsprop", UpdateRule::rmsprop, {0.9, 0.9, 1}},
        Rule{"adam", UpdateRule::adam, {0.9, 0.999, 1e-8}},
        Rule{"lars", UpdateRule::lars, {0.9}}}) {
    cases.push_back(update(rule, true, seed));
    cases.push_back(update(rule, false, seed));
  }
  cases.push_back(sum_squares(seed));
  cases.push_back(find_trust(seed));
  cases.push_back(summarise_update(1, seed));
  cases.push_back(summarise_update(1700, seed));
  cases.push_back(adapt_loss_scale(true, seed));
  cases.push_back(adapt_loss_scale(false, seed));
  for (const std::int32_t ranks : {2, 4, 16}) {
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      cases.push_back(sum_slices(type, ranks, -1, seed));
    }
    cases.push_back(sum_slices(DType::f32, ranks, ranks - 1, seed));
  }
  for (const DType type : {DType::f16, DType::bf16}) cases.push_back(widen_sums(type, seed));
}

}  // namespace penstock::gpu
