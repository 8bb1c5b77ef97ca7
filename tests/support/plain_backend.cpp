// SPDX-License-Identifier: Apache-2.0
#include "tests/support/plain_backend.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "dataflow/error.h"
#include "dataflow/host_device.h"
#include "tests/support/plain_net.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace {

constexpr std::size_t kAlignment = 16;  // elements

double to_f32(double value) { return static_cast<float>(value); }

/// Rounds to nearest, ties to even.
double to_bf16(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return std::bit_cast<float>((bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U);
}

class PlainExecutable final : public Executable {
 public:
  PlainExecutable(const Graph& graph, const ExecutableSpec& spec) : graph_(graph), spec_(spec) {
    const std::vector<ParameterSpec> parameters = graph.parameters(), buffers = graph.buffers();
    std::size_t elements = 0;
    const auto place = [&](const ParameterSpec& of) {
      const auto count = (static_cast<std::size_t>(of.count()) + kAlignment - 1) / kAlignment;
      return std::exchange(elements, elements + count * kAlignment);
    };
    std::vector<std::size_t> offsets;
    for (auto of = parameters.rbegin(); of != parameters.rend(); ++of)
      offsets.push_back(place(*of));
    offsets.push_back(elements);
    weights_.assign(elements, 0);
    gradients_.assign(elements, 0);
    set_.weights = {weights_.data(), elements};
    set_.gradients = {gradients_.data(), elements};
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::size_t count = offsets[i + 1] - offsets[i];
      set_.parameters.push_back({parameters[parameters.size() - 1 - i],
                                 {weights_.data() + offsets[i], count},
                                 {gradients_.data() + offsets[i], count}});
    }
    elements = 0;
    for (const ParameterSpec& of : buffers) elements += static_cast<std::size_t>(of.count());
    running_.assign(elements, 0);
    set_.running = {running_.data(), elements};
    float* next = running_.data();
    for (const ParameterSpec& of : buffers) {
      const auto count = static_cast<std::size_t>(of.count());
      set_.buffers.push_back({of, {std::exchange(next, next + count), count}, {}});
    }
  }

  const ParameterSet& parameters() const noexcept override { return set_; }

  void run(Phase phase, const Batch& batch, Stream&, const GradientReady& ready,
           StepResult& result) override {
    const PlainStep step =
        run_plain(graph_, weights(), plain(batch),
                  {.phase = phase,
                   .seed = spec_.seed,
                   .step = step_,
                   .rounding = spec_.precision == Precision::bf16 ? to_bf16 : to_f32});
    result = {.loss = static_cast<float>(step.loss),
              .top1 = step.top1,
              .top5 = step.top5,
              .images = batch.valid,
              .finite = std::isfinite(step.loss)};
    if (phase != Phase::train) return;
    ++step_;
    for (std::size_t i = 0; i < set_.buffers.size(); ++i) {
      std::copy(step.buffers[i].begin(), step.buffers[i].end(),
                static_cast<float*>(set_.buffers[i].weight.data));
    }
    for (std::size_t i = 0; i < set_.parameters.size(); ++i) {
      const std::vector<double>& from = step.gradients[set_.parameters.size() - 1 - i];
      write(set_.parameters[i].spec, set_.parameters[i].gradient,
            std::vector<float>(from.begin(), from.end()));
      if (ready) ready(i);
    }
  }

  /// Parameters are stored in reverse, so that no test confuses an arena with plain order; buffers
  /// are not reversed.
  void read(const ParameterSpec& spec, const Tensor& from, std::span<float> to) override {
    const auto* const first = static_cast<const float*>(from.data);
    std::copy_n(first, to.size(), to.begin());
    if (is_parameter(spec)) std::reverse(to.begin(), to.end());
  }
  void write(const ParameterSpec& spec, const Tensor& to, std::span<const float> from) override {
    auto* const first = static_cast<float*>(to.data);
    std::copy(from.begin(), from.end(), first);
    if (is_parameter(spec)) std::reverse(first, first + from.size());
  }
  void set_step(std::int64_t step) override { step_ = step; }

 private:
  static bool is_parameter(const ParameterSpec& spec) {
    return spec.role != Role::running_mean && spec.role != Role::running_variance;
  }

  PlainBatch plain(const Batch& batch) const {
    const auto* const pixels = reinterpret_cast<const std::uint8_t*>(batch.pixels.data());
    const PlainBatch copy{{pixels, pixels + batch.pixels.size()},
                          {batch.labels.begin(), batch.labels.end()},
                          batch.valid};
    for (std::int32_t n = 0; n < batch.valid; ++n) {
      const std::int32_t label = copy.labels[static_cast<std::size_t>(n)];
      if (label < 0 || label >= spec_.batch.classes) {
        throw DataError("image " + std::to_string(n) + " has label " + std::to_string(label) +
                        "; expected one below " + std::to_string(spec_.batch.classes));
      }
    }
    return copy;
  }
  PlainWeights weights() {
    PlainWeights all;
    for (std::size_t i = set_.parameters.size(); i-- > 0;) {
      std::vector<float> values(static_cast<std::size_t>(set_.parameters[i].spec.count()));
      read(set_.parameters[i].spec, set_.parameters[i].weight, values);
      all.parameters.emplace_back(values.begin(), values.end());
    }
    for (const Parameter& buffer : set_.buffers) {
      const auto* const values = static_cast<const float*>(buffer.weight.data);
      all.buffers.emplace_back(values, values + buffer.weight.count);
    }
    return all;
  }

  const Graph graph_;
  const ExecutableSpec spec_;
  std::vector<float> weights_, gradients_, running_;
  ParameterSet set_;
  std::int64_t step_ = 0;
};

class PlainBackend final : public Backend {
 public:
  explicit PlainBackend(Clock& clock) : clock_(clock) {}
  std::int32_t device_count() const override { return 1024; }
  std::unique_ptr<Device> open(std::int32_t) override {
    return std::make_unique<HostDevice>(clock_);
  }
  std::unique_ptr<Executable> compile(const Graph& graph, const ExecutableSpec& spec,
                                      Device&) override {
    if (spec.precision != Precision::f32 && spec.precision != Precision::bf16) {
      throw Unavailable("the plain executor has no " + std::string(to_string(spec.precision)));
    }
    if (spec.batch.pixel != DType::u8 || spec.batch.planar) {
      throw Unavailable("the plain executor takes bytes in the order N, H, W, C alone");
    }
    return std::make_unique<PlainExecutable>(graph, spec);
  }
  std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice& choice, const ExecutableSpec&,
                                            Device&) override {
    return make_host_optimizer(choice, serial_for);
  }

 private:
  Clock& clock_;
};

}  // namespace

const BackendEntry plain_backend{
    .name = "plain",
    .summary = "loops of double",
    .computes_on_host = true,
    .make = [](const Options&, Clock& clock) -> std::unique_ptr<Backend> {
      return std::make_unique<PlainBackend>(clock);
    },
};

}  // namespace penstock
