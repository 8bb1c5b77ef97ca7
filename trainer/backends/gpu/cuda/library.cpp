// SPDX-License-Identifier: Apache-2.0
// The two functions that libpenstock_cuda.so exports to the program that opens it; see
// ../library.h.
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "dataflow/error.h"
#include "penstock_revision.h"
#include "trainer/backends/gpu/cuda/activity.h"
#include "trainer/backends/gpu/cuda/cuda_check.h"
#include "trainer/backends/gpu/cuda/cuda_driver.h"
#include "trainer/backends/gpu/cuda/dnn_planner.h"
#include "trainer/backends/gpu/driver.h"

namespace penstock::gpu {
namespace {

/// The result of cudaGetDeviceCount() if there is no GPU, and what to do.
std::string why_no_device(cudaError_t status) {
  const std::string driver = cuda_driver_text();
  if (driver == "none") {
    return fmt::format("there is no driver: install NVIDIA's driver for CUDA {} or newer",
                       cuda_runtime_text());
  }
  if (status == cudaErrorInsufficientDriver) {
    return fmt::format(
        "its driver supports CUDA {} only: install NVIDIA's driver for CUDA {} or newer", driver,
        cuda_runtime_text());
  }
  return fmt::format(
      "cudaGetDeviceCount says {} ({}): look whether nvidia-smi lists a GPU and "
      "CUDA_VISIBLE_DEVICES does not hide it",
      cudaGetErrorName(status), cudaGetErrorString(status));
}

/// If none of the `count` devices can be used, throws the reason for the first one.
void expect_code_for_any(std::int32_t count) {
  for (std::int32_t ordinal = count - 1; ordinal >= 0; --ordinal) {
    try {
      return expect_code_for_device(ordinal);
    } catch (const Unavailable&) {
      if (ordinal == 0) throw;
    }
  }
}

// Marks of the harness are NVTX ranges in their own domain, which Nsight Systems shows beside the
// kernels. NVTX looks for tools only at its first call; without a tool there is no domain.
nvtxDomainHandle_t domain() noexcept {
  static const nvtxDomainHandle_t ours = nvtxDomainCreateA("penstock");
  return ours;
}

void push(const char* name) noexcept {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &range);
}

void pop() noexcept { nvtxDomainRangePop(domain()); }

constexpr MarkFunctions kMarks{.push = push, .pop = pop};

class CudaLibrary final : public DriverLibrary {
 public:
  /// Throws Unavailable if there is no GPU that this library has code for, or if the driver is too
  /// old.
  std::int32_t device_count() override {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count > 0) {
      expect_code_for_any(count);
      return count;
    }
    cudaGetLastError();
    throw Unavailable("this machine has no GPU that CUDA {} can use: {}, or use --device cpu",
                      cuda_runtime_text(), why_no_device(status));
  }

  std::unique_ptr<Driver> open(std::int32_t ordinal) override {
    const std::int32_t count = device_count();
    if (ordinal < 0 || ordinal >= count) {
      throw Unavailable("CUDA device {} was asked for, the machine has {}", ordinal,
                        count == 1 ? "device 0 only" : fmt::format("0 to {}", count - 1));
    }
    return std::make_unique<CudaDriver>(ordinal);
  }

  std::unique_ptr<Planner> make_planner(const std::string& properties) override {
    return std::make_unique<DnnPlanner>(properties);
  }

  const MarkFunctions* marks() noexcept override { return domain() != nullptr ? &kMarks : nullptr; }
  std::string start_activity(ActivityDetail detail) override { return gpu::start_activity(detail); }
  std::vector<ActivityRecord> finish_activity() override { return gpu::finish_activity(); }

  CommunicatorId make_communicator_id() override { return make_nccl_id(); }
  std::unique_ptr<Communicator> make_communicator(const CommunicatorId& id,
                                                  const CommunicatorPlace& place,
                                                  std::int32_t ordinal) override {
    return make_nccl_communicator(id, place, ordinal);
  }
};

void expect_library_versions() {
  const std::size_t version = cudnnGetVersion();
  if (version / 10000 == CUDNN_MAJOR && version >= CUDNN_VERSION) return;
  throw Unavailable(
      "cuDNN {} is loaded, {}.{}.{} or a newer {} is needed: install it, and put its folder first "
      "on LD_LIBRARY_PATH",
      dnn_version_text(), CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL, CUDNN_MAJOR);
}

}  // namespace
}  // namespace penstock::gpu

#define PENSTOCK_EXPORT extern "C" __attribute__((visibility("default")))

PENSTOCK_EXPORT const char* penstock_cuda_revision() { return PENSTOCK_REVISION; }

PENSTOCK_EXPORT penstock::gpu::DriverLibrary* penstock_cuda_library(char* error, std::size_t size) {
  try {
    penstock::gpu::expect_library_versions();
    static penstock::gpu::CudaLibrary library;
    return &library;
  } catch (const std::exception& failure) {
    if (size > 0) *fmt::format_to_n(error, size - 1, "{}", failure.what()).out = '\0';
    return nullptr;
  }
}
