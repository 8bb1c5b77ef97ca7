// SPDX-License-Identifier: Apache-2.0
// The functions of libcudart.so.13 that libpenstock_cuda.so calls, except those for kernels.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/support/gpu/fake/machine.h"

using penstock::MemoryKind;
using penstock::Nanoseconds;
using penstock::Time;
using penstock::gpu::Accesses;
using penstock::gpu::EventHandle;
using penstock::gpu::GraphHandle;
using penstock::gpu::HostMemory;
using penstock::gpu::rounded_up;
using penstock::gpu::StreamHandle;
namespace fake = penstock::gpu::fake;
using fake::During;
using fake::Machine;
using fake::machine;

/// The result of cudaStreamEndCapture. Instantiating it takes its contents.
struct CUgraph_st {
  GraphHandle recorded = nullptr;
};

namespace {

/// Prints at exit to the stream that was standard error when the library was opened: cuBLAS keeps
/// such streams for its log.
struct Farewell {
  std::FILE* const kept = stderr;
  ~Farewell() {
    if (std::getenv("PENSTOCK_FAKE_FAREWELL") != nullptr) std::fputs("fake CUDA: farewell\n", kept);
  }
};
const Farewell farewell;

StreamHandle host(cudaStream_t stream) { return reinterpret_cast<StreamHandle>(stream); }
EventHandle host(cudaEvent_t event) { return reinterpret_cast<EventHandle>(event); }
GraphHandle host(cudaGraphExec_t graph) { return reinterpret_cast<GraphHandle>(graph); }

/// Registers the current GPU as the owner of a new object.
template <typename Handle, typename Made>
cudaError_t own(Handle* handle, Made made) {
  *handle = reinterpret_cast<Handle>(made);
  machine().owner[*handle] = fake::current_device();
  return cudaSuccess;
}

/// The call of that name, which destroys an object.
template <typename Handle>
cudaError_t disown(const char* name, Handle handle) {
  return machine().call(name, During::any, [&] {
    if (machine().owner.erase(handle) == 0) return cudaErrorInvalidResourceHandle;
    machine().streams.destroy(host(handle));
    return cudaSuccess;
  });
}

template <typename Handle>
bool owned(Handle handle) {
  return machine().owner.contains(handle);
}

cudaError_t release(void* memory, MemoryKind kind) {
  Machine& on = machine();
  auto* const data = static_cast<std::byte*>(memory);
  if (data == nullptr) return cudaSuccess;
  const HostMemory::Block* const block = on.memory.find(data);
  if (block == nullptr || block->kind != kind || block->foreign) return cudaErrorInvalidValue;
  on.streams.run_all();  // CUDA waits for the device, too
  if (const auto owner = on.device_of_block.find(data); owner != on.device_of_block.end()) {
    on.used[static_cast<std::size_t>(owner->second)] -= rounded_up(block->bytes);
    on.device_of_block.erase(owner);
  }
  on.memory.free(data);
  return cudaSuccess;
}

struct ErrorText {
  cudaError_t code;
  const char *name, *text;
};
#define ERROR_TEXT(code, text) \
  { code, #code, text }
constexpr ErrorText kErrors[] = {
    ERROR_TEXT(cudaSuccess, "no error"),
    ERROR_TEXT(cudaErrorInvalidValue, "invalid argument"),
    ERROR_TEXT(cudaErrorMemoryAllocation, "out of memory"),
    ERROR_TEXT(cudaErrorInsufficientDriver,
               "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR_TEXT(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    ERROR_TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR_TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR_TEXT(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ERROR_TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR_TEXT(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR_TEXT(cudaErrorNotReady, "device not ready"),
    ERROR_TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR_TEXT(cudaErrorHostMemoryAlreadyRegistered,
               "part or all of the requested memory range is already mapped"),
    ERROR_TEXT(cudaErrorHostMemoryNotRegistered,
               "pointer does not correspond to a registered memory region"),
    ERROR_TEXT(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ERROR_TEXT(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR_TEXT(cudaErrorNotSupported, "operation not supported"),
    ERROR_TEXT(cudaErrorStreamCaptureUnsupported,
               "operation not permitted when stream is capturing"),
    ERROR_TEXT(cudaErrorStreamCaptureInvalidated,
               "operation failed due to a previous error during capture"),
    ERROR_TEXT(cudaErrorStreamCaptureWrongThread,
               "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR_TEXT(cudaErrorUnknown, "unknown error"),
};
#undef ERROR_TEXT

const ErrorText& text_of(cudaError_t code) {
  for (const ErrorText& error : kErrors) {
    if (error.code == code) return error;
  }
  static constexpr ErrorText kOther{cudaErrorUnknown, "unrecognized error code",
                                    "unrecognized error code"};
  return kOther;
}

/// A record or a wait must be external exactly if its stream is being recorded. Otherwise the event
/// would become a part of the recording, and nothing outside could use it.
cudaError_t expect_external(cudaStream_t stream, bool external) {
  return machine().records(stream) == external ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

// Errors and versions

const char* cudaGetErrorName(cudaError_t code) { return text_of(code).name; }
const char* cudaGetErrorString(cudaError_t code) { return text_of(code).text; }
cudaError_t cudaGetLastError() { return std::exchange(fake::last_error(), cudaSuccess); }

cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine().settings.driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// Devices

cudaError_t cudaGetDeviceCount(int* count) {
  return machine().call("cudaGetDeviceCount", During::any, [&] {
    *count = machine().settings.devices;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return machine().call("cudaSetDevice", During::any, [&] {
    if (device < 0 || device >= machine().settings.devices) return cudaErrorInvalidDevice;
    fake::current_device() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return machine().call("cudaGetDeviceProperties", During::any, [&] {
    const fake::Settings& settings = machine().settings;
    *properties = {};
    fmt::format_to_n(properties->name, sizeof(properties->name) - 1, "Fake GPU {}", device);
    properties->major = settings.capability / 10;
    properties->minor = settings.capability % 10;
    properties->multiProcessorCount = 132;
    properties->totalGlobalMem = settings.memory_bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  return machine().call("cudaDeviceGetPCIBusId", During::any, [&] {
    *fmt::format_to_n(id, size - 1, "0000:{:02x}:00.0", device).out = '\0';
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  return machine().call("cudaDeviceGetAttribute", During::any, [&] {
    *value = attribute == cudaDevAttrHostRegisterReadOnlySupported ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return machine().call("cudaDeviceCanAccessPeer", During::any, [&] {
    *can = device != peer ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return machine().call("cudaDeviceEnablePeerAccess", During::outside_recordings, [&] {
    const bool is_new = machine().peers.emplace(fake::current_device(), peer).second;
    return is_new ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}

// Memory

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return machine().call("cudaMemGetInfo", During::any, [&] {
    *total = machine().settings.memory_bytes;
    *free = *total - machine().used[static_cast<std::size_t>(fake::current_device())];
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return machine().call("cudaMalloc", During::outside_recordings, [&] {
    Machine& on = machine();
    std::size_t& used = on.used[static_cast<std::size_t>(fake::current_device())];
    if (rounded_up(bytes) > on.settings.memory_bytes - used) return cudaErrorMemoryAllocation;
    used += rounded_up(bytes);
    std::byte* const data = on.memory.allocate(bytes, MemoryKind::device);
    on.device_of_block[data] = fake::current_device();
    *memory = data;
    return cudaSuccess;
  });
}

cudaError_t cudaFree(void* memory) {
  return machine().call("cudaFree", During::outside_recordings,
                        [&] { return release(memory, MemoryKind::device); });
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return machine().call("cudaHostAlloc", During::outside_recordings, [&] {
    *memory = machine().memory.allocate(bytes, MemoryKind::pinned);
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* memory) {
  return machine().call("cudaFreeHost", During::outside_recordings,
                        [&] { return release(memory, MemoryKind::pinned); });
}

cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned) {
  return machine().call("cudaHostRegister", During::outside_recordings, [&] {
    Machine& on = machine();
    const auto* const data = static_cast<const std::byte*>(memory);
    if (on.memory.find(data) != nullptr) return cudaErrorHostMemoryAlreadyRegistered;
    on.memory.add_foreign({data, bytes});
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* memory) {
  return machine().call("cudaHostUnregister", During::outside_recordings, [&] {
    const auto* const data = static_cast<const std::byte*>(memory);
    const HostMemory::Block* const block = machine().memory.find(data);
    if (block == nullptr || !block->foreign) return cudaErrorHostMemoryNotRegistered;
    machine().streams.run_all();
    machine().memory.forget_foreign(data);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return machine().call("cudaMemcpyAsync", During::any, [&] {
    if (kind != cudaMemcpyDefault) return cudaErrorNotSupported;
    Machine& on = machine();
    auto* const target = static_cast<std::byte*>(to);
    const auto* const source = static_cast<const std::byte*>(from);
    return on.enqueue(
        stream, {.name = "cudaMemcpyAsync",
                 .pageable = on.memory.find(target) == nullptr || on.memory.find(source) == nullptr,
                 .accesses =
                     [=] {
                       return Accesses{{{source, bytes}}, {{target, bytes}}};
                     },
                 .run = [=] { std::memcpy(target, source, bytes); }});
  });
}

// Streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return machine().call("cudaStreamCreateWithFlags", During::any,
                        [&] { return own(stream, machine().streams.make_stream()); });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) { return disown("cudaStreamDestroy", stream); }

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return machine().call("cudaStreamQuery", During::outside_recordings, [&] {
    if (!owned(stream)) return cudaErrorInvalidResourceHandle;
    return machine().streams.is_idle(host(stream)) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return machine().call("cudaEventCreateWithFlags", During::any,
                        [&] { return own(event, machine().streams.make_event()); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) { return disown("cudaEventDestroy", event); }

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return machine().call("cudaEventRecordWithFlags", During::any, [&] {
    Machine& on = machine();
    const auto owner = on.owner.find(event);
    if (owner == on.owner.end() || owner->second != fake::current_device()) {
      return cudaErrorInvalidResourceHandle;
    }
    cudaError_t status = on.usable(stream);
    if (status == cudaSuccess) status = expect_external(stream, flags == cudaEventRecordExternal);
    if (status == cudaSuccess) on.streams.record(host(stream), host(event));
    return status;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return machine().call("cudaStreamWaitEvent", During::any, [&] {
    Machine& on = machine();
    if (!owned(event)) return cudaErrorInvalidResourceHandle;
    cudaError_t status = on.usable(stream);
    if (status == cudaSuccess) status = expect_external(stream, flags == cudaEventWaitExternal);
    if (status == cudaSuccess) on.streams.wait(host(stream), host(event));
    return status;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return machine().call("cudaEventQuery", During::outside_recordings, [&] {
    if (!owned(event)) return cudaErrorInvalidResourceHandle;
    return machine().streams.wait_until(host(event), Time{}) ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return machine().call("cudaEventSynchronize", During::outside_recordings, [&] {
    if (!owned(event)) return cudaErrorInvalidResourceHandle;
    machine().streams.wait_until(host(event), Time::max());
    return cudaSuccess;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return machine().call("cudaEventElapsedTime", During::outside_recordings, [&] {
    if (!owned(from) || !owned(to)) return cudaErrorInvalidResourceHandle;
    const Nanoseconds time = machine().streams.elapsed(host(from), host(to));
    *milliseconds = std::chrono::duration<float, std::milli>(time).count();
    return cudaSuccess;
  });
}

// Recordings

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return machine().call("cudaStreamBeginCapture", During::any,
                        [&] { return machine().begin_capture(stream, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return machine().call("cudaStreamEndCapture", During::any, [&] {
    GraphHandle recorded = nullptr;
    const cudaError_t status = machine().end_capture(stream, recorded);
    *graph = recorded == nullptr ? nullptr : new CUgraph_st{recorded};
    return status;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return machine().call("cudaGraphInstantiate", During::outside_recordings, [&] {
    if (graph->recorded == nullptr) return cudaErrorNotSupported;  // a second time
    return own(executable, std::exchange(graph->recorded, nullptr));
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return machine().call("cudaGraphDestroy", During::any, [&] {
    if (graph->recorded != nullptr) machine().streams.destroy(graph->recorded);
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return machine().call("cudaGraphLaunch", During::any, [&] {
    if (!owned(graph)) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t status = machine().usable(stream); status != cudaSuccess) return status;
    machine().streams.launch(host(stream), host(graph));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return disown("cudaGraphExecDestroy", graph);
}
