// SPDX-License-Identifier: Apache-2.0
// Batches that a feeder normalised give every backend the step that their bytes give it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "dataflow/error.h"
#include "dataflow/images/normalisation.h"
#include "dataflow/values/float16.h"
#include "tests/support/entry_names.h"
#include "tests/support/executable_fixture.h"
#include "tests/support/small_graphs.h"
#include "tests/support/tolerance.h"
#include "trainer/simd.h"

namespace penstock {
namespace {

constexpr std::uint64_t kWeightSeed = 3, kBatchSeed = 4;

/// By plain double arithmetic; pixels are bytes of elements of f32, f16 or bf16.
PlainBatch normalised(const PlainBatch& batch, const ImageShape& shape, DType type) {
  PlainBatch result = batch;
  result.pixels.resize(batch.pixels.size() * size_of(type));
  for (std::size_t i = 0; i < batch.pixels.size(); ++i) {
    const auto channel = static_cast<std::int32_t>(i % static_cast<std::size_t>(shape.channels));
    const auto [mean, deviation] = channel_statistics(channel, shape.channels);
    const auto value = static_cast<float>((batch.pixels[i] - double{mean}) / deviation);
    values::Fp16 half{};
    values::store(half, value);
    cpu::Bf16 brain{};
    cpu::store(brain, value);
    const void* const from = type == DType::f32    ? static_cast<const void*>(&value)
                             : type == DType::bf16 ? static_cast<const void*>(&brain)
                                                   : &half;
    std::memcpy(result.pixels.data() + i * size_of(type), from, size_of(type));
  }
  return result;
}

/// The same pixels in the order [N,C,H,W].
PlainBatch planar(const PlainBatch& batch, const ImageShape& shape, DType type) {
  PlainBatch result = batch;
  const std::size_t size = size_of(type), row = shape.elements(),
                    channels = static_cast<std::size_t>(shape.channels), plane = row / channels;
  for (std::size_t i = 0; i < batch.pixels.size() / size; ++i) {
    const std::size_t image = i / row, pixel = i % row / channels, channel = i % channels;
    const std::size_t to = image * row + channel * plane + pixel;
    std::memcpy(result.pixels.data() + to * size, batch.pixels.data() + i * size, size);
  }
  return result;
}

class NormalisedPixels : public ::testing::TestWithParam<BackendSubject> {
 protected:
  std::unique_ptr<CompiledGraph> compile(const SmallGraph& small, DType pixel,
                                         bool planar = false) const {
    ExecutableSpec spec = spec_for(small.graph, small.images);
    spec.batch.pixel = pixel;
    spec.batch.normalised = pixel != DType::u8;
    spec.batch.planar = planar;
    auto compiled = std::make_unique<CompiledGraph>(*GetParam().entry, small.graph, spec);
    compiled->set_weights(uneven_weights(small.graph, kWeightSeed));
    compiled->executable().set_step(9);
    return compiled;
  }
};

TEST_P(NormalisedPixels, GiveTheStepOfTheirBytes) {
  for (const SmallGraph& small : small_graphs()) {
    const ImageShape shape = small.graph.input_shape();
    const PlainBatch bytes = random_batch(shape, small.images, small.classes(), kBatchSeed);
    const auto of_bytes = compile(small, DType::u8);
    const StepResult expected = of_bytes->run(Phase::train, bytes);
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      SCOPED_TRACE(small.name + ", type " + std::to_string(static_cast<int>(type)));
      std::unique_ptr<CompiledGraph> compiled;
      try {
        compiled = compile(small, type);
      } catch (const Unavailable& error) {
        GTEST_SKIP() << error.what();
      }
      const PlainBatch batch = normalised(bytes, shape, type);
      const StepResult result = compiled->run(Phase::train, batch);
      // Elements of 16 bits are off by themselves, as they are where activations have 16 bits.
      const Precision precision = type == DType::f32   ? Precision::f32
                                  : type == DType::f16 ? Precision::f16
                                                       : Precision::bf16;
      const Tolerance tolerance = tolerance_for(small.graph, small.images, precision);
      const double scale = std::max(1.0, std::abs(double{expected.loss}));
      EXPECT_NEAR(result.loss, expected.loss, tolerance.forward * scale);
      EXPECT_TRUE(result.finite);
      const PlainTensors gradients = compiled->gradients(), reference = of_bytes->gradients();
      const std::vector<double> scales = scales_of(reference);
      for (std::size_t i = 0; i < reference.size(); ++i) {
        EXPECT_LE(distance(gradients[i], reference[i]), tolerance.gradient * scales[i] + 1e-30)
            << small.graph.parameters()[i].name;
      }
    }
  }
}

TEST_P(NormalisedPixels, PlanarOnesGiveTheSameStep) {
  for (const SmallGraph& small : small_graphs()) {
    const ImageShape shape = small.graph.input_shape();
    PlainBatch bytes = random_batch(shape, small.images, small.classes(), kBatchSeed);
    bytes.valid = std::max(1, small.images - 1);
    for (const DType type : {DType::u8, DType::f32, DType::f16, DType::bf16}) {
      SCOPED_TRACE(small.name + ", type " + std::to_string(static_cast<int>(type)));
      const PlainBatch batch = type == DType::u8 ? bytes : normalised(bytes, shape, type);
      try {
        const StepResult expected = compile(small, type)->run(Phase::evaluate, batch);
        const StepResult result =
            compile(small, type, true)->run(Phase::evaluate, planar(batch, shape, type));
        // A backend may add in another order in another layout.
        EXPECT_NEAR(result.loss, expected.loss, 2e-6 * std::max(1.0F, expected.loss));
        EXPECT_EQ(result.images, bytes.valid);
      } catch (const Unavailable& error) {
        GTEST_SKIP() << error.what();
      }
    }
  }
}

TEST_P(NormalisedPixels, RowsThatAreNotValidDoNotCount) {
  const SmallGraph small = small_graphs().front();
  const ImageShape shape = small.graph.input_shape();
  PlainBatch bytes = random_batch(shape, small.images, small.classes(), kBatchSeed);
  bytes.valid = 1;
  std::unique_ptr<CompiledGraph> compiled;
  try {
    compiled = compile(small, DType::f32);
  } catch (const Unavailable& error) {
    GTEST_SKIP() << error.what();
  }
  const StepResult result = compiled->run(Phase::evaluate, normalised(bytes, shape, DType::f32));
  const StepResult expected = compile(small, DType::u8)->run(Phase::evaluate, bytes);
  EXPECT_EQ(result.images, 1);
  EXPECT_NEAR(result.loss, expected.loss, 1e-4 * std::max(1.F, expected.loss));
}

INSTANTIATE_TEST_SUITE_P(All, NormalisedPixels, ::testing::ValuesIn(backends_with_weights()),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace penstock
