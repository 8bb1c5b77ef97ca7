// SPDX-License-Identifier: Apache-2.0
// Finds the cuDNN engines that can compute a graph and makes plans for the chosen ones. It plans
// for a device of this machine, or for a device of which only the description is known.
//
// Without a device, planning stops before it loads the kernels that an engine compiled at run time.
// If libcuda has no device behind it (such as the toolkit's stub), these engines count as
// candidates; if libcuda is missing, cuDNN does not name them.
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
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// An engine of the library with its knobs set, and the objects that it refers to. Any handle of
/// its device may execute it.
class CudnnPlan final : public DnnPlan {
 public:
  /// `engine` is the engine of `choice`. `device` describes a device that need not be present;
  /// null: the device of the graph's handle. Throws DeviceError for a knob that the library does
  /// not have.
  CudnnPlan(std::shared_ptr<const OperationGraph> graph, Descriptor engine,
            const EngineChoice& choice, const Descriptor* device);

  /// Says whether the library accepts the choice. The other functions need a plan that it has
  /// accepted.
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
  /// `properties` is a description like DeviceFacts::dnn_properties. Throws DeviceError if cuDNN
  /// does not understand it.
  explicit DnnPlanner(const std::string& properties);
  /// Plans for the handle's device. Borrows the handle; no other code may use it.
  explicit DnnPlanner(cudnnHandle_t handle) : handle_(handle) {}

  /// Leaves out engines that cannot be finalised.
  std::vector<Candidate> candidates(const DnnGraph& graph, const PlanRules& rules,
                                    std::size_t most) override;

  /// Throws DeviceError if the library rejects the choice.
  std::unique_ptr<CudnnPlan> plan(const DnnGraph& graph, const EngineChoice& choice);

 private:
  const Descriptor* device() const noexcept { return device_ ? &*device_ : nullptr; }
  std::vector<EngineChoice> choices(const OperationGraph& graph, cudnnBackendHeurMode_t mode) const;
  Candidate finalise(std::shared_ptr<const OperationGraph> graph, Candidate candidate,
                     Descriptor engine) const;

  std::mutex mutex_;  // one plan at a time: threads must not share a cuDNN handle
  cudnnHandle_t handle_ = nullptr;
  std::optional<Descriptor> device_;
};

/// The description of the handle's device. A planner can use it without the device. Empty if the
/// library does not give one.
std::string describe_device(cudnnHandle_t handle);

}  // namespace penstock::gpu
