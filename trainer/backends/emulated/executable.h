// SPDX-License-Identifier: Apache-2.0
// An emulated device and a model on it: they take time and compute nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "dataflow/host_device.h"
#include "trainer/backend.h"
#include "trainer/backends/emulated/pace.h"

namespace penstock::emulated {

/// Host memory, with the number of the rank that uses it.
class EmulatedDevice final : public Device {
 public:
  EmulatedDevice(Clock& clock, HostDeviceOptions options, std::int32_t ordinal)
      : host_(clock, std::move(options)), ordinal_(ordinal) {}

  Buffer allocate(std::size_t bytes, MemoryKind kind) override {
    return host_.allocate(bytes, kind);
  }
  bool takes_any_memory() const noexcept override { return true; }
  std::unique_ptr<Stream> make_stream() override { return host_.make_stream(); }
  std::unique_ptr<Event> make_event() override { return host_.make_event(); }
  std::int32_t ordinal() const noexcept { return ordinal_; }

 private:
  HostDevice host_;
  const std::int32_t ordinal_;
};

/// Occupies the stream for the time of a step, in every phase. Losses and counts are 0.
class EmulatedExecutable final : public Executable {
 public:
  /// `pace` is null if the model computes nothing; it outlives the executable.
  EmulatedExecutable(const Pace* pace, std::uint64_t seed, std::int32_t rank)
      : pace_(pace), seed_(seed), rank_(static_cast<std::uint64_t>(rank)) {}

  const ParameterSet& parameters() const noexcept override { return no_weights_; }

  void run(Phase, const Batch& batch, Stream& stream, const GradientReady&,
           StepResult& result) override {
    if (pace_ != nullptr) {
      static_cast<Timeline*>(stream.native())
          ->occupy(pace_->step_time(seed_, rank_, step_, batch.valid));
    }
    ++step_;
    result = {.images = batch.valid};
  }

  void read(const ParameterSpec&, const Tensor&, std::span<float>) override {}
  void write(const ParameterSpec&, const Tensor&, std::span<const float>) override {}
  void set_step(std::int64_t step) override { step_ = static_cast<std::uint64_t>(step); }

 private:
  const ParameterSet no_weights_;
  const Pace* const pace_;
  const std::uint64_t seed_, rank_;
  std::uint64_t step_ = 0;
};

}  // namespace penstock::emulated
