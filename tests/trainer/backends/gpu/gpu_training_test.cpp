// SPDX-License-Identifier: Apache-2.0
// Tests training on the gpu backend without a GPU, through the rings and replicas of a real run:
// what a recorded step computes when it is launched again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "dataflow/batch_ring.h"
#include "tests/support/executable_fixture.h"
#include "tests/support/gpu/host_driver.h"
#include "tests/support/plain_net.h"
#include "tests/support/small_graphs.h"
#include "tests/support/tolerance.h"
#include "trainer/backends/gpu/backend.h"
#include "trainer/optimizer.h"
#include "trainer/wire_format.h"

namespace penstock {
namespace {

const SmallGraph& graph_named(std::string_view name) {
  static const std::vector<SmallGraph> graphs = small_graphs();
  for (const SmallGraph& graph : graphs) {
    if (graph.name == name) return graph;
  }
  throw std::logic_error("no such graph");
}

/// One program for one slot, launched repeatedly as a Replica does.
class RecordedStep {
 public:
  RecordedStep(const SmallGraph& small, std::string_view optimizer, Precision precision,
               DType stored = DType::f32, std::string_view device = "gpu")
      : small_(small),
        options_(optimizer, find_entry(optimizer_table(), optimizer).options, {}),
        compiled_(std::make_shared<gpu::GpuBackend>(
                      std::make_shared<gpu::HostDriverLibrary>(),
                      Options("gpu", gpu::kOptions, parse_component(device))),
                  0, small.graph, spec_for(small.graph, small.images, precision)),
        optimizer_(compiled_.backend().make_optimizer(
            {find_entry(optimizer_table(), optimizer), options_, stored},
            spec_for(small.graph, small.images, precision), compiled_.device())),
        pixels_(allocate(small.graph.input_shape().elements() *
                         static_cast<std::size_t>(small.images))),
        labels_(allocate(static_cast<std::size_t>(small.images) * sizeof(std::int32_t))),
        pinned_(compiled_.device().allocate(sizeof(StepResult), MemoryKind::pinned)),
        result_(*::new (pinned_.bytes().data()) StepResult) {
    optimizer_->prepare(compiled_.executable().parameters());
    batch_ = {pixels_.bytes(),
              {reinterpret_cast<std::int32_t*>(labels_.bytes().data()),
               static_cast<std::size_t>(small.images)},
              small.images};
    program_ = compiled_.stream().capture([this] {
      compiled_.executable().run(Phase::train, batch_, compiled_.stream(), {}, result_);
      optimizer_->apply(compiled_.executable().parameters(), 1, compiled_.stream(), result_);
    });
  }
  StepResult step(const PlainBatch& batch, const Hyper& hyper) {
    Stream& stream = compiled_.stream();
    stream.copy(pixels_.bytes(), std::as_bytes(std::span(batch.pixels)));
    stream.copy(labels_.bytes(), std::as_bytes(std::span(batch.labels)));
    batch_.valid = batch.valid;
    optimizer_->set(hyper, stream);
    program_->launch(stream);
    compiled_.wait();
    return result_;
  }
  CompiledGraph& compiled() { return compiled_; }

 private:
  Buffer allocate(std::size_t bytes) {
    return compiled_.device().allocate(bytes, MemoryKind::device);
  }

  const SmallGraph& small_;
  const Options options_;
  CompiledGraph compiled_;
  std::unique_ptr<Optimizer> optimizer_;
  Buffer pixels_, labels_, pinned_;
  StepResult& result_;
  Batch batch_;
  std::unique_ptr<Program> program_;
};

TEST(GpuTraining, ARecordedStepSeesNewBatchesRatesAndSteps) {
  const SmallGraph& small = graph_named("residual_16");
  RecordedStep step(small, "sgd", Precision::f32);
  PlainWeights weights = uneven_weights(small.graph, 3);
  step.compiled().set_weights(weights);
  for (std::int64_t number = 0; number < 3; ++number) {
    PlainBatch batch = random_batch(small.graph.input_shape(), small.images, small.classes(),
                                    static_cast<std::uint64_t>(number));
    const float rate = 0.1F / static_cast<float>(number + 1);
    const StepResult result = step.step(batch, {.learning_rate = rate, .step = number});
    const PlainStep expected = run_plain(small.graph, weights, batch, {.step = number});
    EXPECT_NEAR(result.loss, expected.loss, 1e-4) << number;
    for (std::size_t i = 0; i < weights.parameters.size(); ++i) {
      for (std::size_t k = 0; k < weights.parameters[i].size(); ++k) {
        weights.parameters[i][k] -= double{rate} * expected.gradients[i][k];
      }
    }
    weights.buffers = expected.buffers;
  }
  const PlainTensors trained = step.compiled().weights();
  for (std::size_t i = 0; i < trained.size(); ++i) {
    EXPECT_LE(distance(trained[i], weights.parameters[i]),
              1e-4 * norm(weights.parameters[i]) + 1e-6)
        << small.graph.parameters()[i].name;
  }
}

TEST(GpuTraining, AStemOverBlocksOfPixelsTrainsAsInThePlainOrder) {
  for (const std::string_view name : {"stem_of_even_sides", "stem_of_grey_images"}) {
    const SmallGraph& small = graph_named(name);
    const std::vector<ParameterSpec> specs = small.graph.parameters();
    for (const Precision precision :
         {Precision::f32, Precision::tf32, Precision::f16, Precision::bf16}) {
      SCOPED_TRACE(fmt::format("{} in {}", name, to_string(precision)));
      RecordedStep plain(small, "momentum", precision, DType::f32, "gpu:stem_blocks=off");
      RecordedStep blocks(small, "momentum", precision, DType::f32, "gpu:stem_blocks=on");
      const auto operations = [](RecordedStep& step) {
        return step.compiled().backend().facts().at("operations_per_step");
      };
      EXPECT_EQ(operations(blocks), operations(plain) + 2);  // they reorder weights and gradient
      const PlainWeights weights = uneven_weights(small.graph, 3);
      for (RecordedStep* const step : {&plain, &blocks}) step->compiled().set_weights(weights);
      const Tolerance tolerance = tolerance_for(small.graph, small.images, precision);
      for (std::int64_t number = 0; number < 3; ++number) {
        const PlainBatch batch = random_batch(small.graph.input_shape(), small.images,
                                              small.classes(), static_cast<std::uint64_t>(number));
        const Hyper hyper{.learning_rate = 0.01F, .weight_decay = 0.01F, .step = number};
        EXPECT_NEAR(blocks.step(batch, hyper).loss, plain.step(batch, hyper).loss,
                    tolerance.forward)
            << number;
        const PlainTensors expected = plain.compiled().gradients();
        const PlainTensors gradients = blocks.compiled().gradients();
        const std::vector<double> scales = scales_of(expected);
        for (std::size_t i = 0; i < specs.size(); ++i) {
          EXPECT_LE(distance(gradients[i], expected[i]), tolerance.gradient * scales[i])
              << specs[i].name << ", step " << number;
        }
      }
      const PlainTensors trained = blocks.compiled().weights();
      const PlainTensors expected = plain.compiled().weights();
      for (std::size_t i = 0; i < specs.size(); ++i) {
        EXPECT_LE(distance(trained[i], expected[i]), tolerance.gradient * norm(expected[i]))
            << specs[i].name;
      }
    }
  }
}

TEST(GpuTraining, ARecordedStepSeesHowManyImagesAreValid) {
  const SmallGraph& small = graph_named("conv_stride_2");
  RecordedStep step(small, "sgd", Precision::f32);
  const PlainWeights weights = uneven_weights(small.graph, 3);
  step.compiled().set_weights(weights);
  PlainBatch batch = random_batch(small.graph.input_shape(), small.images, small.classes(), 4);
  for (const std::int32_t valid : {small.images, 1, small.images - 1}) {
    batch.valid = valid;
    const StepResult result = step.step(batch, {.learning_rate = 0});
    EXPECT_EQ(result.images, valid);
    EXPECT_NEAR(result.loss, run_plain(small.graph, weights, batch, {}).loss, 1e-4);
  }
}

/// Compares every rule of trainer/optimizers in its kernel and on the host.
TEST(GpuTraining, OptimisersDoWhatTheirRulesSay) {
  const SmallGraph& small = graph_named("conv_stride_2");
  for (const OptimizerEntry* entry : optimizer_table().entries) {
    SCOPED_TRACE(entry->name);
    RecordedStep step(small, entry->name, Precision::f32);
    step.compiled().set_weights(uneven_weights(small.graph, 3));
    const Options options(entry->name, entry->options, {});
    const OptimizerEntry::Rule rule = entry->make(options);
    const TensorRules tensors = tensor_rules({*entry, options});
    const std::vector<ParameterSpec> specs = small.graph.parameters();
    std::vector<std::array<std::vector<float>, 2>> states(specs.size());
    for (std::int64_t number = 0; number < 3; ++number) {
      const PlainTensors before = step.compiled().weights();
      const Hyper hyper{.learning_rate = 0.01F, .weight_decay = 0.1F, .step = number};
      const PlainBatch batch = random_batch(small.graph.input_shape(), small.images,
                                            small.classes(), static_cast<std::uint64_t>(number));
      const StepResult result = step.step(batch, hyper);
      const PlainTensors gradients = step.compiled().gradients();
      const PlainTensors after = step.compiled().weights();
      double squares = 0;
      for (std::size_t i = 0; i < specs.size(); ++i) {
        std::vector<float> weight(before[i].begin(), before[i].end());
        const std::vector<float> gradient(gradients[i].begin(), gradients[i].end());
        UpdateRange range{.weight = weight, .gradient = gradient};
        for (std::size_t slot = 0; slot < entry->slots; ++slot) {
          states[i][slot].resize(weight.size());
          range.state[slot] = states[i][slot];
        }
        Hyper own = hyper;
        if (!tensors.decays(specs[i])) own.weight_decay = 0;
        if (tensors.decays(specs[i])) squares += std::pow(norm(before[i]), 2);
        if (tensors.scales(specs[i])) {
          range.weight_norm = norm(before[i]);
          range.gradient_norm = norm(gradients[i]);
        }
        rule(own, range);
        const std::vector<double> expected(weight.begin(), weight.end());
        EXPECT_LE(distance(after[i], expected), 1e-6 * norm(expected)) << specs[i].name;
      }
      EXPECT_NEAR(result.l2_loss, 0.05 * squares, 1e-5 * squares);
    }
  }
}

TEST(GpuTraining, ShortWeightsAreRoundedBehindEachUpdateAndBatchNormsAreNot) {
  const SmallGraph& small = graph_named("residual_16");
  const std::vector<ParameterSpec> specs = small.graph.parameters();
  const PlainWeights weights = uneven_weights(small.graph, 3);
  const PlainBatch batch =
      random_batch(small.graph.input_shape(), small.images, small.classes(), 5);
  const auto trained = [&](DType stored) {
    RecordedStep step(small, "momentum", Precision::f32, stored);
    step.compiled().set_weights(weights);
    step.step(batch, {.learning_rate = 0.1F});
    return step.compiled().weights();
  };
  const PlainTensors wide = trained(DType::f32);
  for (const auto& [stored, format] :
       {std::pair{DType::f16, WireFormat::f16}, {DType::bf16, WireFormat::bf16}}) {
    const PlainTensors narrow = trained(stored);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      std::vector<float> expected(wide[i].begin(), wide[i].end());
      if (specs[i].role == Role::weight || specs[i].role == Role::bias) {
        round_to(format, expected);
      }
      for (std::size_t k = 0; k < expected.size(); ++k) {
        EXPECT_EQ(narrow[i][k], double{expected[k]}) << specs[i].name << ", " << k;
      }
    }
  }
}

}  // namespace
}  // namespace penstock
