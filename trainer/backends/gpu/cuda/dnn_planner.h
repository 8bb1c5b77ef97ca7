// SPDX-License-Identifier: Apache-2.0
// Which of cuDNN's engines can compute a graph, and plans for the chosen ones: for a device that is
// there, or for one of which only the description is.
//
// Without a device, engines that compile their kernels at run time can be planned only as far as
// loading what they compiled. With a libcuda that has no device behind it, such as the toolkit's
// stub, they count as candidates; with no libcuda at all, cuDNN does not name them.
//
// Thread-safety: a DnnPlanner may be used from any thread.
#pragma once

#include <cudnn.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trainer/backends/gpu/cuda/dnn_descriptors.h"
#include "trainer/backends/gpu/cuda/dnn_translate.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// An engine of the library with its knobs set, and what it refers to. Executed with any handle of
/// its device.
class CudnnPlan final : public DnnPlan {
 public:
  /// `engine` is that of the choice. `device`: the description of one that need not be there, null:
  /// that of the graph's handle. Throws DeviceError for a knob that the library does not have.
  CudnnPlan(std::shared_ptr<const OperationGraph> graph, Descriptor engine,
            const EngineChoice& choice, const Descriptor* device);

  /// Whether the library takes the choice; the others are for a plan that it has taken.
  cudnnStatus_t status() const noexcept { return status_; }
  std::size_t workspace_bytes() const noexcept override { return workspace_bytes_; }
  const Descriptor& get() const noexcept { return plan_; }
  const OperationGraph& graph() const noexcept { return *graph_; }

 private:
  std::shared_ptr<const OperationGraph> graph_;
  Descriptor engine_;
  std::vector<Descriptor> knobs_;
  Descriptor configuration_, plan_;
  cudnnStatus_t status_ = CUDNN_STATUS_NOT_INITIALIZED;
  std::size_t workspace_bytes_ = 0;
};

class DnnPlanner final : public Planner {
 public:
  /// From a description as in DeviceFacts::dnn_properties. Throws DeviceError where cuDNN does not
  /// understand it.
  explicit DnnPlanner(const std::string& properties);
  /// For the handle's device; the handle is borrowed and not used by anybody else.
  explicit DnnPlanner(cudnnHandle_t handle) : handle_(handle) {}

  /// An engine that cannot be finalised is left out.
  std::vector<Candidate> candidates(const DnnGraph& graph, const PlanRules& rules,
                                    std::size_t most) override;
  std::string dnn_version() const override { return dnn_version_text(); }

  /// Throws DeviceError where the library does not take the choice.
  std::unique_ptr<CudnnPlan> plan(const DnnGraph& graph, const EngineChoice& choice);

 private:
  const Descriptor* device() const noexcept { return device_ ? &*device_ : nullptr; }
  std::vector<EngineChoice> choices(const OperationGraph& graph, cudnnBackendHeurMode_t mode) const;
  Candidate finalise(std::shared_ptr<const OperationGraph> graph, Candidate candidate,
                     Descriptor engine) const;

  std::mutex mutex_;  // one plan at a time: cuDNN's handles are not to be shared
  cudnnHandle_t handle_ = nullptr;
  std::optional<Descriptor> device_;
};

/// The description of the handle's device, from which others can plan for it; empty if the library
/// does not give one.
std::string describe_device(cudnnHandle_t handle);

}  // namespace penstock::gpu
