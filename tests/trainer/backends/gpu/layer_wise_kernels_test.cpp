// SPDX-License-Identifier: Apache-2.0
// Tests the kernels of layer-wise updates (squares by chunks, the ratio of each tensor, and the
// update) against plain loops and the host's rule.
#include "tests/trainer/backends/gpu/kernel_data.h"
#include "trainer/optimizer.h"
#include "trainer/optimizers/trust_ratio.h"

namespace penstock::gpu {
namespace {

constexpr float kGradientScale = 0.25F;

/// Tensors cut into chunks. Some chunks begin at addresses from which four elements cannot be
/// loaded at once.
struct Cut {
  std::vector<ArenaTensor> tensors;
  std::vector<ArenaChunk> chunks;
  std::size_t elements = 0;
};
Cut some_tensors() {
  Cut cut;
  struct Shape {
    std::size_t count;
    bool decays, scaled;
  };
  for (const Shape& shape : {Shape{2 * kChunkElements + 77, true, true},
                             {1, true, true},
                             {999, false, true},
                             {64, false, false},
                             {5000, true, true}}) {
    const auto first = static_cast<std::int32_t>(cut.chunks.size());
    for (std::size_t done = 0; done < shape.count; done += kChunkElements) {
      const auto count =
          static_cast<std::uint32_t>(std::min<std::size_t>(kChunkElements, shape.count - done));
      cut.chunks.push_back({cut.elements + done, count, shape.decays});
    }
    cut.tensors.push_back(
        {first, static_cast<std::int32_t>(cut.chunks.size()) - first, shape.scaled, shape.decays});
    cut.elements += shape.count;
  }
  return cut;
}

double clipped(double gradient, double clip) {
  const double limit = clip > 0 ? clip : double{INFINITY};
  return std::clamp(double{kGradientScale} * gradient, -limit, limit);
}

class LayerWise : public testing::Test {
 protected:
  LayerWise() {
    Random random(7);
    for (const double size : {1., 8., 0.}) {
      arenas.push_back(random_floats(cut.elements, random, -size, size));
    }
    squares = Floats(2 * cut.chunks.size());
    trust = Floats(cut.chunks.size());
    chunk_count = static_cast<std::int32_t>(cut.chunks.size());
  }
  void sum_squares() {
    launch_on_host(SumSquares{.weights = arenas[0].floats(),
                              .gradients = arenas[1].floats(),
                              .gradient_scale = kGradientScale,
                              .chunks = cut.chunks.data(),
                              .chunk_count = chunk_count,
                              .scalars = &scalars,
                              .squares = squares.floats()});
  }
  void find_trust() {
    launch_on_host(FindTrust{.eta = 0.02,
                             .epsilon = 0.5,
                             .tensors = cut.tensors.data(),
                             .tensor_count = static_cast<std::int32_t>(cut.tensors.size()),
                             .chunk_count = chunk_count,
                             .squares = squares.floats(),
                             .scalars = &scalars,
                             .trust = trust.floats()});
  }
  std::span<float> part(std::size_t arena, const ArenaTensor& tensor) {
    const ArenaChunk& first = cut.chunks[index_of(tensor.first_chunk)];
    const ArenaChunk& last = cut.chunks[index_of(tensor.first_chunk + tensor.chunk_count - 1)];
    return {arenas[arena].floats() + first.first, last.first + last.count - first.first};
  }

  const Cut cut = some_tensors();
  std::vector<Floats> arenas;  ///< weights, gradients, velocities
  Floats squares{0}, trust{0};
  std::int32_t chunk_count = 0;
  StepScalars scalars{
      .hyper = {.learning_rate = 0.5F, .weight_decay = 0.1F, .gradient_clip = 1.5F, .step = 3}};
};

TEST_F(LayerWise, SquaresAreOfWeightsAndOfClippedGradients) {
  for (const float clip : {0.F, 1.5F}) {
    scalars.hyper.gradient_clip = clip;
    sum_squares();
    for (std::size_t k = 0; k < cut.chunks.size(); ++k) {
      double weight = 0, gradient = 0;
      for (std::size_t i = 0; i < cut.chunks[k].count; ++i) {
        weight += std::pow(arenas[0][cut.chunks[k].first + i], 2);
        gradient += std::pow(clipped(arenas[1][cut.chunks[k].first + i], double{clip}), 2);
      }
      EXPECT_NEAR(squares[2 * k], weight, 32 * 0x1p-24 * weight) << k;
      EXPECT_NEAR(squares[2 * k + 1], gradient, 32 * 0x1p-24 * gradient) << k;
    }
  }
}

TEST_F(LayerWise, ChunksOfATensorShareItsRatio) {
  sum_squares();
  find_trust();
  for (const ArenaTensor& tensor : cut.tensors) {
    double weight = 0, gradient = 0;
    for (const float w : part(0, tensor)) weight += double{w} * double{w};
    for (const float g : part(1, tensor)) gradient += std::pow(clipped(double{g}, 1.5), 2);
    const double decay = tensor.decays ? double{scalars.hyper.weight_decay} : 0;
    const double wanted =
        tensor.scaled
            ? 0.02 * std::sqrt(weight) / (std::sqrt(gradient) + decay * std::sqrt(weight) + 0.5)
            : 1;
    for (std::int32_t chunk = 0; chunk < tensor.chunk_count; ++chunk) {
      EXPECT_NEAR(trust[index_of(tensor.first_chunk + chunk)], wanted, 1e-5 * wanted);
    }
  }
}

TEST_F(LayerWise, TheUpdateIsThatOfTheHost) {
  const ComponentText parts = parse_component("lars:eta=0.02,epsilon=0.5,momentum=0.8");
  const OptimizerEntry& entry = find_entry(optimizer_table(), parts.name);
  const OptimizerEntry::Rule on_host = entry.make(Options(entry.name, entry.options, parts));
  std::vector<Floats> expected;
  for (const Floats& arena : arenas) expected.emplace_back(arena.copy());
  Floats decayed(cut.chunks.size());
  for (std::int64_t step = 0; step < 3; ++step) {
    scalars.hyper.step = step;
    for (const ArenaTensor& tensor : cut.tensors) {
      const std::ptrdiff_t first = part(0, tensor).data() - arenas[0].floats();
      const std::size_t count = part(0, tensor).size();
      const auto own = [&](std::size_t arena) {
        return std::span(expected[arena].floats() + first, count);
      };
      Hyper hyper = scalars.hyper;
      if (!tensor.decays) hyper.weight_decay = 0;
      UpdateRange range{.weight = own(0), .gradient = own(1), .gradient_scale = kGradientScale};
      range.state[0] = own(2);
      double weight = 0, gradient = 0;
      for (const float w : own(0)) weight += double{w} * double{w};
      for (const float g : own(1)) gradient += std::pow(clipped(double{g}, 1.5), 2);
      if (tensor.scaled) range.weight_norm = std::sqrt(weight);
      if (tensor.scaled) range.gradient_norm = std::sqrt(gradient);
      on_host(hyper, range);
    }
    sum_squares();
    find_trust();
    launch_on_host(UpdateWeights{.rule = UpdateRule::lars,
                                 .constants = {0.8},
                                 .weights = arenas[0].floats(),
                                 .gradients = arenas[1].floats(),
                                 .state = {arenas[2].floats(), nullptr},
                                 .gradient_scale = kGradientScale,
                                 .chunks = cut.chunks.data(),
                                 .chunk_count = chunk_count,
                                 .scalars = &scalars,
                                 .squares = decayed.floats(),
                                 .trust = trust.floats()});
    for (const std::size_t arena : {0U, 2U}) {
      for (std::size_t i = 0; i < cut.elements; ++i) {
        const double value = expected[arena][i];
        ASSERT_NEAR(arenas[arena][i], value, 1e-6 * (1 + std::abs(value))) << arena << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace penstock::gpu
