// SPDX-License-Identifier: Apache-2.0
// One GPU through the CUDA runtime, with cuDNN for the graphs. Each entry point makes its device
// the thread's current one, because threads switch between devices.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "trainer/backends/gpu/cuda/dnn_planner.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {

/// A cuDNN handle. Two threads must not use it at once.
class DnnHandle {
 public:
  DnnHandle();
  DnnHandle(const DnnHandle&) = delete;
  DnnHandle& operator=(const DnnHandle&) = delete;
  ~DnnHandle() { cudnnDestroy(handle_); }
  cudnnHandle_t get() const noexcept { return handle_; }

  bool executed = false;  ///< has executed a plan: the library has what it needs for the next

 private:
  cudnnHandle_t handle_ = nullptr;
};

/// The CUDA handle of a stream that a CudaDriver made.
cudaStream_t native_stream(StreamHandle stream) noexcept;

/// Throws Unavailable if this build has no kernels for the device. Opens nothing.
void expect_code_for_device(std::int32_t ordinal);

class CudaDriver final : public Driver {
 public:
  /// Throws Unavailable if this build has no kernels for the device.
  explicit CudaDriver(std::int32_t ordinal);

  const DeviceFacts& facts() const noexcept override { return facts_; }
  std::size_t free_bytes() const override;
  bool reach(std::int32_t ordinal) override;

  std::byte* allocate(std::size_t bytes, MemoryKind kind) override;
  void free(std::byte* data, MemoryKind kind) noexcept override;
  bool pin(std::span<const std::byte> memory) override;
  void unpin(std::span<const std::byte> memory) noexcept override;

  StreamHandle make_stream() override;
  void destroy(StreamHandle stream) noexcept override;
  void copy(StreamHandle stream, std::byte* to, const std::byte* from, std::size_t bytes) override;
  void launch(StreamHandle stream, const KernelCall& call) override;
  void execute(StreamHandle stream, const DnnPlan& plan, std::span<std::byte* const> tensors,
               std::byte* workspace) override;

  EventHandle make_event() override;
  void destroy(EventHandle event) noexcept override;
  void record(StreamHandle stream, EventHandle event) override;
  void wait(StreamHandle stream, EventHandle event) override;
  bool wait_until(EventHandle event, Time deadline) override;
  Nanoseconds elapsed(EventHandle from, EventHandle to) override;

  void begin_capture(StreamHandle stream) override;
  GraphHandle end_capture(StreamHandle stream) override;
  void abandon_capture(StreamHandle stream) noexcept override;
  void launch(StreamHandle stream, GraphHandle graph) override;
  void destroy(GraphHandle graph) noexcept override;

  Planner& planner() override {
    use_device();  // engines are compiled for the thread's current device
    return *planner_;
  }
  std::unique_ptr<DnnPlan> build(const DnnGraph& graph, const EngineChoice& choice) override;

 private:
  void check(cudaError_t status, std::string_view call) const;
  void use_device() const;
  DnnHandle& dnn_handle(StreamHandle stream);
  void give_back(StreamHandle stream) noexcept;
  std::unique_ptr<DnnHandle> take_idle_handle();

  std::int32_t ordinal_;
  DeviceFacts facts_;
  std::unique_ptr<DnnHandle> planning_;
  std::unique_ptr<DnnPlanner> planner_;
  std::mutex handles_mutex_;
  std::vector<std::unique_ptr<DnnHandle>> idle_handles_;  ///< each has executed a plan
};

/// Communicators of NCCL. NCCL is opened when the first communicator is made, so a machine without
/// it can still train on one GPU. They are non-blocking, so that they can be aborted at any moment.
/// Both functions throw Unavailable if libnccl.so.2 is missing or older than the version that this
/// library was built with.
CommunicatorId make_nccl_id();
std::unique_ptr<Communicator> make_nccl_communicator(const CommunicatorId& id,
                                                     const CommunicatorPlace& place,
                                                     std::int32_t ordinal);

}  // namespace penstock::gpu
