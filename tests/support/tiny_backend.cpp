// SPDX-License-Identifier: Apache-2.0
#include "tests/support/tiny_backend.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "trainer/dropout.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace {

constexpr OptionSpec kOptions[] = {{"nonfinite_at", "-1", "step whose loss is not a number"}};
constexpr float kDropped = 0.2F, kKept = 1 - kDropped;
constexpr float kRunningShare = 0.1F;

class TinyExecutable final : public Executable {
 public:
  TinyExecutable(const Graph& graph, const ExecutableSpec& spec, std::int64_t nonfinite_at)
      : spec_(spec),
        nonfinite_at_(nonfinite_at),
        image_(spec.batch.image),
        features_(image_.elements()),
        classes_(static_cast<std::size_t>(spec.batch.classes)),
        weights_((features_ + 1) * classes_),
        gradients_(weights_.size()),
        running_(static_cast<std::size_t>(image_.channels)),
        input_(features_),
        logits_(classes_) {
    const std::vector<ParameterSpec> specs = graph.parameters();
    PENSTOCK_ASSERT(specs.size() == 2);
    // The backward pass completes the bias first.
    const auto at = [](std::vector<float>& arena, std::size_t first, std::size_t count) {
      return Tensor{arena.data() + first, count, DType::f32};
    };
    for (const auto& [index, first, count] :
         {std::array{std::size_t{1}, std::size_t{0}, classes_},
          std::array{std::size_t{0}, classes_, features_ * classes_}}) {
      set_.parameters.push_back(
          {specs[index], at(weights_, first, count), at(gradients_, first, count)});
    }
    ParameterSpec mean{"input.running_mean", 0, Role::running_mean, {image_.channels}};
    set_.running = at(running_, 0, running_.size());
    set_.buffers.push_back({std::move(mean), set_.running, {}});
    set_.weights = at(weights_, 0, weights_.size());
    set_.gradients = at(gradients_, 0, gradients_.size());
  }

  const ParameterSet& parameters() const noexcept override { return set_; }
  void set_step(std::int64_t step) override { step_ = step; }

  void run(Phase phase, const Batch& batch, Stream& stream, const GradientReady& ready,
           StepResult& result) override {
    static_cast<Timeline*>(stream.native())->occupy(std::chrono::milliseconds(1));
    result = {.images = batch.valid};
    std::fill(gradients_.begin(), gradients_.end(), 0.F);
    const std::vector<float> mean = phase == Phase::evaluate ? running_ : batch_mean(batch);
    for (std::int32_t image = 0; image < batch.valid; ++image) {
      step_of_one_image(phase, batch, image, mean, result);
    }
    result.loss /= static_cast<float>(std::max(1, batch.valid));
    if (phase == Phase::forward_only) result.loss = 0;
    if (phase != Phase::train) return;
    for (std::size_t c = 0; c < running_.size(); ++c) {
      running_[c] += kRunningShare * (mean[c] - running_[c]);
    }
    if (step_++ == nonfinite_at_) result.loss = std::numeric_limits<float>::quiet_NaN();
    result.finite = std::isfinite(result.loss);
    for (std::size_t i = 0; ready && i < set_.parameters.size(); ++i) ready(i);
  }

  void read(const ParameterSpec& spec, const Tensor& from, std::span<float> plain) override {
    const auto* const own = static_cast<const float*>(from.data);
    for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = own[own_index(spec.role, i)];
  }
  void write(const ParameterSpec& spec, const Tensor& to, std::span<const float> plain) override {
    auto* const own = static_cast<float*>(to.data);
    for (std::size_t i = 0; i < plain.size(); ++i) own[own_index(spec.role, i)] = plain[i];
  }

 private:
  /// This backend's weights are [H, W, C, O]; plain order is [O, C, H, W].
  std::size_t own_index(Role role, std::size_t plain) const {
    if (role != Role::weight) return plain;
    const auto channels = static_cast<std::size_t>(image_.channels);
    const std::size_t pixels = features_ / channels;
    const std::size_t pixel = plain % pixels, channel = plain / pixels % channels;
    return (pixel * channels + channel) * classes_ + plain / features_;
  }

  float pixel(const Batch& batch, std::int32_t image, std::size_t i) const {
    const std::size_t at = static_cast<std::size_t>(image) * features_ + i;
    return static_cast<float>(std::to_integer<int>(batch.pixels[at])) / 255;
  }

  std::vector<float> batch_mean(const Batch& batch) const {
    std::vector<float> mean(running_.size());
    const float count = static_cast<float>(batch.valid) * static_cast<float>(features_) /
                        static_cast<float>(mean.size());
    for (std::int32_t image = 0; image < batch.valid; ++image) {
      for (std::size_t i = 0; i < features_; ++i) {
        mean[i % mean.size()] += pixel(batch, image, i) / count;
      }
    }
    return mean;
  }

  void step_of_one_image(Phase phase, const Batch& batch, std::int32_t image,
                         const std::vector<float>& mean, StepResult& result) {
    const DropoutMask mask(spec_.seed, step_, 0, kDropped);
    for (std::size_t i = 0; i < features_; ++i) {
      input_[i] = pixel(batch, image, i) - mean[i % mean.size()];
      if (phase != Phase::train) continue;
      const std::size_t element = static_cast<std::size_t>(image) * features_ + i;
      input_[i] = mask.keeps(element) ? input_[i] / kKept : 0;
    }
    std::copy_n(weights_.begin(), classes_, logits_.begin());
    for (std::size_t i = 0; i < features_; ++i) {
      for (std::size_t c = 0; c < classes_; ++c) {
        logits_[c] += input_[i] * weights_[classes_ + i * classes_ + c];
      }
    }
    const auto label = static_cast<std::size_t>(batch.labels[static_cast<std::size_t>(image)]);
    const auto higher = std::count_if(logits_.begin(), logits_.end(),
                                      [&](float logit) { return logit > logits_[label]; });
    result.top1 += higher < 1 ? 1 : 0;
    result.top5 += higher < 5 ? 1 : 0;
    const float largest = *std::max_element(logits_.begin(), logits_.end());
    float sum = 0;
    for (const float logit : logits_) sum += std::exp(logit - largest);
    result.loss += std::log(sum) + largest - logits_[label];
    if (phase != Phase::train) return;
    for (std::size_t c = 0; c < classes_; ++c) {
      const float expected = c == label ? 1.F : 0.F;
      const float slope =
          (std::exp(logits_[c] - largest) / sum - expected) / static_cast<float>(batch.valid);
      gradients_[c] += slope;
      for (std::size_t i = 0; i < features_; ++i) {
        gradients_[classes_ + i * classes_ + c] += slope * input_[i];
      }
    }
  }

  const ExecutableSpec spec_;
  const std::int64_t nonfinite_at_;
  const ImageShape image_;
  const std::size_t features_, classes_;
  std::vector<float> weights_, gradients_, running_;  // weights: bias first, then [H, W, C, O]
  std::vector<float> input_, logits_;
  ParameterSet set_;
  std::int64_t step_ = 0;
};

class TinyBackend final : public Backend {
 public:
  TinyBackend(const Options& options, Clock& clock)
      : clock_(clock), nonfinite_at_(options.integer("nonfinite_at")) {}

  std::int32_t device_count() const override { return 16; }
  std::unique_ptr<Device> open(std::int32_t) override {
    return std::make_unique<HostDevice>(clock_);
  }
  std::unique_ptr<Executable> compile(const Graph& graph, const ExecutableSpec& spec,
                                      Device&) override {
    if (spec.precision != Precision::f32) {
      throw Unavailable("the tiny device computes in fp32 only; pass --precision fp32");
    }
    return std::make_unique<TinyExecutable>(graph, spec, nonfinite_at_);
  }
  std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice& choice, const ExecutableSpec&,
                                            Device&) override {
    return make_host_optimizer(choice, serial_for);
  }

 private:
  Clock& clock_;
  const std::int64_t nonfinite_at_;
};

}  // namespace

constinit const BackendEntry tiny_backend{
    .name = "tiny",
    .summary = "softmax regression in plain loops",
    .options = kOptions,
    .computes_on_host = true,
    .make = [](const Options& options, Clock& clock) -> std::unique_ptr<Backend> {
      return std::make_unique<TinyBackend>(options, clock);
    },
};

constinit const ModelEntry tiny_model{
    .name = "tiny",
    .summary = "one linear layer",
    .image = {8, 8, 3},
    .batch = 8,
    .build = [](Graph& graph,
                std::int32_t classes) { graph.add("logits", Linear{classes}, {Graph::kInput}); },
};

}  // namespace penstock
