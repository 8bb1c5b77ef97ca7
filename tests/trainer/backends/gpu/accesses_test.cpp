// SPDX-License-Identifier: Apache-2.0
// Tests the result of accesses_of() for each kernel against the kernel itself: the kernel changes
// only memory in the write list, and only memory in the read list affects what it writes.
#include "tests/support/gpu/accesses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "dataflow/random.h"
#include "tests/support/gpu/host_launch.h"
#include "tests/support/gpu/host_memory.h"
#include "tests/support/gpu/rounding.h"

namespace penstock::gpu {
namespace {

constexpr std::int32_t kImages = 2, kSide = 5, kChannels = 6, kRows = kImages * kSide * kSide;

/// Blocks of memory, each as long as its content.
class Blocks {
 public:
  template <typename T>
  T* take(const std::vector<T>& content) {
    std::byte* const data = memory_.allocate(content.size() * sizeof(T), MemoryKind::device);
    std::memcpy(data, content.data(), content.size() * sizeof(T));
    initial_[data] = {data, data + content.size() * sizeof(T)};
    return reinterpret_cast<T*>(data);
  }
  float* floats(std::int32_t count) {
    std::vector<float> content(static_cast<std::size_t>(count));
    for (float& value : content) value = static_cast<float>(random_.uniform(0.25, 1));
    return take(content);
  }
  /// Activations of one type.
  void* elements(DType type, std::int32_t count = kRows * kChannels) {
    if (type == DType::f32) return floats(count);
    std::vector<std::uint16_t> content(static_cast<std::size_t>(count));
    for (std::uint16_t& bits : content) {
      const auto value = static_cast<float>(random_.uniform(-1, 1));
      bits = type == DType::f16 ? to_f16(value) : to_bf16(value);
    }
    return take(content);
  }
  std::uint8_t* bytes(std::int32_t count, std::uint64_t bound) {
    std::vector<std::uint8_t> content(static_cast<std::size_t>(count));
    for (std::uint8_t& value : content) value = static_cast<std::uint8_t>(random_.below(bound));
    return take(content);
  }
  std::uint8_t* mask() { return bytes((kRows * kChannels + 7) / 8, 256); }
  StepScalars* scalars() {
    return take(std::vector<StepScalars>{{.step = 3, .valid = 1, .loss_scale = 8, .hyper = {}}});
  }

  /// Runs the call on fresh content, and again on content that is NaN outside of the call's read
  /// list.
  void expect_as_said(const KernelCall& call) {
    SCOPED_TRACE(name_of(call));
    restore({});
    const Accesses said = accesses_of(call);
    memory_.check(name_of(call), said, false);
    launch_on_host(call);
    const Contents first = contents();
    Contents poisoned = initial_;
    for (auto& [begin, content] : poisoned) {
      for (std::size_t i = 0; i < content.size(); ++i) {
        if (!holds(said.reads, begin + i)) content[i] = std::byte{0xFF};
      }
    }
    restore(poisoned);
    launch_on_host(call);
    for (const auto& [begin, content] : contents()) {
      compare(said, begin, first.at(begin), content, poisoned.at(begin));
    }
  }

 private:
  using Contents = std::map<std::byte*, std::vector<std::byte>>;

  static bool holds(const std::vector<MemoryRange>& ranges, const std::byte* place) {
    return std::any_of(ranges.begin(), ranges.end(), [&](const MemoryRange& range) {
      return place >= range.begin && place < range.begin + range.bytes;
    });
  }
  void restore(const Contents& with) {
    for (const auto& [begin, content] : with.empty() ? initial_ : with) {
      std::memcpy(begin, content.data(), content.size());
    }
  }
  Contents contents() const {
    Contents now = initial_;
    for (auto& [begin, content] : now) std::memcpy(content.data(), begin, content.size());
    return now;
  }
  void compare(const Accesses& said, std::byte* begin, const std::vector<std::byte>& first,
               const std::vector<std::byte>& second, const std::vector<std::byte>& poisoned) {
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (first[i] == initial_[begin][i] && second[i] == poisoned[i]) continue;
      ASSERT_TRUE(holds(said.writes, begin + i))
          << "byte " << i << " of " << memory_.find(begin)->name << " was not to be written";
      ASSERT_EQ(first[i], second[i]) << "byte " << i << " of " << memory_.find(begin)->name
                                     << " depends on what was not to be read";
    }
  }

  HostMemory memory_;
  Contents initial_;
  Random random_{11};
};

class KernelAccesses : public testing::TestWithParam<DType> {
 protected:
  void* tensor(std::int32_t count = kRows * kChannels) {
    return blocks.elements(GetParam(), count);
  }
  float* channels() { return blocks.floats(kChannels); }
  float* partials(std::int32_t sums) {
    return blocks.floats(sum_blocks(kRows, kChannels) * sums * kChannels);
  }
  const std::int32_t sum_block_count = sum_blocks(kRows, kChannels);
  const DType type = GetParam();
  Blocks blocks;
};
INSTANTIATE_TEST_SUITE_P(Types, KernelAccesses, testing::Values(DType::f32, DType::f16),
                         [](const auto& tested) {
                           return tested.param == DType::f32 ? "F32" : "F16";
                         });

TEST_P(KernelAccesses, StepAndPixels) {
  StepScalars* const scalars = blocks.scalars();
  blocks.expect_as_said(SetStep{scalars, 4, 2, 16});
  blocks.expect_as_said(SetHyper{scalars, {.learning_rate = 2, .weight_decay = 1, .step = 9}});
  blocks.expect_as_said(Normalise{.pixels = blocks.bytes(kRows * 3, 256),
                                  .to = tensor(kRows * 4),
                                  .type = type,
                                  .images = kImages,
                                  .pixels_per_image = kSide * kSide,
                                  .channels = 3,
                                  .padded_channels = 4,
                                  .scalars = scalars});
  blocks.expect_as_said(DropoutApply{.x = tensor(),
                                     .y = tensor(),
                                     .accumulate = true,
                                     .rate = 0.5F,
                                     .scalars = scalars,
                                     .type = type,
                                     .images = kImages,
                                     .channels = kChannels,
                                     .pixels_per_image = kSide * kSide});
}

TEST_P(KernelAccesses, ScaleShiftAndRelu) {
  ScaleShift forward{
      .x = tensor(), .y = tensor(), .type = type, .rows = kRows, .channels = kChannels};
  blocks.expect_as_said(forward);
  forward.multiplier = channels();
  forward.addend = channels();
  forward.residual = tensor();
  forward.residual_multiplier = channels();
  forward.residual_addend = channels();
  forward.mask = blocks.mask();
  forward.relu = true;
  blocks.expect_as_said(forward);
  ReluBackward backward{
      .dy = tensor(), .y = tensor(), .dx = tensor(), .type = type, .count = kRows * kChannels};
  blocks.expect_as_said(backward);
  backward.mask = blocks.mask();
  backward.accumulate = true;
  blocks.expect_as_said(backward);
}

TEST_P(KernelAccesses, BatchNormForward) {
  blocks.expect_as_said(BatchNormSums{tensor(), partials(2), type, kRows, kChannels});
  BatchNormFinish finish{.partial = partials(2),
                         .blocks = sum_block_count,
                         .type = type,
                         .rows = kRows,
                         .channels = kChannels,
                         .scale = channels(),
                         .shift = channels(),
                         .mean = channels(),
                         .inverse_deviation = channels(),
                         .multiplier = channels(),
                         .addend = channels()};
  blocks.expect_as_said(finish);
  finish.pivot = tensor();
  finish.running_mean = channels();
  finish.running_variance = channels();
  finish.type = DType::f16;
  finish.pivot = blocks.elements(DType::f16);
  finish.short_multiplier = blocks.elements(DType::f16, kChannels);
  finish.short_addend = blocks.elements(DType::f16, kChannels);
  blocks.expect_as_said(finish);
  blocks.expect_as_said(BatchNormFromRunning{.running_mean = channels(),
                                             .running_variance = channels(),
                                             .scale = channels(),
                                             .shift = channels(),
                                             .multiplier = channels(),
                                             .addend = channels(),
                                             .channels = kChannels});
}

TEST_P(KernelAccesses, BatchNormBackward) {
  blocks.expect_as_said(BatchNormBackwardSums{.dy = tensor(),
                                              .mask = blocks.mask(),
                                              .x = tensor(),
                                              .mean = channels(),
                                              .inverse_deviation = channels(),
                                              .masked = tensor(),
                                              .partial = partials(2),
                                              .type = type,
                                              .rows = kRows,
                                              .channels = kChannels});
  blocks.expect_as_said(BatchNormBackwardFinish{.partial = partials(2),
                                                .blocks = sum_block_count,
                                                .rows = kRows,
                                                .channels = kChannels,
                                                .scale = channels(),
                                                .mean = channels(),
                                                .inverse_deviation = channels(),
                                                .dscale = channels(),
                                                .dshift = channels(),
                                                .dy_factor = channels(),
                                                .x_factor = channels(),
                                                .constant = channels()});
  BatchNormBackwardApply apply{.dy = tensor(),
                               .x = tensor(),
                               .dy_factor = channels(),
                               .x_factor = channels(),
                               .constant = channels(),
                               .dx = tensor(),
                               .type = type,
                               .rows = kRows,
                               .channels = kChannels};
  blocks.expect_as_said(apply);
  apply.accumulate = true;
  blocks.expect_as_said(apply);
  apply.accumulate = false;
  apply.mask = blocks.mask();
  apply.x2 = tensor();
  apply.dy_factor2 = channels();
  apply.x_factor2 = channels();
  apply.constant2 = channels();
  apply.dx2 = tensor();
  blocks.expect_as_said(apply);
}

TEST_P(KernelAccesses, ColumnsAndChannels) {
  blocks.expect_as_said(ColumnSums{tensor(), partials(1), type, kRows, kChannels});
  blocks.expect_as_said(ColumnFinish{partials(1), sum_block_count, kChannels, channels()});
  CopyChannels copy{.from = tensor(kRows * 5),
                    .to = tensor(kRows * 9),
                    .rows = kRows,
                    .channels = 3,
                    .from_channels = 5,
                    .from_first = 2,
                    .to_channels = 9,
                    .to_first = 1,
                    .type = type};
  blocks.expect_as_said(copy);
  copy.zero_rest = true;
  blocks.expect_as_said(copy);
  copy.zero_rest = false;
  copy.accumulate = true;
  blocks.expect_as_said(copy);
  blocks.expect_as_said(LrnForward{tensor(), tensor(), {}, type, kRows, kChannels});
  blocks.expect_as_said(LrnBackward{.x = tensor(),
                                    .dy = tensor(),
                                    .dx = tensor(),
                                    .accumulate = true,
                                    .lrn = {},
                                    .type = type,
                                    .rows = kRows,
                                    .channels = kChannels});
}

TEST_P(KernelAccesses, Pools) {
  const PoolShape shape{kImages, kSide, kSide, kChannels, 3, 3, {3, 3, 2, 1, 1, 1, 1}};
  const std::int32_t outputs = kImages * 3 * 3 * kChannels;
  blocks.expect_as_said(
      MaxPoolForward{tensor(), tensor(outputs), blocks.bytes(outputs, 9), shape, type});
  blocks.expect_as_said(MaxPoolForward{tensor(), tensor(outputs), blocks.bytes(outputs, 9), shape,
                                       type, channels(), channels()});
  blocks.expect_as_said(AvgPoolForward{tensor(), tensor(outputs), true, shape, type});
  for (const bool accumulate : {false, true}) {
    blocks.expect_as_said(MaxPoolBackward{tensor(outputs), blocks.bytes(outputs, 9), tensor(),
                                          accumulate, shape, type});
    blocks.expect_as_said(
        AvgPoolBackward{tensor(outputs), tensor(), false, accumulate, shape, type});
  }
}

TEST_P(KernelAccesses, Loss) {
  StepScalars* const scalars = blocks.scalars();
  const std::int32_t classes = 7;
  float* const loss = blocks.floats(kImages);
  auto* const above = blocks.take(std::vector<std::int32_t>{0, 4});
  auto* const result = blocks.take(std::vector<StepResult>(1));
  blocks.expect_as_said(SoftmaxCrossEntropy{.logits = tensor(kImages * classes),
                                            .labels = blocks.take(std::vector<std::int32_t>{3, 6}),
                                            .dlogits = tensor(kImages * classes),
                                            .loss = loss,
                                            .above = above,
                                            .scalars = scalars,
                                            .type = type,
                                            .images = kImages,
                                            .classes = classes});
  blocks.expect_as_said(SummariseStep{loss, above, kImages, scalars, result});
}

TEST_P(KernelAccesses, Weights) {
  StepScalars* const scalars = blocks.scalars();
  const std::vector<ArenaChunk> table = {{0, 100, true}, {100, 60, false}, {176, 24, true}};
  const auto count = static_cast<std::int32_t>(table.size());
  ArenaChunk* const chunks = blocks.take(table);
  float *const weights = blocks.floats(200), *const gradients = blocks.floats(200);
  float* const squares = blocks.floats(count);
  blocks.expect_as_said(
      NarrowWeights{weights, blocks.elements(DType::bf16, 200), DType::bf16, 200});
  blocks.expect_as_said(WidenGradients{blocks.elements(DType::f16, 200), DType::f16, gradients,
                                       chunks, count, scalars});
  blocks.expect_as_said(
      CheckFinite{gradients, 200, blocks.take(std::vector<std::int32_t>(kFiniteBlocks))});
  UpdateWeights update{.weights = weights,
                       .gradients = gradients,
                       .chunks = chunks,
                       .chunk_count = count,
                       .scalars = scalars,
                       .finite = nullptr,
                       .squares = squares};
  blocks.expect_as_said(update);
  update.rule = UpdateRule::adam;
  update.constants[0] = update.constants[1] = update.constants[2] = 0.5;
  for (float*& state : update.state) state = blocks.floats(200);
  for (const std::int32_t last : {1, 0}) {  // 0: nothing changes
    std::vector<std::int32_t> flags(kFiniteBlocks, 1);
    flags.back() = last;
    update.finite = blocks.take(flags);
    blocks.expect_as_said(update);
    blocks.expect_as_said(SummariseUpdate{squares, count, update.finite, scalars,
                                          blocks.take(std::vector<StepResult>(1))});
  }
  blocks.expect_as_said(AdaptLossScale{update.finite, 3, scalars});
  float *const norms = blocks.floats(2 * count), *const trust = blocks.floats(count);
  blocks.expect_as_said(SumSquares{weights, gradients, 0.5F, chunks, count, scalars, norms});
  const std::vector<ArenaTensor> tensors = {{0, 2, true, true}, {2, 1, false, true}};
  blocks.expect_as_said(
      FindTrust{0.5, 0.25, blocks.take(tensors), 2, count, norms, scalars, trust});
  update.rule = UpdateRule::lars;
  update.trust = trust;
  update.state[1] = nullptr;
  update.finite = nullptr;
  blocks.expect_as_said(update);
  for (const std::int32_t root : {-1, 1}) {
    blocks.expect_as_said(SumSlices{{weights, gradients}, 2, root, 13, 50});
    blocks.expect_as_said(
        SumSlices{{blocks.elements(DType::f16, 200), blocks.elements(DType::f16, 200)},
                  2,
                  root,
                  13,
                  50,
                  DType::f16});
  }
  blocks.expect_as_said(WidenSums{blocks.elements(DType::bf16, 200), DType::bf16, gradients, 200});
}

TEST(DnnAccesses, TensorsThatHaveMemory_AreReadAndWrittenAsTheirOperationsDo) {
  DnnGraph graph;
  const auto x = graph.add({{1, 2, 1, 1}, DType::f16, false});
  const auto hidden = graph.add({{1, 2, 1, 1}, DType::f32, true});
  const auto y = graph.add({{1, 2, 1, 1}, DType::f32, false});
  graph.operations = {DnnPointwise{PointwiseMode::relu, x, kNoTensor, hidden},
                      DnnPointwise{PointwiseMode::add, hidden, y, y}};
  std::byte memory[2][16];
  const Accesses said = accesses_of(graph, std::vector<std::byte*>{memory[0], nullptr, memory[1]});
  EXPECT_EQ(said.reads, (std::vector<MemoryRange>{{memory[0], 4}, {memory[1], 8}}));
  EXPECT_EQ(said.writes, (std::vector<MemoryRange>{{memory[1], 8}}));
  EXPECT_EQ(said.bytes(), 20U);
}

}  // namespace
}  // namespace penstock::gpu
