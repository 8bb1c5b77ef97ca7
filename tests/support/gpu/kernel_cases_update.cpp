// SPDX-License-Identifier: Apache-2.0
// Cases of kernels over the arenas of weights and gradients, at aligned and unaligned addresses.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "tests/support/gpu/kernel_case.h"
#include "trainer/optimizer.h"
#include "trainer/optimizers/trust_ratio.h"

namespace penstock::gpu {
namespace {

/// The first element of a slice, counted from an aligned address, and its length.
struct Slice {
  std::size_t first, count;
  std::string text() const { return fmt::format("{}+{}", first, count); }
};
constexpr Slice kSlices[] = {{0, 0},    {0, 1}, {0, 4096},     {4, 30003},    {1, 5},
                             {3, 9001}, {2, 2}, {12, 100'003}, {0, 2'359'296}};

void narrow_weights(KernelCase& k, DType type, const Slice& slice) {
  auto* const to = static_cast<std::byte*>(k.output(type, slice.first + slice.count + 1));
  const NarrowWeights call{k.floats(slice.first + slice.count + 1) + slice.first,
                           to + slice.first * size_of(type), type, slice.count};
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t i = 0; i < slice.count; ++i) {
      r.rounded(call.to, type, i, double{call.from[i]}, 0);
    }
  };
}

void widen_sums(KernelCase& k, DType type, const Slice& slice) {
  const auto* const from =
      static_cast<const std::byte*>(k.input(type, slice.first + slice.count + 1));
  const WidenSums call{from + slice.first * size_of(type), type,
                       k.output_floats(slice.first + slice.count + 1) + slice.first, slice.count};
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t i = 0; i < slice.count; ++i) r.near(call.to, i, value(call.from, type, i), 0);
  };
}

/// The f32 sum in rank order is exact in the test's arithmetic, too.
void sum_slices(KernelCase& k, DType type, std::int32_t ranks, std::int32_t root,
                const Slice& slice) {
  SumSlices call{
      .ranks = ranks, .root = root, .first = slice.first, .count = slice.count, .type = type};
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    call.tensors[rank] = k.both(type, slice.first + slice.count + 3, -1, 1);
  }
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t i = slice.first; i < slice.first + slice.count; ++i) {
      auto sum = static_cast<float>(value(call.tensors[0], type, i));
      for (std::int32_t rank = 1; rank < ranks; ++rank) {
        sum += static_cast<float>(value(call.tensors[rank], type, i));
      }
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        const bool gets = root < 0 || root == rank;
        const double expected = gets ? double{sum} : value(call.tensors[rank], type, i);
        if (type == DType::f32) {
          r.near(static_cast<const float*>(call.tensors[rank]), i, expected, 0);
        } else {
          r.rounded(call.tensors[rank], type, i, expected, 0);
        }
      }
    }
  };
}

/// Has one element that is not finite, or none: then the largest number is at its place.
void check_finite(KernelCase& k, const Slice& slice, double wrong, std::size_t place) {
  std::vector<float> values(slice.first + slice.count, 0.5F);
  const bool is_finite = std::isfinite(wrong);
  if (slice.count > 0) {
    values[slice.first + place] =
        is_finite ? std::numeric_limits<float>::max() : static_cast<float>(wrong);
  }
  const CheckFinite call{k.constant(values) + slice.first, slice.count,
                         k.output_bits<std::int32_t>(kFiniteBlocks)};
  k.call = call;
  k.formula = [=](Results& r) {
    std::int32_t bad = 0;
    for (std::size_t i = 0; i < kFiniteBlocks; ++i) {
      const std::int32_t part =
          reinterpret_cast<const std::int32_t*>(r.memory_after(call.partial))[i];
      r.expect(call.partial, i, part == 0 || part == 1, true, 0);
      bad += part == 0 ? 1 : 0;
    }
    r.expect(call.partial, 0, bad, is_finite || slice.count == 0 ? 0 : 1, 0);
  };
}

/// Chunks that begin at any element, some of them flagged, with gaps that belong to no chunk.
constexpr auto kChunks = [] {
  std::array<ArenaChunk, 7> chunks{};
  std::size_t first = 0;
  for (std::size_t i = 0;
       const std::uint32_t count : {kChunkElements, 1U, 7U, 64U, 1000U, 5000U, 4U}) {
    chunks[i] = {first, count, i % 2 == 0};
    first += count + 2;
    ++i;
  }
  return chunks;
}();
constexpr std::size_t kWeights = kChunks.back().first + kChunks.back().count + 2;
constexpr auto kChunkCount = static_cast<std::int32_t>(kChunks.size());

ArenaChunk* chunk_table(KernelCase& k) { return k.constant(kChunks); }

void widen_gradients(KernelCase& k, DType type, float loss_scale) {
  StepScalars* const scalars = k.scalars(1);
  scalars->loss_scale = loss_scale;
  const WidenGradients call{.narrow = k.input(type, kWeights),
                            .type = type,
                            .wide = static_cast<float*>(k.both(DType::f32, kWeights)),
                            .chunks = chunk_table(k),
                            .chunk_count = kChunkCount,
                            .scalars = scalars};
  k.call = call;
  k.formula = [=](Results& r) {
    for (const ArenaChunk& chunk : kChunks) {
      for (std::size_t i = chunk.first; i < chunk.first + chunk.count; ++i) {
        const double of = chunk.flag ? value(call.narrow, type, i) : double{call.wide[i]};
        r.rounded(call.wide, DType::f32, i, of / double{loss_scale}, 0);
      }
    }
  };
}

/// A rule in the user's notation, and as the kernel's constants.
struct Rule {
  std::string_view name, text;
  UpdateRule rule;
  double constants[3];
};
constexpr Rule kRules[] = {
    {"sgd", "sgd", UpdateRule::sgd, {}},
    {"momentum", "momentum:momentum=0.8,nesterov=false", UpdateRule::momentum, {0.8}},
    {"nesterov", "momentum:momentum=0.8,nesterov=true", UpdateRule::nesterov, {0.8}},
    {"rmsprop", "rmsprop:decay=0.9,momentum=0.7,epsilon=0.5", UpdateRule::rmsprop, {0.9, 0.7, 0.5}},
    {"adam", "adam:beta1=0.9,beta2=0.999,epsilon=1e-8", UpdateRule::adam, {0.9, 0.999, 1e-8}},
    {"lars", "lars:eta=0.02,epsilon=0.5,momentum=0.8", UpdateRule::lars, {0.8}},
};
constexpr double kEta = 0.02, kEpsilon = 0.5;
constexpr float kGradientScale = 0.25F;

/// The norms of the tensor of a chunk, which lars needs.
struct Norms {
  double weight, gradient;
};
Norms norms_of(std::size_t chunk) { return {1. + static_cast<double>(chunk), 3.5}; }

/// The rule that every backend follows computes the same operations in the same order; a compiler
/// may fuse some.
void expect_update(const Rule& rule, const UpdateWeights& call, Results& r) {
  const ComponentText parts = parse_component(rule.text);
  const OptimizerEntry& entry = find_entry(optimizer_table(), parts.name);
  const OptimizerEntry::Rule on_host = entry.make(Options(entry.name, entry.options, parts));
  for (std::size_t c = 0; c < kChunks.size(); ++c) {
    const ArenaChunk& chunk = kChunks[c];
    float* const arenas[] = {call.weights, call.state[0], call.state[1]};
    std::vector<float> expected[3];
    for (const std::size_t a : {0U, 1U, 2U}) {
      const float* const first = arenas[a] + chunk.first;
      expected[a].assign(first, first + chunk.count);
    }
    std::vector<float> gradient(call.gradients + chunk.first,
                                call.gradients + chunk.first + chunk.count);
    Hyper own = call.scalars->hyper;
    if (!chunk.flag) own.weight_decay = 0;
    UpdateRange range{.weight = expected[0], .gradient = gradient};
    range.state = {std::span(expected[1]), std::span(expected[2])};
    range.gradient_scale = kGradientScale;
    if (rule.rule == UpdateRule::lars) {
      range.weight_norm = norms_of(c).weight;
      range.gradient_norm = norms_of(c).gradient;
    }
    on_host(own, range);
    for (const std::size_t a : {0U, 1U, 2U}) {
      for (std::size_t i = 0; i < chunk.count; ++i) {
        const double value = double{expected[a][i]};
        r.near(arenas[a], chunk.first + i, value, 0x1p-21 * (1 + std::abs(value)));
      }
    }
  }
}

/// `asks`: the kernel looks whether all gradients are finite.
void update(KernelCase& k, const Rule& rule, const Hyper& hyper, bool asks, bool finite) {
  StepScalars* const scalars = k.scalars(1);
  scalars->hyper = hyper;
  std::vector<std::int32_t> flags(kFiniteBlocks, 1);
  if (!finite) flags[200] = 0;
  std::vector<float> trust;
  for (std::size_t c = 0; c < kChunks.size(); ++c) {
    const double decay = kChunks[c].flag ? double{hyper.weight_decay} : 0;
    trust.push_back(trust_ratio(kEta, kEpsilon, decay, norms_of(c).weight, norms_of(c).gradient));
  }
  const auto arena = [&](double low, double high) {
    return static_cast<float*>(k.both(DType::f32, kWeights, low, high));
  };
  const UpdateWeights call{
      .rule = rule.rule,
      .constants = {rule.constants[0], rule.constants[1], rule.constants[2]},
      .weights = arena(-1, 1),
      .gradients = k.floats(kWeights, -8, 8),
      .state = {arena(rule.rule == UpdateRule::rmsprop ? 0 : -1, 1), arena(0.5, 1)},  // squares
      .gradient_scale = kGradientScale,
      .chunks = chunk_table(k),
      .chunk_count = kChunkCount,
      .scalars = scalars,
      .finite = asks ? k.constant(flags) : nullptr,
      .squares = k.output_floats(kChunks.size()),
      .trust = k.constant(trust)};
  k.call = call;
  k.formula = [=](Results& r) {
    for (std::size_t c = 0; c < kChunks.size(); ++c) {
      double sum = 0;
      for (std::size_t i = 0; i < kChunks[c].count; ++i) {
        sum += std::pow(double{call.weights[kChunks[c].first + i]}, 2);
      }
      // 64 squares per thread, then a tree.
      r.near(call.squares, c, kChunks[c].flag ? sum : 0, 16 * 0x1p-24 * sum);
    }
    if (finite) return expect_update(rule, call, r);
    for (const float* const same : {call.weights, call.state[0], call.state[1]}) {
      for (std::size_t i = 0; i < kWeights; ++i) r.near(same, i, double{same[i]}, 0);
    }
  };
}

void sum_squares(KernelCase& k, float clip) {
  StepScalars* const scalars = k.scalars(1);
  scalars->hyper.gradient_clip = clip;
  const SumSquares call{.weights = k.floats(kWeights),
                        .gradients = k.floats(kWeights, -8, 8),
                        .gradient_scale = kGradientScale,
                        .chunks = chunk_table(k),
                        .chunk_count = kChunkCount,
                        .scalars = scalars,
                        .squares = k.output_floats(2 * kChunks.size())};
  k.call = call;
  k.formula = [=](Results& r) {
    const double limit = clip > 0 ? double{clip} : INFINITY;
    for (std::size_t c = 0; c < kChunks.size(); ++c) {
      double weight = 0, gradient = 0;
      for (std::size_t i = kChunks[c].first; i < kChunks[c].first + kChunks[c].count; ++i) {
        weight += std::pow(double{call.weights[i]}, 2);
        gradient +=
            std::pow(std::clamp(double{kGradientScale * call.gradients[i]}, -limit, limit), 2);
      }
      r.near(call.squares, 2 * c, weight, 32 * 0x1p-24 * weight);
      r.near(call.squares, 2 * c + 1, gradient, 32 * 0x1p-24 * gradient);
    }
  };
}

/// Tensors of several chunks, of one, and one that is not scaled.
void find_trust(KernelCase& k) {
  static constexpr std::array kTensors{
      ArenaTensor{0, 3, true, true}, ArenaTensor{3, 1, true, false}, ArenaTensor{4, 1, false, true},
      ArenaTensor{5, 2, true, true}};
  const FindTrust call{.eta = kEta,
                       .epsilon = kEpsilon,
                       .tensors = k.constant(kTensors),
                       .tensor_count = static_cast<std::int32_t>(kTensors.size()),
                       .chunk_count = kChunkCount,
                       .squares = k.floats(2 * kChunks.size(), 1, 4),
                       .scalars = k.scalars(1),
                       .trust = k.output_floats(kChunks.size())};
  k.call = call;
  k.formula = [=](Results& r) {
    for (const ArenaTensor& tensor : kTensors) {
      const auto first = static_cast<std::size_t>(tensor.first_chunk);
      const std::size_t last = first + static_cast<std::size_t>(tensor.chunk_count);
      double weight = 0, gradient = 0;
      for (std::size_t c = first; c < last; ++c) {
        weight += double{call.squares[2 * c]};
        gradient += double{call.squares[2 * c + 1]};
      }
      const double decay = tensor.decays ? double{call.scalars->hyper.weight_decay} : 0;
      const double ratio =
          kEta * std::sqrt(weight) / (std::sqrt(gradient) + decay * std::sqrt(weight) + kEpsilon);
      for (std::size_t c = first; c < last; ++c) {
        r.near(call.trust, c, tensor.scaled ? ratio : 1, 1e-5 * ratio);
      }
    }
  };
}

}  // namespace

void add_update_cases(std::vector<NamedCase>& cases) {
  const auto add = [&](std::string name, DType type, std::size_t elements,
                       std::function<void(KernelCase&)> fill) {
    cases.push_back({std::move(name), type, elements, std::move(fill)});
  };
  for (const DType type : {DType::f16, DType::bf16}) {
    const std::string_view type_name = name_of_type(type);
    for (const Slice& slice : kSlices) {
      add(fmt::format("NarrowWeights {} {}", type_name, slice.text()), type, slice.count,
          [=](KernelCase& k) { narrow_weights(k, type, slice); });
      add(fmt::format("WidenSums {} {}", type_name, slice.text()), DType::f32, slice.count,
          [=](KernelCase& k) { widen_sums(k, type, slice); });
    }
    for (const float loss_scale : {1.F, 128.F, 3.F}) {
      add(fmt::format("WidenGradients {} {}", type_name, loss_scale), DType::f32, kWeights,
          [=](KernelCase& k) { widen_gradients(k, type, loss_scale); });
    }
  }
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const Slice& slice : kSlices) {
      if (slice.count > 1'000'000) continue;
      for (const std::int32_t ranks : {1, 3, kMaxRanks}) {
        if (ranks == 1 && slice.count > 10'000) continue;
        for (const std::int32_t root : std::set{-1, 0, ranks - 1}) {
          if (root >= 0 && type != DType::f32) continue;
          add(fmt::format("SumSlices{} {} {} {}", root < 0 ? "" : fmt::format("_to_{}", root),
                          name_of_type(type), ranks, slice.text()),
              type, slice.count * static_cast<std::size_t>(ranks),
              [=](KernelCase& k) { sum_slices(k, type, ranks, root, slice); });
        }
      }
    }
  }
  for (const Slice& slice : kSlices) {
    const std::size_t last = std::max<std::size_t>(slice.count, 1) - 1;
    for (const std::size_t place : std::set{std::size_t{0}, last / 2, last}) {
      if (slice.count > kLargeCase && place != last) continue;
      for (const double wrong : {double{INFINITY}, double{-INFINITY}, double{NAN}, 0.}) {
        add(fmt::format("CheckFinite {} {} at {}", slice.text(), wrong, place), DType::f32,
            slice.count, [=](KernelCase& k) { check_finite(k, slice, wrong, place); });
      }
    }
  }
  const Hyper first{.learning_rate = 0.05F, .weight_decay = 0.1F, .step = 0},
      later{.learning_rate = 0.05F, .weight_decay = 0.1F, .gradient_clip = 1, .step = 1200};
  for (const Rule& rule : kRules) {
    add(fmt::format("UpdateWeights {}", rule.name), DType::f32, kWeights,
        [=](KernelCase& k) { update(k, rule, first, true, true); });
    add(fmt::format("UpdateWeights {} clipped", rule.name), DType::f32, kWeights,
        [=](KernelCase& k) { update(k, rule, later, false, true); });
    add(fmt::format("UpdateWeights_not_finite {}", rule.name), DType::f32, kWeights,
        [=](KernelCase& k) { update(k, rule, first, true, false); });
  }
  for (const float clip : {0.F, 1.5F}) {
    add(fmt::format("SumSquares {}", clip), DType::f32, kWeights,
        [=](KernelCase& k) { sum_squares(k, clip); });
  }
  add("FindTrust", DType::f32, kChunks.size(), find_trust);
}

}  // namespace penstock::gpu
