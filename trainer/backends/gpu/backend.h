// SPDX-License-Identifier: Apache-2.0
// The gpu backend. It works over any DriverLibrary: the CUDA library or the library of the tests.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataflow/machine/sampler.h"
#include "trainer/backend.h"
#include "trainer/backends/gpu/device.h"
#include "trainer/backends/gpu/driver.h"
#include "trainer/backends/gpu/exchange.h"
#include "trainer/backends/gpu/executable.h"
#include "trainer/backends/gpu/nvml.h"
#include "trainer/backends/gpu/plan_book.h"
#include "trainer/backends/gpu/watch.h"
#include "trainer/optimizer.h"

namespace penstock::gpu {

/// The options that the user may set after `gpu:`.
inline constexpr OptionSpec kOptions[] = {
    {"replicas", "1", "replicas per GPU; --num-gpus counts replicas"},
    {"autotune", "true", "time the cuDNN engines once per machine; false: use the first one"},
    {"workspace_mib", "auto",
     "limit of one engine's scratch memory in MiB, or auto (by batch and GPU memory)"},
    {"fused", "auto",
     "fuse fp16 convolutions with batch norms around them: auto (if faster), on (if an engine "
     "exists) or off"},
    {"stem_blocks", "auto",
     "compute a 7x7 stem with stride 2 over blocks of 2x2 pixels: auto (if faster), on (if an "
     "engine exists) or off"},
    {"record", "true", "record each step as a CUDA graph and replay it; false: enqueue each step"},
    {"exchange", "auto",
     "gradient exchange: copies (built-in sums, also for ranks that share a GPU), nccl (one GPU "
     "per rank), host (through host memory) or auto (nccl if available)"},
    {"nccl_timeout", "60s", "how long a rank waits for the others in an exchange, such as 60s"},
    {"deterministic", "false",
     "use only engines whose results are bit-identical in every run; none of them fuses sums"},
    {"reduced_precision", "false", "allow engines that sum in less than fp32"},
};

/// Borrows `device`. Throws Unavailable for optimisers without a kernel.
std::unique_ptr<Optimizer> make_gpu_optimizer(const OptimizerChoice& choice,
                                              const FiniteRules& rules, GpuDevice& device);

class GpuBackend final : public Backend {
 public:
  /// Shares ownership of `library`. `nvml` outlives the backend; null: the GPUs' condition is
  /// unknown. Throws Unavailable if the library has no device.
  GpuBackend(std::shared_ptr<DriverLibrary> library, const Options& options,
             const NvmlFunctions* nvml = nullptr);

  /// Number of GPUs times replicas per GPU.
  std::int32_t device_count() const override { return gpus_ * replicas_; }
  std::unique_ptr<Device> open(std::int32_t ordinal) override;
  std::unique_ptr<Executable> compile(const Graph& graph, const ExecutableSpec& spec,
                                      Device& device) override;
  std::unique_ptr<Optimizer> make_optimizer(const OptimizerChoice& choice,
                                            const ExecutableSpec& spec, Device& device) override;
  std::unique_ptr<CollectiveGroup> make_group(std::span<Device* const> devices,
                                              const GroupSpec& spec, Clock& clock,
                                              std::stop_token stop) override;
  std::map<std::string, double> facts() const override { return facts_; }
  Condition condition(Time from, Time to) const override {
    return watch_ ? watch_->condition(from, to) : Condition{};
  }
  const MarkFunctions* marks() const noexcept override { return library_->marks(); }
  std::string start_activity(ActivityDetail detail) override {
    return library_->start_activity(detail);
  }
  std::vector<ActivityRecord> finish_activity() override { return library_->finish_activity(); }
  std::vector<std::string> notes() const override { return notes_; }

 private:
  ExchangeChoice choose_exchange(std::span<Device* const> devices, const GroupSpec& spec) const;
  std::unique_ptr<CollectiveGroup> make_nccl_group(std::span<Device* const> devices,
                                                   const GroupSpec& spec, const CommunicatorId& id,
                                                   Clock& clock, std::stop_token stop);

  /// State that the ranks on one GPU share.
  struct Gpu {
    std::mutex compiling;            ///< one rank compiles at a time, because engines are timed
    std::size_t budget = 0;          ///< bytes for each rank; 0: not counted yet
    std::unique_ptr<PlanBook> book;  ///< null until the first rank compiles
  };

  const std::shared_ptr<DriverLibrary> library_;
  const std::int32_t gpus_, replicas_;
  const bool record_;
  const Exchange exchange_;
  const Nanoseconds nccl_timeout_;
  PlanRules rules_;
  const FormModes forms_;
  std::map<Device*, std::int32_t> gpu_of_;
  std::map<std::int32_t, Gpu> compilers_;  // by GPU; complete before the first rank compiles
  std::mutex facts_mutex_;                 // guards facts_ and notes_ while ranks compile
  std::map<std::string, double> facts_;
  std::unique_ptr<GpuWatch> watch_;
  std::optional<Sampler> sampler_;  // set when there is a GPU to watch
  std::vector<std::string> notes_;
};

}  // namespace penstock::gpu
