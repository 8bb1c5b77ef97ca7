// SPDX-License-Identifier: Apache-2.0
// A graph compiled for the machine's cores: arenas of weights, gradients and activations, and one
// schedule per phase. Steps run on the calling thread and its team of OpenMP threads, and are done
// when run() returns.
#pragma once

#include <array>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>

#include "dataflow/device.h"
#include "trainer/backend.h"
#include "trainer/backends/compiler/memory_plan.h"
#include "trainer/backends/cpu/builder.h"
#include "trainer/backends/cpu/schedule.h"

namespace penstock::cpu {

class CpuExecutable final : public Executable {
 public:
  /// Borrows `device`. Builds the training phase; the first run of another phase builds that phase.
  /// Throws ConfigError if the memory budget is exceeded; the message names a batch size that fits.
  CpuExecutable(Graph graph, const ExecutableSpec& spec, Device& device, const CpuOptions& options,
                OperationRecorder recorder = {});

  const ParameterSet& parameters() const noexcept override { return set_; }
  void run(Phase phase, const Batch& batch, Stream& stream, const GradientReady& ready,
           StepResult& result) override;
  void read(const ParameterSpec& spec, const Tensor& from, std::span<float> plain) override;
  void write(const ParameterSpec& spec, const Tensor& to, std::span<const float> plain) override;
  void set_step(std::int64_t step) override { step_ = step; }

  std::size_t activation_bytes() const noexcept { return activations_.bytes().size(); }
  /// Bytes of weights and gradients.
  std::size_t parameter_bytes() const noexcept {
    return 2 * layouts_.parameter_elements * sizeof(float);
  }

 private:
  static constexpr std::size_t kPhases = 3;

  std::unique_ptr<Schedule> build(Phase phase, const ExecutableSpec& spec);
  Schedule& prepare(Phase phase);
  std::size_t share_of_memory() const;
  std::size_t fixed_bytes() const;
  [[noreturn]] void refuse(const compiler::PlannedBatch& planned);
  void make_arenas();
  void bind_all();

  const Graph graph_;
  const ExecutableSpec spec_;
  Device& device_;
  const CpuOptions options_;
  const OperationRecorder recorder_;
  dnnl::engine engine_;
  Layouts layouts_;
  std::array<std::unique_ptr<Schedule>, kPhases> schedules_;
  Buffer weights_, gradients_, running_, activations_;
  ParameterSet set_;
  std::int64_t step_ = 0;
};

}  // namespace penstock::cpu
