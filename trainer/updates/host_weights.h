// SPDX-License-Identifier: Apache-2.0
// Lets an update work in host memory, whatever the device. Weights, the optimizer's state and the
// exchange among ranks are then those of a device that is the host's cores.
//
//   device:  forward | backward .........................| (waits)                      | weights
//   copies:               | bucket 0 |  | bucket 1 |  | bucket 2 |                      | up
//   host:                                                        | exchange | optimizer |
#pragma once

#include <cstddef>
#include <memory>

#include "dataflow/device.h"
#include "trainer/buckets.h"
#include "trainer/optimizer.h"
#include "trainer/update_strategy.h"

namespace penstock::updates {

/// An executable whose weights and gradients have copies in pinned host memory, which it shows as
/// its parameters.
class HostWeights final : public Executable {
 public:
  /// Borrows `device`.
  HostWeights(std::unique_ptr<Executable> on_device, Device& device);

  const ParameterSet& parameters() const noexcept override { return set_; }
  void run(Phase phase, const Batch& batch, Stream& stream, const GradientReady& ready,
           StepResult& result) override {
    on_device_->run(phase, batch, stream, ready, result);
  }
  void read(const ParameterSpec& spec, const Tensor& from, std::span<float> plain) override {
    on_device_->read(spec, from, plain);
  }
  void write(const ParameterSpec& spec, const Tensor& to, std::span<const float> plain) override {
    on_device_->write(spec, to, plain);
  }
  void set_step(std::int64_t step) override { on_device_->set_step(step); }
  void group_gradients(std::span<const std::size_t> parameters) override {
    on_device_->group_gradients(parameters);
  }

  const ParameterSet& on_device() const noexcept { return on_device_->parameters(); }
  /// Enqueues the copy of the statistics to the device, which has the only ones from then on.
  void hand_over_statistics(Stream& stream);

 private:
  const std::unique_ptr<Executable> on_device_;
  Buffer weights_, gradients_, running_;
  ParameterSet set_;
};

/// What an update in host memory works with. References outlive it.
struct HostHome {
  HostWeights& weights;
  Device& device;  ///< of the weights
  Device& host;    ///< host memory, whose streams are done when a call returns
  Optimizer& optimizer;
  BucketLimits limits{};  ///< of the copies; without `pieces`
  /// Where the device keeps a loss scale that adapts itself; empty: nowhere.
  Tensor loss_scale{};
};

/// Runs `inner` in host memory: its collective, its optimizer and its device are the host's.
std::unique_ptr<UpdateStrategy> update_on_host(const HostHome& home,
                                               std::unique_ptr<UpdateStrategy> inner);

}  // namespace penstock::updates
