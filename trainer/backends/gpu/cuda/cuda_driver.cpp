// SPDX-License-Identifier: Apache-2.0
#include "trainer/backends/gpu/cuda/cuda_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "dataflow/error.h"
#include "trainer/backends/gpu/cuda/cuda_check.h"
#include "trainer/backends/gpu/kernels/launch.h"

namespace penstock::gpu {

struct StreamTag {
  cudaStream_t stream = nullptr;
  std::unique_ptr<DnnHandle> dnn;  ///< null until the stream executes plans or is recorded
  bool capturing = false;
};

namespace {

constexpr std::chrono::microseconds kPoll{50};
/// Needed by the kernels that convert to bf16.
constexpr std::int32_t kLowestCapability = 80;

// Events and recorded graphs are CUDA's own types under other names.
cudaEvent_t cuda(EventHandle event) noexcept { return reinterpret_cast<cudaEvent_t>(event); }
cudaGraphExec_t cuda(GraphHandle graph) noexcept {
  return reinterpret_cast<cudaGraphExec_t>(graph);
}

DeviceFacts facts_of(std::int32_t ordinal) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties", ordinal);
  DeviceFacts facts;
  facts.name = properties.name;
  facts.capability = 10 * properties.major + properties.minor;
  facts.multiprocessors = properties.multiProcessorCount;
  facts.memory_bytes = properties.totalGlobalMem;
  std::array<char, 32> bus{};
  check_cuda(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), ordinal),
             "cudaDeviceGetPCIBusId", ordinal);
  facts.pci_bus = bus.data();
  facts.driver_version = cuda_driver_text();
  facts.runtime_version = cuda_runtime_text();
  facts.dnn_version = dnn_version_text();
  return facts;
}

void expect_code_for(const DeviceFacts& facts, std::int32_t ordinal) {
  if (facts.capability >= PENSTOCK_CUDA_CAPABILITY) return;
  throw Unavailable(
      "CUDA device {} is a {} of compute capability {}.{}; libpenstock_cuda.so has code for {}.{} "
      "and newer: use another device{}",
      ordinal, facts.name, facts.capability / 10, facts.capability % 10,
      PENSTOCK_CUDA_CAPABILITY / 10, PENSTOCK_CUDA_CAPABILITY % 10,
      facts.capability < kLowestCapability
          ? ""
          : fmt::format(", or build with -DPENSTOCK_CUDA_ARCHITECTURES={}", facts.capability));
}

/// Makes the device the thread's current one for the first time. CUDA claims the device at this
/// call.
void claim(std::int32_t ordinal) {
  const cudaError_t status = cudaSetDevice(ordinal);
  if (status == cudaSuccess) return;
  cudaGetLastError();
  if (status == cudaErrorDevicesUnavailable) {
    throw Unavailable(
        "CUDA device {} is busy ({}): another process has it in exclusive use, or its compute mode "
        "is Prohibited: end that process, set the mode with nvidia-smi -c DEFAULT, or use --device "
        "emulated",
        ordinal, cudaGetErrorName(status));
  }
  throw Unavailable(
      "CUDA device {} cannot be opened: cudaSetDevice says {} ({}): look whether nvidia-smi shows "
      "free memory and no error, or use --device emulated",
      ordinal, cudaGetErrorName(status), cudaGetErrorString(status));
}

Descriptor make_variant_pack(const std::vector<DnnTensorId>& in_memory,
                             std::span<std::byte* const> tensors, std::byte* workspace) {
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  for (const DnnTensorId id : in_memory) {
    ids.push_back(unique_id(id));
    pointers.push_back(tensors[static_cast<std::size_t>(id)]);
  }
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set_integers(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           static_cast<std::int64_t>(pointers.size()), pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, static_cast<void*>(workspace));
  pack.finalize("variant pack");
  return pack;
}

/// For calls whose failure is not reported. Clears the error, so that the next kernel launch does
/// not report it.
void ignore(cudaError_t status) noexcept {
  if (status != cudaSuccess) cudaGetLastError();
}

/// Runs a call of cuDNN and adds the device to its errors, because cuDNN's errors do not name it.
template <typename Call>
auto naming_device(std::int32_t ordinal, Call call) {
  try {
    return call();
  } catch (const DeviceError& error) {
    throw DeviceError("CUDA device {}: {}", ordinal, error.what());
  }
}

}  // namespace

void expect_code_for_device(std::int32_t ordinal) { expect_code_for(facts_of(ordinal), ordinal); }

cudaStream_t native_stream(StreamHandle stream) noexcept { return stream->stream; }

DnnHandle::DnnHandle() { check_dnn(cudnnCreate(&handle_), "cudnnCreate"); }

CudaDriver::CudaDriver(std::int32_t ordinal) : ordinal_(ordinal), facts_(facts_of(ordinal)) {
  expect_code_for(facts_, ordinal);
  claim(ordinal);
  naming_device(ordinal_, [&] {
    planning_ = std::make_unique<DnnHandle>();
    facts_.dnn_properties = describe_device(planning_->get());
  });
  planner_ = std::make_unique<DnnPlanner>(planning_->get());
}

void CudaDriver::check(cudaError_t status, std::string_view call) const {
  check_cuda(status, call, ordinal_);
}

void CudaDriver::use_device() const { check(cudaSetDevice(ordinal_), "cudaSetDevice"); }

std::size_t CudaDriver::free_bytes() const {
  use_device();
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

bool CudaDriver::reach(std::int32_t ordinal) {
  if (ordinal == ordinal_) return true;
  use_device();
  int reachable = 0;
  check(cudaDeviceCanAccessPeer(&reachable, ordinal_, ordinal),
        fmt::format("cudaDeviceCanAccessPeer of device {}", ordinal));
  if (reachable == 0) return false;
  const cudaError_t status = cudaDeviceEnablePeerAccess(ordinal, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return true;
  }
  check(status, fmt::format("cudaDeviceEnablePeerAccess of device {}", ordinal));
  return true;
}

std::byte* CudaDriver::allocate(std::size_t bytes, MemoryKind kind) {
  PENSTOCK_ASSERT(kind != MemoryKind::host);
  use_device();
  void* data = nullptr;
  if (kind == MemoryKind::pinned) {
    check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable),
          fmt::format("cudaHostAlloc of {} bytes", bytes));
    return static_cast<std::byte*>(data);
  }
  const cudaError_t status = cudaMalloc(&data, bytes);
  check(status,
        status != cudaErrorMemoryAllocation
            ? fmt::format("cudaMalloc of {} bytes", bytes)
            : fmt::format("cudaMalloc of {} bytes, with {} bytes free,", bytes, free_bytes()));
  return static_cast<std::byte*>(data);
}

void CudaDriver::free(std::byte* data, MemoryKind kind) noexcept {
  if (cudaSetDevice(ordinal_) != cudaSuccess) return;
  if (kind == MemoryKind::device) {
    ignore(cudaFree(data));
  } else {
    ignore(cudaFreeHost(data));
  }
}

bool CudaDriver::pin(std::span<const std::byte> memory) {
  use_device();
  int takes_read_only = 0;
  check(
      cudaDeviceGetAttribute(&takes_read_only, cudaDevAttrHostRegisterReadOnlySupported, ordinal_),
      "cudaDeviceGetAttribute");
  if (takes_read_only == 0) return false;
  // Without this flag CUDA refuses pages that this process may not write to.
  const cudaError_t status = cudaHostRegister(const_cast<std::byte*>(memory.data()), memory.size(),
                                              cudaHostRegisterPortable | cudaHostRegisterReadOnly);
  if (status == cudaSuccess) return true;
  cudaGetLastError();  // refused, as by a limit on locked memory; the caller has another way
  return false;
}

void CudaDriver::unpin(std::span<const std::byte> memory) noexcept {
  if (cudaSetDevice(ordinal_) != cudaSuccess) return;
  ignore(cudaHostUnregister(const_cast<std::byte*>(memory.data())));
}

StreamHandle CudaDriver::make_stream() {
  use_device();
  auto stream = std::make_unique<StreamTag>();
  check(cudaStreamCreateWithFlags(&stream->stream, cudaStreamNonBlocking),
        "cudaStreamCreateWithFlags");
  return stream.release();
}

void CudaDriver::destroy(StreamHandle stream) noexcept {
  const std::unique_ptr<StreamTag> owned(stream);
  if (cudaSetDevice(ordinal_) != cudaSuccess) return;
  const cudaError_t done = cudaStreamQuery(owned->stream);
  ignore(done);
  if (done == cudaSuccess) give_back(stream);
  owned->dnn.reset();
  ignore(cudaStreamDestroy(owned->stream));
}

void CudaDriver::copy(StreamHandle stream, std::byte* to, const std::byte* from,
                      std::size_t bytes) {
  use_device();
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream->stream),
        fmt::format("cudaMemcpyAsync of {} bytes", bytes));
}

void CudaDriver::launch(StreamHandle stream, const KernelCall& call) {
  use_device();
  check(static_cast<cudaError_t>(gpu::launch(call, stream->stream)),
        fmt::format("the launch of kernel {}", call.index()));
}

/// Gives a stream its handle when it first needs one, outside of recordings, which forbid it.
/// Prefers a handle that has executed before: the first execution of a handle may allocate, and
/// that breaks a recording.
DnnHandle& CudaDriver::dnn_handle(StreamHandle stream) {
  if (stream->dnn) return *stream->dnn;
  naming_device(ordinal_, [&] {
    std::unique_ptr<DnnHandle> handle = take_idle_handle();
    if (handle == nullptr) handle = std::make_unique<DnnHandle>();
    check_dnn(cudnnSetStream(handle->get(), stream->stream), "cudnnSetStream");
    stream->dnn = std::move(handle);
  });
  return *stream->dnn;
}

/// Takes the handle back from a stream that has no work left, or only recordings, which need no
/// handle.
void CudaDriver::give_back(StreamHandle stream) noexcept {
  if (stream->dnn == nullptr || !stream->dnn->executed) return;
  const std::lock_guard lock(handles_mutex_);
  idle_handles_.push_back(std::move(stream->dnn));
}

std::unique_ptr<DnnHandle> CudaDriver::take_idle_handle() {
  const std::lock_guard lock(handles_mutex_);
  if (idle_handles_.empty()) return nullptr;
  std::unique_ptr<DnnHandle> handle = std::move(idle_handles_.back());
  idle_handles_.pop_back();
  return handle;
}

void CudaDriver::execute(StreamHandle stream, const DnnPlan& plan,
                         std::span<std::byte* const> tensors, std::byte* workspace) {
  use_device();
  DnnHandle& handle = dnn_handle(stream);
  const auto& ours = static_cast<const CudnnPlan&>(plan);
  naming_device(ordinal_, [&] {
    const Descriptor pack = make_variant_pack(ours.graph().in_memory(), tensors, workspace);
    check_dnn(cudnnBackendExecute(handle.get(), ours.get().get(), pack.get()),
              "cudnnBackendExecute");
    handle.executed = true;
  });
}

EventHandle CudaDriver::make_event() {
  use_device();
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventBlockingSync), "cudaEventCreateWithFlags");
  return reinterpret_cast<EventHandle>(event);
}

void CudaDriver::destroy(EventHandle event) noexcept {
  if (cudaSetDevice(ordinal_) == cudaSuccess) ignore(cudaEventDestroy(cuda(event)));
}

// In a recording, other streams wait for the event, not the recorded stream itself.
void CudaDriver::record(StreamHandle stream, EventHandle event) {
  use_device();
  const unsigned flags = stream->capturing ? cudaEventRecordExternal : cudaEventRecordDefault;
  check(cudaEventRecordWithFlags(cuda(event), stream->stream, flags), "cudaEventRecordWithFlags");
}

void CudaDriver::wait(StreamHandle stream, EventHandle event) {
  use_device();
  const unsigned flags = stream->capturing ? cudaEventWaitExternal : cudaEventWaitDefault;
  check(cudaStreamWaitEvent(stream->stream, cuda(event), flags), "cudaStreamWaitEvent");
}

bool CudaDriver::wait_until(EventHandle event, Time deadline) {
  use_device();
  if (deadline == Time::max()) {
    check(cudaEventSynchronize(cuda(event)), "cudaEventSynchronize");
    return true;
  }
  while (true) {
    const cudaError_t status = cudaEventQuery(cuda(event));
    if (status != cudaErrorNotReady) {
      check(status, "cudaEventQuery");
      return true;
    }
    ignore(status);
    const Time now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    std::this_thread::sleep_until(std::min(deadline, now + kPoll));
  }
}

Nanoseconds CudaDriver::elapsed(EventHandle from, EventHandle to) {
  use_device();
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, cuda(from), cuda(to)), "cudaEventElapsedTime");
  return std::chrono::round<Nanoseconds>(std::chrono::duration<double, std::milli>(milliseconds));
}

void CudaDriver::begin_capture(StreamHandle stream) {
  use_device();
  dnn_handle(stream);
  check(cudaStreamBeginCapture(stream->stream, cudaStreamCaptureModeThreadLocal),
        "cudaStreamBeginCapture");
  stream->capturing = true;
}

GraphHandle CudaDriver::end_capture(StreamHandle stream) {
  use_device();
  stream->capturing = false;
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream->stream, &graph), "cudaStreamEndCapture");
  give_back(stream);
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
  return reinterpret_cast<GraphHandle>(executable);
}

void CudaDriver::abandon_capture(StreamHandle stream) noexcept {
  stream->capturing = false;
  cudaGraph_t graph = nullptr;
  if (cudaSetDevice(ordinal_) == cudaSuccess &&
      cudaStreamEndCapture(stream->stream, &graph) == cudaSuccess) {
    cudaGraphDestroy(graph);
  }
  cudaGetLastError();  // clears the error, which is already known
}

void CudaDriver::launch(StreamHandle stream, GraphHandle graph) {
  use_device();
  check(cudaGraphLaunch(cuda(graph), stream->stream), "cudaGraphLaunch");
}

void CudaDriver::destroy(GraphHandle graph) noexcept {
  if (cudaSetDevice(ordinal_) == cudaSuccess) ignore(cudaGraphExecDestroy(cuda(graph)));
}

std::unique_ptr<DnnPlan> CudaDriver::build(const DnnGraph& graph, const EngineChoice& choice) {
  use_device();
  return naming_device(ordinal_, [&] { return planner_->plan(graph, choice); });
}

}  // namespace penstock::gpu
