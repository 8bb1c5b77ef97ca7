// SPDX-License-Identifier: Apache-2.0
// A backend in one file. Its "training step" adds up every byte of the batch on the calling thread,
// and reports the mean pixel as the loss.
//   penstock_custom run --device checksum --fake-location stripes
#include <numeric>

#include "dataflow/host_device.h"
#include "trainer/backend.h"
#include "trainer/optimizer.h"

namespace penstock {
namespace {

class Checksum final : public Executable {
 public:
  const ParameterSet& parameters() const noexcept override { return no_weights_; }
  void run(Phase, const Batch& batch, Stream&, const GradientReady&, StepResult& result) override {
    const std::uint64_t sum = std::transform_reduce(
        batch.pixels.begin(), batch.pixels.end(), std::uint64_t{0}, std::plus<>(),
        [](std::byte pixel) { return std::to_integer<std::uint64_t>(pixel); });
    result.loss = static_cast<float>(sum) / static_cast<float>(batch.pixels.size());
    result.images = batch.valid;
  }
  void read(const ParameterSpec&, const Tensor&, std::span<float>) override {}
  void write(const ParameterSpec&, const Tensor&, std::span<const float>) override {}
  void set_step(std::int64_t) override {}

 private:
  const ParameterSet no_weights_;
};

class ChecksumBackend final : public Backend {
 public:
  explicit ChecksumBackend(Clock& clock) : clock_(clock) {}
  std::int32_t device_count() const override { return 4; }
  std::unique_ptr<Device> open(std::int32_t) override {
    return std::make_unique<HostDevice>(clock_);
  }
  std::unique_ptr<Executable> compile(const Graph&, const ExecutableSpec&, Device&) override {
    return std::make_unique<Checksum>();
  }
  std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice& choice, const ExecutableSpec&,
                                            Device&) override {
    return make_host_optimizer(choice, serial_for);
  }

 private:
  Clock& clock_;
};

}  // namespace

extern constinit const BackendEntry checksum_backend{
    .name = "checksum",
    .summary = "adds up the bytes of each batch on the CPU",
    .make = [](const Options&, Clock& clock) -> std::unique_ptr<Backend> {
      return std::make_unique<ChecksumBackend>(clock);
    },
};

}  // namespace penstock
